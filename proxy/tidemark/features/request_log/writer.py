"""Writes this worker's requests to the log, every other second and in one call.

A request only leaves its event here, and waits for nothing. While the store does not answer, the newest ones wait.
Refusals that whoever sends them costs nothing are counted together, so that a flood of them does not fill the log.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from math import inf

from tidemark.core.errors import Overloaded, RecordUnreadable
from tidemark.core.events import Event, RequestServed, RequestShed
from tidemark.features.request_log.facts import facts_of
from tidemark.features.request_log.store import RedisRequestLog
from tidemark.store.request_facts import RequestFacts
from tidemark.worker.patient_writer import PatientWriter

PAUSE_SECONDS = 2.0
BATCH = 1000
"""The most requests that are written at once."""
FLOODS = frozenset({401, 429, 503})
"""Statuses of refusals that cost a client nothing: for its credential, its quota and the load."""
TOGETHER_SECONDS = 60.0
"""Within this time after one, further refusals of a tenant with the same code are one request of the log."""
_SHED = RequestServed("", 503, "rejected", 0.0, code=Overloaded.code)
"""A request beyond the limits: it was refused before anything was known of it."""


@dataclass
class _Repeats:
    """Refusals since one that was noted. Mutable."""

    since: float
    count: int = 0
    newest: tuple[RequestServed, float] = (_SHED, 0.0)
    """The last one, and when it came."""


class RequestLogWriter:
    """Collects and writes. Its state is what waits, and the batch that was sent last, until the store has answered.

    :param most: the most requests that wait; of more the oldest are dropped
    :param clock: Unix time in seconds
    """

    def __init__(self, store: RedisRequestLog, most: int, clock: Callable[[], float]) -> None:
        self._store = store
        self._clock = clock
        self._writer = uuid.uuid4().hex
        self._number = 0
        self._waiting: deque[tuple[RequestServed, float, int]] = deque(maxlen=most)
        self._repeats: dict[tuple[str, int, str], _Repeats] = {}
        """By owner, status and code."""
        self._most = most
        self._batch: dict[str, list[RequestFacts]] = {}
        self._lock = asyncio.Lock()
        self._patient_writer = PatientWriter(self._write, self._has_more, PAUSE_SECONDS)

    def on_event(self, event: Event) -> None:
        """Note a request that has ended or was shed."""
        if type(event) is RequestShed:
            event = _SHED
        elif type(event) is not RequestServed:
            return
        waiting, at = self._waiting, self._clock()
        if not waiting:
            self._patient_writer.begin()
        if event.report is not None or event.status not in FLOODS or not self._is_repeated(event, at):
            waiting.append((event, at, 1))

    async def settle(self) -> None:
        """Write now what waits; during an outage it goes on waiting."""
        await self._patient_writer.settle()

    async def aclose(self) -> None:
        """Write what waits, as far as a short time allows."""
        self._end_repeats(inf)
        await self._patient_writer.aclose()

    def _has_more(self) -> bool:
        return bool(self._batch or self._waiting or self._repeats)

    def _is_repeated(self, served: RequestServed, at: float) -> bool:
        """Return whether a refusal is as an earlier one of this minute, with which it is counted."""
        if served.code is None:  # the provider's
            return False
        key = (served.owner, served.status, served.code)
        repeats = self._repeats.get(key)
        if repeats is None or at - repeats.since >= TOGETHER_SECONDS:
            self._end_repeats(at)
            if len(self._repeats) < self._most:
                self._repeats[key] = _Repeats(at)
            return False
        repeats.count += 1
        repeats.newest = (served, at)
        return True

    def _end_repeats(self, now: float) -> None:
        """Let what has been counted for a minute wait for the next write."""
        for key, repeats in [*self._repeats.items()]:
            if now - repeats.since >= TOGETHER_SECONDS:
                del self._repeats[key]
                if repeats.count:
                    self._waiting.append((*repeats.newest, repeats.count))

    async def _write(self) -> None:
        """Write all batches.

        :raises StoreError: the store did not take one, which stays for the next try
        """
        async with self._lock:
            self._end_repeats(self._clock())
            remaining = len(self._waiting)  # what comes meanwhile is of the next write
            while self._batch or remaining:
                if not self._batch:
                    remaining -= self._take(min(BATCH, remaining, len(self._waiting)))
                with suppress(RecordUnreadable):  # another version's key: the same batch would fail again
                    await self._store.add(self._writer, self._number, self._batch, self._clock())
                self._batch = {}

    def _take(self, count: int) -> int:
        """Make the next batch of what waits longest."""
        self._number += 1
        for _ in range(count):
            served, at, number = self._waiting.popleft()
            self._batch.setdefault(served.owner, []).append(facts_of(served, at, number))
        return count
