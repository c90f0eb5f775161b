"""Gives the live events of all workers to whoever listens to this one.

``features/live_events/feature.py`` writes them as a stream. A task reads the feed while there are listeners, and only
then. A listener that does not take its events in time is dropped, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from tidemark.core.errors import ServerBusy, StoreError
from tidemark.core.frozen import frozen
from tidemark.features.conversations.access import may_hear
from tidemark.features.live_events.events import LiveEvent, LiveEventPosition
from tidemark.features.live_events.store import RedisLiveEvents

MAX_LISTENERS = 100
"""The most listeners of one worker."""
OPERATOR_PLACES = 20
"""Of these, places for the operator alone: nobody's credential, or lack of one, takes them."""
OWNER_PLACES = 40
"""The most listeners of one owner. All clients without a credential are one."""
MAX_PAGES = 64
"""Pages of events that wait for one listener, before it is dropped."""
POLL_SECONDS = 0.2
BUSY_SECONDS = 10.0
"""When a listener that was refused may try again."""


@frozen
class PlacedEvent:
    """A live event with its place among all events, from which a listener can go on."""

    position: LiveEventPosition | None
    """None for a compaction that had begun before its listener came."""
    event: LiveEvent


class Listening:
    """What one listener gets. Its state is the pages that it has not taken.

    :param owner: whose events it gets; None for the operator, who gets all
    :param on_end: called when the listener is dropped, or when the process ends
    """

    def __init__(self, owner: str | None, on_end: Callable[[], None]) -> None:
        self.owner = owner
        self.on_end = on_end
        self.is_dropped = False
        """Whether it took too few events."""
        self._pages: asyncio.Queue[Sequence[PlacedEvent]] = asyncio.Queue(MAX_PAGES)

    async def next(self, seconds: float) -> Sequence[PlacedEvent]:
        """Return the next events; none if nothing happened for so long."""
        try:
            async with asyncio.timeout(seconds):
                return await self._pages.get()
        except TimeoutError:
            return ()

    def offer_running(self, events: Sequence[LiveEvent]) -> None:
        """Add the compactions that run, of those that this listener may see, before all batches."""
        page = [PlacedEvent(None, event) for event in events if may_hear(event.owner, self.owner)]
        if page:
            self._pages.put_nowait(page)

    def offer(self, batch: str, events: Sequence[LiveEvent], *, after: int = -1) -> bool:
        """Add the events of a batch that this listener may see; False if it has taken too few before.

        :param after: the number in the batch of the last event that it had
        """
        page = [
            PlacedEvent(LiveEventPosition(batch, number), event)
            for number, event in enumerate(events)
            if number > after and may_hear(event.owner, self.owner)
        ]
        try:
            if page:
                self._pages.put_nowait(page)
        except asyncio.QueueFull:
            return False
        return True


class LiveEventHub:
    """Reads the feed for the listeners of this worker.

    The mutable state is the listeners, the id of the newest batch that they were given, and the task that reads.
    """

    def __init__(self, feed: RedisLiveEvents) -> None:
        self._feed = feed
        self._listeners: set[Listening] = set()
        self._newest = ""
        self._lock = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None

    async def listen(
        self, owner: str | None, on_end: Callable[[], None], after: LiveEventPosition | None = None
    ) -> Listening:
        """Add a listener. It first gets the beginnings of the compactions that run, then all that happens from now on.

        :param after: the last event that the listener had before. It then gets no beginnings, but the events since
            that one, if they are still stored
        :raises ServerBusy: this worker, or this owner, has as many listeners as it may have
        :raises StoreUnavailable: the store did not answer in time
        """
        listening = Listening(owner, on_end)
        async with self._lock:
            self._check_places(owner)
            if self._task is None or self._task.done():
                self._newest = await self._feed.newest()
            else:
                await self._read()
            if after is None:
                listening.offer_running(await self._feed.running())
            else:
                await self._replay(listening, after)
            self._listeners.add(listening)
            if self._task is None or self._task.done():
                self._task = asyncio.create_task(self._read_while_heard())
        return listening

    def _check_places(self, owner: str | None) -> None:
        """Refuse a listener beyond the bounds; see ``listen``."""
        owners = [listening.owner for listening in self._listeners]
        tenants = len(owners) - owners.count(None)
        is_full = len(owners) >= MAX_LISTENERS
        if owner is not None:
            is_full |= tenants >= MAX_LISTENERS - OPERATOR_PLACES or owners.count(owner) >= OWNER_PLACES
        if is_full:
            message = f"{len(owners)} listeners are connected to this worker; try again later."
            raise ServerBusy(message, retry_after=BUSY_SECONDS)

    def leave(self, listening: Listening) -> None:
        self._listeners.discard(listening)

    def end(self) -> None:
        """End all listeners, because the process ends."""
        for listening in [*self._listeners]:
            listening.on_end()

    async def aclose(self) -> None:
        """End all listeners and stop reading."""
        self.end()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _read_while_heard(self) -> None:
        while self._listeners:
            await asyncio.sleep(POLL_SECONDS)
            with suppress(StoreError):  # the next reading goes on from the same batch
                async with self._lock:
                    await self._read()

    async def _read(self) -> None:
        """Give the listeners what is new."""
        while batches := await self._feed.read(self._newest):
            for batch, events in batches:
                self._newest = batch
                for listening in [*self._listeners]:
                    if not listening.offer(batch, events):
                        self.leave(listening)
                        listening.is_dropped = True
                        listening.on_end()

    async def _replay(self, listening: Listening, after: LiveEventPosition) -> None:
        """Offer what came after an event, up to what the other listeners have."""
        batches = await self._feed.read(after.batch, with_it=True)
        while batches:
            for batch, events in batches:
                if _order(batch) > _order(self._newest):
                    return
                if not listening.offer(batch, events, after=after.number if batch == after.batch else -1):
                    return  # it gets the newest ones from here on; the older ones are too many
            batches = await self._feed.read(batches[-1][0])


def _order(batch: str) -> tuple[int, int]:
    """Return the place of a batch's id among all of them."""
    milliseconds, _, number = batch.partition("-")
    return int(milliseconds), int(number)
