"""Writes this worker's requests to the log, every other second and in one call.

A request only leaves its event here, and waits for nothing. While the store does not answer, the newest ones wait.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from tidemark.core.errors import RecordUnreadable
from tidemark.core.events import Event, RequestServed
from tidemark.features.request_log.facts import facts_of
from tidemark.features.request_log.store import RedisRequestLog
from tidemark.store.request_facts import RequestFacts
from tidemark.worker.patient_writer import PatientWriter

PAUSE_SECONDS = 2.0
BATCH = 1000
"""The most requests that are written at once."""


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
        self._waiting: deque[tuple[RequestServed, float]] = deque(maxlen=most)
        self._batch: dict[str, list[RequestFacts]] = {}
        self._lock = asyncio.Lock()
        self._patient_writer = PatientWriter(self._write, self._has_more, PAUSE_SECONDS)

    def on_event(self, event: Event) -> None:
        """Note a request that has ended."""
        if type(event) is RequestServed:
            waiting = self._waiting
            if not waiting:
                self._patient_writer.begin()
            waiting.append((event, self._clock()))

    async def settle(self) -> None:
        """Write now what waits; during an outage it goes on waiting."""
        await self._patient_writer.settle()

    async def aclose(self) -> None:
        """Write what waits, as far as a short time allows."""
        await self._patient_writer.aclose()

    def _has_more(self) -> bool:
        return bool(self._batch or self._waiting)

    async def _write(self) -> None:
        """Write all batches.

        :raises StoreError: the store did not take one, which stays for the next try
        """
        async with self._lock:
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
            served, at = self._waiting.popleft()
            self._batch.setdefault(served.owner, []).append(facts_of(served, at))
        return count
