"""Limits the time of work in a thread. A thread cannot be stopped from outside, so the work checks the limit itself.

All strategies use it. Work that is overdue raises ``SummaryOverdue``, and a plainer summary replaces the careful one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from math import inf
from typing import ParamSpec, TypeVar

from tidemark.core.errors import SummaryOverdue
from tidemark.core.ports import Clock
from tidemark.offload.threads import offload

_Item = TypeVar("_Item")
_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

READING_SECONDS = 5.0
"""CPU time for reading the messages of one summary; 100,000 tokens take a tenth of a second."""
_ITEMS = 64
"""Sentences or lines between two checks of the clock."""


class Deadline:
    """Stops work that takes too long, or whose result is no longer wanted.

    :param clock: seconds; by default the CPU time of the working thread, so that a busy machine stops nothing
    """

    def __init__(self, seconds: float = READING_SECONDS, clock: Clock = time.thread_time) -> None:
        self._seconds = seconds
        self._clock = clock
        self._until: float | None = None
        self._abandoned = False

    def check(self) -> None:
        """Check the time limit; the first check starts the clock.

        :raises SummaryOverdue: the time is over
        """
        now = self._clock()
        if self._until is None:
            self._until = now + self._seconds
        if self._abandoned or now > self._until:
            raise SummaryOverdue("the conversation took too long to read")

    def over(self, items: Iterable[_Item]) -> Iterator[_Item]:
        """Yield the items, and check the clock now and then.

        :raises SummaryOverdue: the time is over
        """
        remaining = iter(items)
        while some := list(islice(remaining, _ITEMS)):
            self.check()
            yield from some

    def abandon(self) -> None:
        """Stop the work at its next check; may be called from another thread."""
        self._abandoned = True


class _Unbounded(Deadline):
    """Has no limit: for small work, and for work outside requests."""

    def __init__(self) -> None:
        super().__init__(inf)

    def check(self) -> None:
        """Do nothing."""


UNBOUNDED: Deadline = _Unbounded()


async def in_thread(
    deadline: Deadline,
    work: Callable[_Arguments, _Result],
    *arguments: _Arguments.args,
    **options: _Arguments.kwargs,
) -> _Result:
    """Run work in a thread, and stop it soon after the waiting task was cancelled.

    :raises SummaryOverdue: the work checked ``deadline``, and the time was over
    """
    try:
        return await offload(partial(work, *arguments, **options))
    except asyncio.CancelledError:
        deadline.abandon()
        raise
