"""A queue in which requests wait for something scarce. It is fair between tenants and has a bound.

``admission.py`` lets requests wait in it for a place, and ``permits.py`` for a permit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from tidemark.core.errors import Overloaded
from tidemark.core.events import ShedReason
from tidemark.server.fair_queue import FairQueue

Ticket = asyncio.Future[None]
"""A request that waits: done when it is called, failed when it is refused."""


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
