"""Patience: how long an answer of the store is waited for, by a clock that stops while we are busy ourselves.

Below the adapter. A worker whose event loop is overloaded finds answers late that came in time. That is no outage of
the store, and to treat it as one would make a busy moment worse: every request would go on without its history.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

LATE_SECONDS = 0.02
"""A timer that fires so much later than it was set for tells of a busy loop."""
MOST = 16
"""Times the patience may begin anew: with all else that is late then, some seconds are not what a client notices."""


@contextlib.asynccontextmanager
async def patience(seconds: float) -> AsyncIterator[None]:
    """Bound what happens inside in time.

    :raises TimeoutError: it took longer, and the loop had time to notice the answer
    """
    async with asyncio.timeout(None) as limit:
        watch = _Watch(limit, seconds)
        try:
            yield
        finally:
            watch.timer.cancel()


class _Watch:
    """Looks whether the time is over, and whether that says anything."""

    def __init__(self, limit: asyncio.Timeout, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = limit
        self._seconds = seconds
        self._left = MOST
        self.timer = self._set()

    def _set(self) -> asyncio.TimerHandle:
        due = self._loop.time() + self._seconds
        return self._loop.call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        self._left -= 1
        now = self._loop.time()
        if self._left and now - due > LATE_SECONDS:
            self.timer = self._set()
        else:
            self._limit.reschedule(now)
