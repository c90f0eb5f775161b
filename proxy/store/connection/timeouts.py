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
from typing import Any, cast

LATE_SECONDS = 0.02
"""A timer that fires so much later than it was set for tells of a busy loop."""
MOST = 16
"""Times the patience may begin anew: with all else that is late then, some seconds are not what a client notices."""


def _never() -> float:
    return -math.inf


_Wait = tuple[float, int, int]
"""When it is due, the times that it may begin (0 when it has ended), and how often the task was cancelled before."""


class RenewingTimeout:
    """Bounds what a task does inside in time: ``with patience``, by any number of tasks at once.

    Raises ``TimeoutError`` where it took longer, the loop had time to notice the answer, and nobody else had one
    meanwhile. It cancels the task and takes the cancellation back by the rules of ``asyncio.Timeout``.

    Belongs to the event loop that uses it first. State: the waits, all of one length, so that the oldest is due first;
    and the one timer for that. It is left to run when a wait ends, for every request passes through here twice.
    """

    def __init__(self, seconds: float, answered: Callable[[], float] = _never) -> None:
        """:param answered: when the store last answered anybody, by the loop's clock"""
        self._seconds = seconds
        self._answered = answered
        self._waits: dict[asyncio.Task[Any], _Wait] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._begin(asyncio.get_running_loop().time())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._over(kind):
            raise TimeoutError from error

    def _begin(self, now: float) -> None:
        task = asyncio.current_task()
        if task is None or task in self._waits:
            raise RuntimeError("Patience is a task's, and once at a time.")
        due = now + self._seconds
        self._waits[task] = (due, MOST, task.cancelling())
        if self._timer is None:
            self._watch(due)

    def _over(self, kind: type[BaseException] | None) -> bool:
        """End the present task's wait; whether it took too long."""
        if kind is GeneratorExit:  # thrown away with its loop: no task is present
            return False
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        _, left, cancelling = self._waits.pop(task)
        # Where others cancelled the task as well, it is theirs to hear of.
        return not left and task.uncancel() <= cancelling and kind is asyncio.CancelledError

    def _watch(self, due: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        """Called at the time that was the oldest wait's."""
        loop = asyncio.get_running_loop()
        now, self._timer = loop.time(), None
        passed: list[tuple[asyncio.Task[Any], _Wait]] = []
        for task, wait in self._waits.items():
            if wait[0] > max(now, due):  # a timer may come a little early: its clock is coarse
                self._watch(wait[0])
                break
            passed.append((task, wait))
        for task, wait in passed:
            was_due, left, cancelling = wait
            if left > 1 and (now - was_due > LATE_SECONDS or self._answered() > was_due - self._seconds):
                del self._waits[task]  # so that the oldest stays the first
                self._waits[task] = (now + self._seconds, left - 1, cancelling)
                if self._timer is None:
                    self._watch(now + self._seconds)
            elif left:
                loop.call_soon(self._end, task, wait)  # an answer that is there already comes first

    def _end(self, task: asyncio.Task[Any], wait: _Wait) -> None:
        if self._waits.get(task) is wait:
            due, _, cancelling = wait
            self._waits[task] = (due, 0, cancelling)
            task.cancel()
