"""A time limit for work in a thread, which nothing can end from outside: the work asks whether it is over.

Below all strategies. What is over raises ``SummaryOverdue``, and a plainer summary takes the place of the careful one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from math import inf
from typing import ParamSpec, TypeVar

from proxy.core.errors import SummaryOverdue

_Item = TypeVar("_Item")
_Given = ParamSpec("_Given")
_Done = TypeVar("_Done")

READING_SECONDS = 5.0
"""CPU time that one summary's text may take to be read; 100,000 tokens take a tenth of a second."""
_ITEMS = 64
"""Sentences or lines between two looks at the clock."""
Clock = Callable[[], float]


class Deadline:
    """Ends a piece of work when it took too long, or when nobody waits for it any more.

    :param clock: in seconds; by default the CPU time of the thread that works, so that a busy machine ends nothing
    """

    def __init__(self, seconds: float = READING_SECONDS, clock: Clock = time.thread_time) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until: float | None = None
        self._abandoned = False

    def check(self) -> None:
        """Ask whether the time is over; the first question starts it.

        :raises SummaryOverdue: it is
        """
        now = self._clock()
        if self._until is None:
            self._until = now + self._seconds
        if self._abandoned or now > self._until:
            raise SummaryOverdue("the conversation took too long to read")

    def over(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """The items, with a look at the clock now and then.

        :raises SummaryOverdue: the time is over
        """
        for number, item in enumerate(items):
            if number % _ITEMS == 0:
                self.check()
            yield item

    def abandon(self) -> None:
        """End the work at its next question; may be called from another thread."""
        self._abandoned = True


class _Unbounded(Deadline):
    """No limit: for work that is small, or that nobody waits for."""

    def __init__(self) -> None:
        super().__init__(inf)

    def check(self) -> None:
        """Never over."""


UNBOUNDED: Deadline = _Unbounded()


async def in_thread(
    deadline: Deadline, work: Callable[_Given, _Done], *given: _Given.args, **named: _Given.kwargs
) -> _Done:
    """Do work in a thread, and have it end soon after the task that waits for it was cancelled.

    :raises SummaryOverdue: the work asked ``deadline``, and it was over
    """
    try:
        return await asyncio.to_thread(work, *given, **named)
    except asyncio.CancelledError:
        deadline.abandon()
        raise
