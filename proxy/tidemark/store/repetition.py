"""Repeats a look at the store for as long as a worker runs: the schema has one, as each watch."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class RepeatedLook:
    """Looks again and again. Belongs to one event loop. Mutable: its one task.

    :param look: raises nothing
    :param pause_seconds: between two looks
    """

    def __init__(self, look: Callable[[], Awaitable[object]], pause_seconds: float) -> None:
        self._look = look
        self._pause_seconds = pause_seconds
        self._task: asyncio.Task[None] | None = None

    def start(self, *, after_seconds: float = 0.0) -> None:
        """Look for the first time after so many seconds, and return at once."""
        self._task = asyncio.create_task(self._repeat(after_seconds))

    async def aclose(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _repeat(self, seconds: float) -> None:
        while True:
            await asyncio.sleep(seconds)
            await self._look()
            seconds = self._pause_seconds
