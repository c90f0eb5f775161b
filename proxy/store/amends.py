"""Amends: what a failed call may have left behind in the store is put right as soon as the store answers again.

Beside the adapter. A command that was given up may still be done, late: a lease that nobody holds, a turn that its
client was told is lost. Each is undone by a call that may be repeated.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from proxy.core.errors import StoreError

PAUSE_SECONDS = 0.25
"""Between two tries; while the store rests, a try costs nothing."""
LONGEST_SECONDS = 600.0
"""After which it is given up: leases have run out long before."""
MOST = 10_000
"""Under way at once: what is left behind comes from requests that were under way when the store failed."""


Work = Callable[[], Awaitable[object]]
"""Raises ``StoreError`` where it is to be done again; to do it twice changes nothing."""


class Amends:
    """Puts things right in tasks of its own. Belongs to the event loop that uses it first.

    Its state: what is owed, each with what it is about, and the tasks.
    """

    def __init__(self) -> None:
        self._owed: dict[Work, str] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def owe(self, about: str, work: Work) -> None:
        """Do it when the store answers.

        :param about: what must not be gone on with before
        """
        if len(self._owed) < MOST:
            self._owed[work] = about
            task = asyncio.create_task(self._follow(work))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def settle(self, about: str) -> None:
        """Do now what is owed about something.

        :raises StoreError: the store does not answer yet
        """
        if self._owed:
            for work in [one for one, of in self._owed.items() if of == about]:
                await work()
                self._owed.pop(work, None)

    async def aclose(self) -> None:
        """Leave what is not done: it runs out by itself."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _follow(self, work: Work) -> None:
        until = asyncio.get_running_loop().time() + LONGEST_SECONDS
        while work in self._owed and asyncio.get_running_loop().time() < until:
            try:
                await work()
            except StoreError:
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                break
        self._owed.pop(work, None)
