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
    """Bounds what the present task does inside in time: ``with Patience(seconds)``.

    Raises ``TimeoutError`` where it took longer, the loop had time to notice the answer, and nobody else had one
    meanwhile. It cancels the task and takes the cancellation back by the rules of ``asyncio.Timeout``, with the one
    timer that looks; every request passes through it twice.
    """

    __slots__ = ("_answered", "_cancelled", "_cancelling", "_left", "_loop", "_seconds", "_task", "_timer")

    def __init__(self, seconds: float, answered: Callable[[], float] = _never) -> None:
        """:param answered: when the store last answered anybody, by the loop's clock"""
        self._seconds = seconds
        self._answered = answered
        self._left = MOST
        self._cancelled = False
        self._loop = asyncio.get_running_loop()

    def __enter__(self) -> None:
        task = asyncio.current_task(self._loop)
        if task is None:
            raise RuntimeError("Patience is a task's.")
        self._task = task
        self._cancelling = task.cancelling()
        self._wait()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()
        # Where others cancelled the task as well, it is theirs to hear of.
        if self._cancelled and self._task.uncancel() <= self._cancelling and kind is asyncio.CancelledError:
            raise TimeoutError from error

    def _wait(self) -> None:
        due = self._loop.time() + self._seconds
        self._timer: asyncio.Handle = self._loop.call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        self._left -= 1
        now = self._loop.time()
        if self._left and (now - due > LATE_SECONDS or self._answered() > due - self._seconds):
            self._wait()
        else:
            self._timer = self._loop.call_soon(self._end)  # an answer that is there already comes first

    def _end(self) -> None:
        self._cancelled = True
        self._task.cancel()
