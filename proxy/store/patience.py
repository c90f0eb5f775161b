"""Patience: how long an answer of the store is waited for, by a clock that stops while we are busy, or the store is.

Below the adapter. A worker whose event loop is overloaded finds answers late that came in time, and a store that
answers others is slow, but not gone. To treat that as an outage would make a busy moment worse: every request would go
on without its history.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from types import TracebackType

LATE_SECONDS = 0.02
"""A timer that fires so much later than it was set for tells of a busy loop."""
MOST = 16
"""Times the patience may begin anew: with all else that is late then, some seconds are not what a client notices."""


def _never() -> float:
    return -math.inf


class Patience:
    """Bounds what happens inside in time: ``async with Patience(seconds)``.

    Raises ``TimeoutError`` where it took longer, the loop had time to notice the answer, and nobody else had one
    meanwhile. A class, and not a generator, as every request passes through it twice.
    """

    __slots__ = ("_answered", "_left", "_limit", "_loop", "_seconds", "_timer")

    def __init__(self, seconds: float, answered: Callable[[], float] = _never) -> None:
        """:param answered: when the store last answered anybody, by the loop's clock"""
        self._seconds = seconds
        self._answered = answered
        self._left = MOST
        self._limit = asyncio.Timeout(None)
        self._loop = asyncio.get_running_loop()

    async def __aenter__(self) -> None:
        await self._limit.__aenter__()
        self._timer = self._set()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        await self._limit.__aexit__(kind, error, trace)

    def _set(self) -> asyncio.TimerHandle:
        due = self._loop.time() + self._seconds
        return self._loop.call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        self._left -= 1
        now = self._loop.time()
        if self._left and (now - due > LATE_SECONDS or self._answered() > due - self._seconds):
            self._timer = self._set()
        else:
            self._limit.reschedule(now)
