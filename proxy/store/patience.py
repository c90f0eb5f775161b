"""Patience: how long an answer of the store is waited for, by a clock that stops while we are busy, or the store is.

Below the adapter. A worker whose event loop is overloaded finds answers late that came in time, and a store that
answers others is slow, but not gone. To treat that as an outage would make a busy moment worse: every request would go
on without its history.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncIterator, Callable

LATE_SECONDS = 0.02
"""A timer that fires so much later than it was set for tells of a busy loop."""
MOST = 16
"""Times the patience may begin anew: with all else that is late then, some seconds are not what a client notices."""


@contextlib.asynccontextmanager
async def patience(seconds: float, answered: Callable[[], float] = lambda: -math.inf) -> AsyncIterator[None]:
    """Bound what happens inside in time.

    :param answered: when the store last answered anybody, by the loop's clock
    :raises TimeoutError: it took longer, the loop had time to notice the answer, and nobody else had one meanwhile
    """
    async with asyncio.timeout(None) as limit:
        watch = _Watch(limit, seconds, answered)
        try:
            yield
        finally:
            watch.timer.cancel()


class _Watch:
    """Looks whether the time is over, and whether that says anything."""

    def __init__(self, limit: asyncio.Timeout, seconds: float, answered: Callable[[], float]) -> None:
        self._loop = asyncio.get_running_loop()
        self._limit = limit
        self._seconds = seconds
        self._answered = answered
        self._left = MOST
        self.timer = self._set()

    def _set(self) -> asyncio.TimerHandle:
        due = self._loop.time() + self._seconds
        return self._loop.call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        self._left -= 1
        now = self._loop.time()
        if self._left and (now - due > LATE_SECONDS or self._answered() > due - self._seconds):
            self.timer = self._set()
        else:
            self._limit.reschedule(now)
