"""The port that carries live events (``features/live_events/events.py``) from all workers to those that have listeners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tidemark.features.live_events.events import LiveEvent


class LiveEventFeed(Protocol):
    """Carries batches of events. Only the newest batches are stored, and only while somebody listens."""

    async def publish(self, events: Sequence[LiveEvent]) -> bool:
        """Add a batch, and return whether somebody listens; otherwise only the compactions that run are stored.

        :raises StoreUnavailable: the store did not answer in time
        """
        ...

    async def newest(self) -> str:
        """Return the id of the newest batch. From now on batches are stored, for a minute after the last call.

        :raises StoreUnavailable: the store did not answer in time
        """
        ...

    async def running(self) -> Sequence[LiveEvent]:
        """Return the events with which the compactions began that still run, at most ten minutes old.

        :raises StoreUnavailable: the store did not answer in time
        """
        ...

    async def read(self, after: str, *, with_it: bool = False) -> Sequence[tuple[str, Sequence[LiveEvent]]]:
        """Return the next batches after an id, oldest first, each with its id; none where there is none.

        :param with_it: begin with the batch of that id
        :raises StoreUnavailable: the store did not answer in time
        """
        ...
