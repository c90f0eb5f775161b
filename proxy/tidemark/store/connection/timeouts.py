"""Bounds the wait for an answer, by a clock that stops while this process or the store is busy.

``node.py`` uses it for every call. An answer may come in time, and an overloaded event loop reads it late. A store that
answers other calls is slow, but not away. If such a delay counted as an outage, a busy moment would become worse:
every request would continue without its history.

It stands in for ``asyncio.timeout``, which has no such clock. One timer for all waits of a length, in place of one
for each, saves 60,000 of the 1,117,000 instructions of a small request, 5 %
(``docs/adr/0016-timeouts-of-the-store.md``).
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from types import TracebackType
from typing import Any, cast

LATE_SECONDS = 0.02
"""A timer that fires so much later than it was set for shows a busy loop."""
MOST = 16
"""How often one wait may run. 16 times 0.25 s are 4 s, which a client hardly notices if all else is late too."""


def _never() -> float:
    return -math.inf


_Wait = tuple[float, int, int]
"""The time when a wait is due, its remaining runs, and the cancellations of the task before it.

No runs remain for a wait that has ended. Waits are tuples, since a request makes two of them.
"""


class RenewingTimeout:
    """Bounds in time what a task does inside of ``with``. Any number of tasks may be inside.

    Raises ``TimeoutError`` if it took longer, the loop had time to notice the answer, and the store answered no
    other call meanwhile. It cancels the task and takes the cancellation back by the rules of ``asyncio.Timeout``.

    Belongs to the event loop that uses it first. Mutable: the waits, all of one length, so that the oldest is due
    first; and the one timer for that. The timer stays when a wait ends, because every request uses it twice.
    """

    def __init__(self, seconds: float, last_answer: Callable[[], float] = _never) -> None:
        """:param last_answer: returns when the store last answered any call, by the loop's clock"""
        self._seconds = seconds
        self._last_answer = last_answer
        self._waits: dict[asyncio.Task[Any], _Wait] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._begin(asyncio.get_running_loop().time())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._end_wait(kind):
            raise TimeoutError from error

    def _begin(self, now: float) -> None:
        task = asyncio.current_task()
        if task is None or task in self._waits:
            raise RuntimeError("A task can be inside of a RenewingTimeout once at a time.")
        due = now + self._seconds
        self._waits[task] = (due, MOST, task.cancelling())
        if self._timer is None:
            self._watch(due)

    def _end_wait(self, kind: type[BaseException] | None) -> bool:
        """End the present task's wait, and return whether it took too long."""
        if kind is GeneratorExit:  # thrown away with its loop: no task is present
            return False
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        _, runs, cancelling = self._waits.pop(task)
        # A cancellation by other code is passed on, even if both came together.
        return not runs and task.uncancel() <= cancelling and kind is asyncio.CancelledError

    def _watch(self, due: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(due, self._check, due)

    def _check(self, due: float) -> None:
        """Called when the oldest wait was due."""
        loop = asyncio.get_running_loop()
        now, self._timer = loop.time(), None
        overdue: list[tuple[asyncio.Task[Any], _Wait]] = []
        for task, wait in self._waits.items():
            if wait[0] > max(now, due):  # a timer may come a little early: its clock is coarse
                self._watch(wait[0])
                break
            overdue.append((task, wait))
        for task, wait in overdue:
            was_due, runs, cancelling = wait
            if runs > 1 and (now - was_due > LATE_SECONDS or self._last_answer() > was_due - self._seconds):
                del self._waits[task]  # so that the oldest stays the first
                self._waits[task] = (now + self._seconds, runs - 1, cancelling)
                if self._timer is None:
                    self._watch(now + self._seconds)
            elif runs:
                loop.call_soon(self._cancel, task, wait)  # an answer that is there already comes first

    def _cancel(self, task: asyncio.Task[Any], wait: _Wait) -> None:
        if self._waits.get(task) is wait:
            due, _, cancelling = wait
            self._waits[task] = (due, 0, cancelling)
            task.cancel()
