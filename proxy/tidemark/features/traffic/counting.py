"""Adds up this worker's figures for all requests, and writes them to the store about once a second.

``metrics.py`` gives it the figures that it has gathered since the last time, so that a request adds nothing more.
No request waits for the writing. While the store does not answer, the figures wait in memory.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable
from contextlib import suppress

from tidemark.core.errors import RecordUnreadable, StoreError
from tidemark.core.traffic import TrafficFigures
from tidemark.features.traffic.store import RedisTraffic

MAX_MINUTES = 1440
"""Minutes of figures that wait for the store: a day, about 1 MB. Older ones are dropped."""
BATCH_MINUTES = 60
"""Minutes that are written at once."""
RETRY_SECONDS = 1.0
CLOSE_SECONDS = 2.0
"""The time that the end of the process waits for figures to be written."""
MINUTE_SECONDS = 60


class TrafficCounter:
    """Collects figures by minute and writes them.

    The mutable state is the figures that wait, and the batch that was sent last, until the store has answered. A batch
    has a number, so that one whose answer was lost counts once.

    :param clock: Unix time in seconds
    :param on_written: is given the seconds of each write
    :param gather: calls ``add`` with what is gathered and was not added yet
    """

    def __init__(
        self,
        store: RedisTraffic,
        clock: Callable[[], float],
        gather: Callable[[], None],
        on_written: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._gather = gather
        self._on_written = on_written
        self._timer = time.perf_counter
        self._writer = uuid.uuid4().hex
        self._number = 0
        self._batch: dict[int, TrafficFigures] = {}
        self._waiting: dict[int, TrafficFigures] = {}
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    def add(self, figures: TrafficFigures) -> None:
        """Count figures for the current minute; a task of its own writes them."""
        minute = int(self._clock()) // MINUTE_SECONDS
        waiting = self._waiting.setdefault(minute, TrafficFigures())
        waiting.add(figures)
        if len(self._waiting) > MAX_MINUTES:
            del self._waiting[min(self._waiting)]
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write_until_done())

    async def settle(self) -> None:
        """Write now what waits; during an outage it goes on waiting."""
        self._gather()
        with suppress(StoreError):
            await self._write()

    async def aclose(self) -> None:
        """Write what waits, as far as a short time allows."""
        self._gather()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.settle()

    async def _write_until_done(self) -> None:
        while self._batch or self._waiting:
            try:
                await self._write()
            except StoreError:
                await asyncio.sleep(RETRY_SECONDS)

    async def _write(self) -> None:
        """Write all batches.

        :raises StoreError: the store did not take one, which stays for the next try
        """
        async with self._lock:
            while self._batch or self._waiting:
                if not self._batch:
                    self._number += 1
                    for minute in sorted(self._waiting)[:BATCH_MINUTES]:
                        self._batch[minute] = self._waiting.pop(minute)
                with suppress(RecordUnreadable):  # another version's key: the same batch would fail again
                    started = self._timer()
                    await self._store.add(self._writer, self._number, self._batch)
                    self._on_written(self._timer() - started)
                self._batch = {}
