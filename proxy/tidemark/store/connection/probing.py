"""Probes a store that failed: it sends one small write after another, until the store takes one.

``OutageBackoff`` starts it. Requests continue without the store meanwhile. The store's return is noticed within half a
second; while the store is away, each process sends it two commands a second.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable

from tidemark.core.errors import StoreError
from tidemark.store.connection.outage import OutageBackoff

FIRST_SECONDS = 0.25
"""From a failure to the first probe: a restart or a failover takes at least as long."""
LONGEST_SECONDS = 0.5
"""Between two probes: a store that is back is used again within a second, the probe's own time included."""


class Probing:
    """Probes a store while it is not well. Belongs to the event loop that uses it first. Mutable: its one task."""

    def __init__(self, outage: OutageBackoff, probe: Callable[[], Awaitable[None]]) -> None:
        """Nothing is probed yet.

        :param probe: writes one key, reports to ``outage`` how that went, and raises ``StoreError`` if it failed
        """
        self._outage = outage
        self._probe = probe
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def begin(self) -> None:
        """Probe from now on, until the store is well."""
        if not self._closed and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._probe_until_well())

    async def aclose(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _probe_until_well(self) -> None:
        pause = FIRST_SECONDS
        while not self._outage.is_well:
            await asyncio.sleep(pause)
            pause = LONGEST_SECONDS
            with contextlib.suppress(StoreError):
                await self._probe()
