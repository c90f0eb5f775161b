"""A queue in which requests wait for something scarce. It is fair between tenants and has a bound.

``admission.py`` lets requests wait in it for a place, and ``permits.py`` for a permit.

The queue is start-time fair queueing (Goyal, Vin and Cheng, 1996): a tenant's next item begins where its last one
ended, in a time that passes by the cost of what is served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

from tidemark.core.errors import Overloaded
from tidemark.core.events import ShedReason

Ticket = asyncio.Future[None]
"""A request that waits: done when it is called, failed when it is refused."""
T = TypeVar("T", bound=Hashable)


class WaitingLine:
    """A line of requests. Mutable: those that wait.

    :param most: the most that wait at once
    :param refusal: makes the error for a request that may not wait on
    :param give_back: called if a request was called and has ended just then
    """

    def __init__(self, most: float, refusal: Callable[[ShedReason], Overloaded], give_back: Callable[[], None]) -> None:
        self._most = most
        self._refusal = refusal
        self._give_back = give_back
        self._queue: FairQueue[Ticket] = FairQueue()

    def __len__(self) -> int:
        return len(self._queue)

    @property
    def is_full(self) -> bool:
        """Whether no further request may wait."""
        return len(self._queue) >= self._most

    async def wait(self, tenant: bytes, *, cost: float = 1.0, seconds: float | None = None) -> None:
        """Wait until the request is called.

        :param cost: how much of its tenant's share it takes, in any unit
        :param seconds: the longest time; None for no bound
        :raises Overloaded: too many wait, or it was not called in time
        """
        if self.is_full:
            self._make_room(tenant)
        loop = asyncio.get_running_loop()
        ticket: Ticket = loop.create_future()
        self._queue.put(tenant, ticket, cost)
        timer = None if seconds is None else loop.call_later(seconds, self._refuse, tenant, ticket, "waited")
        try:
            await ticket
        except asyncio.CancelledError:
            is_called = not self._queue.discard(tenant, ticket) and not ticket.cancelled()
            if is_called and ticket.exception() is None:
                self._give_back()
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def call_next(self) -> bool:
        """Call the request that is next, and return whether there was one."""
        while self._queue:
            ticket = self._queue.pop()
            if ticket is not None and not ticket.done():  # done is one whose task was cancelled just now
                ticket.set_result(None)
                return True
        return False

    def _make_room(self, tenant: bytes) -> None:
        """Refuse the newest request of the tenant that has the most waiting.

        :raises Overloaded: that is the request of ``tenant`` that has just come
        """
        if not self._queue:
            raise self._refusal("waiting")
        busiest, count = self._queue.longest()
        if count <= self._queue.count(tenant) + 1:
            raise self._refusal("waiting")
        self._refuse(busiest, self._queue.newest(busiest), "waiting")

    def _refuse(self, tenant: bytes, ticket: Ticket, reason: ShedReason) -> None:
        if self._queue.discard(tenant, ticket) and not ticket.done():
            ticket.set_exception(self._refusal(reason))


class FairQueue(Generic[T]):
    """Items of tenants, in a fair order. Mutable: what waits, and until when each tenant has been served."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, bytes, T]] = []
        self._waiting: dict[bytes, dict[T, None]] = {}
        """By tenant what waits, oldest first; the heap has discarded items as well."""
        self._ends: dict[bytes, float] = {}
        """By tenant where its newest item ends. Emptied with the queue."""
        self._now = 0.0
        self._numbers = count()
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def put(self, tenant: bytes, item: T, cost: float = 1.0) -> None:
        """Add an item.

        :param item: it is in the queue once at most
        :param cost: how much of its tenant's share it takes, in any unit
        """
        start = max(self._now, self._ends.get(tenant, 0.0))
        self._ends[tenant] = start + cost
        self._waiting.setdefault(tenant, {})[item] = None
        self._length += 1
        heappush(self._heap, (start, next(self._numbers), tenant, item))

    def pop(self) -> T | None:
        """Remove and return the item that is next; None if nothing waits."""
        while self._heap:
            start, _, tenant, item = heappop(self._heap)
            self._now = start
            if self.discard(tenant, item):
                return item
        return None

    def discard(self, tenant: bytes, item: T) -> bool:
        """Remove an item, and return whether it was in the queue."""
        items = self._waiting.get(tenant)
        if items is None or item not in items:
            return False
        del items[item]
        self._length -= 1
        if not items:
            del self._waiting[tenant]
        if not self._length:
            self._heap.clear()
            self._ends.clear()
            self._now = 0.0
        return True

    def longest(self) -> tuple[bytes, int]:
        """Return the tenant with the most items, and how many those are.

        :raises ValueError: nothing waits
        """
        tenant, items = max(self._waiting.items(), key=lambda entry: len(entry[1]))
        return tenant, len(items)

    def count(self, tenant: bytes) -> int:
        """Return how many items of a tenant wait."""
        return len(self._waiting.get(tenant, ()))

    def newest(self, tenant: bytes) -> T:
        """Return the item of a tenant that came last.

        :raises KeyError: nothing of it waits
        """
        return next(reversed(self._waiting[tenant]))
