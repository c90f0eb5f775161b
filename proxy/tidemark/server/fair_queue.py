"""A queue that is fair between tenants: each gets an equal share, however many requests of another one wait.

``waiting.py`` queues requests in it. It is start-time fair queueing (Goyal, Vin and Cheng, 1996): a tenant's next
item begins where its last one ended, in a time that passes by the cost of what is served.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heappop, heappush
from itertools import count
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


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
