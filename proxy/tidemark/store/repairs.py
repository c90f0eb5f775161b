"""Repairs what failed calls may have left behind in the store, as soon as it answers again.

The store may still run a command whose caller has given up: then a lease has no owner, or a turn is stored
although its client heard that it is lost. Each repair is a call that may be repeated. ``turns.py`` registers them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tidemark.core.errors import StoreError

PAUSE_SECONDS = 0.25
"""Between two tries; during an outage a try costs nothing."""
LONGEST_SECONDS = 600.0
"""After this a repair is given up: leases have run out long before."""
MOST = 10_000
"""Repairs under way at once: they come from requests that were under way when the store failed."""


Work = Callable[[], Awaitable[object]]
"""Raises ``StoreError`` if it is to be done again; doing it twice changes nothing."""


class Repairs:
    """Makes repairs in tasks of its own. It belongs to the event loop that uses it first.

    Its state is the open repairs, each with its subject, and their tasks.
    """

    def __init__(self) -> None:
        self._open: dict[Work, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def owe(self, subject: str, work: Work) -> None:
        """Make a repair when the store answers.

        :param subject: what must wait for the repair, such as a family
        """
        if len(self._open) < MOST:
            self._open[work] = subject
            task = asyncio.create_task(self._follow(work))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def settle(self, subject: str) -> None:
        """Make the repairs of a subject now.

        :raises StoreError: the store does not answer yet
        """
        if self._open:
            for work in [work for work, of in self._open.items() if of == subject]:
                await work()
                self._open.pop(work, None)

    async def aclose(self) -> None:
        """Stop; what was not repaired expires by itself."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, work: Work) -> None:
        until = asyncio.get_running_loop().time() + LONGEST_SECONDS
        while work in self._open and asyncio.get_running_loop().time() < until:
            try:
                await work()
            except StoreError:
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                break
        self._open.pop(work, None)
