"""Writes figures to the store from a task of its own, and waits while the store does not answer.

The features that add up figures of requests use it, so that no request waits for their writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tidemark.core.errors import StoreError

RETRY_SECONDS = 1.0
CLOSE_SECONDS = 2.0
"""The time that the end of the process waits for figures to be written."""


class PatientWriter:
    """Writes until nothing waits. Its state is the task and the timer that begins it.

    :param write: writes all that waits, or raises ``StoreError`` and leaves it for the next try
    :param has_more: whether anything waits
    :param pause_seconds: between the first figure that waits and the write
    """

    def __init__(
        self, write: Callable[[], Awaitable[None]], has_more: Callable[[], bool], pause_seconds: float = 0.0
    ) -> None:
        self._write = write
        self._has_more = has_more
        self._pause = pause_seconds
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Write soon, unless that is under way."""
        if not self._pause:
            self._start()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._start)

    async def settle(self) -> None:
        """Write now what waits; during an outage it goes on waiting."""
        with suppress(StoreError):
            await self._write()

    async def aclose(self) -> None:
        """Write what waits, as far as a short time allows."""
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await self.settle()

    def _start(self) -> None:
        self._timer = None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._until_done())

    async def _until_done(self) -> None:
        while self._has_more():
            try:
                await self._write()
            except StoreError:
                await asyncio.sleep(RETRY_SECONDS)
            else:
                if self._pause and self._has_more():  # it came meanwhile, and would make a write of its own each time
                    await asyncio.sleep(self._pause)
