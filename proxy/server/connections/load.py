"""What all clients of one worker take together: open connections, and bytes of bodies that are being read."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Protocol

from proxy.core.errors import ServerBusy, TidemarkError
from proxy.server.connections.bounds import REFUSING_CONNECTIONS, YOUNG_SECONDS, Bounds
from proxy.server.connections.notices import Notices

RETRY_SECONDS = 1.0
"""Told to clients that are refused for lack of room; bodies and answers end all the time."""
SPARE_ENTRIES = 64
"""Of connections that have ended, before they are taken out of the list of idle ones."""
_FULL = (
    "All {bound} connections of this worker are in use. The idlest ones are closed for new ones, and where none is"
    " idle, new ones are refused with 503. For more, raise the limit of open files (ulimit -n) or"
    " server.max_connections."
)
_BODIES = "Request bodies of more than {megabytes} MB are being read at once. Try again in a moment."


class Refusable(Protocol):
    """A connection whose request can be refused."""

    def refuse(self, error: TidemarkError) -> None:
        """Answer the request that is being read by an error, and close."""
        ...


class Client(Refusable, Protocol):
    """A connection, as the load sees it."""

    listed: bool
    """Whether the load knows that the client may be idle."""

    @property
    def fresh(self) -> bool:
        """Whether nothing has been asked yet."""
        ...

    @property
    def idle_since(self) -> float | None:
        """Since when nothing is under way for the client, by the loop's clock; None where something is."""
        ...

    def leave(self) -> None:
        """Close, since nothing is under way."""
        ...


class Bodies:
    """The bytes of bodies that are being read. Mutable: how many, by client."""

    def __init__(self, bound: int) -> None:
        self._bound = bound
        self._sizes: dict[Refusable, int] = {}
        self._total = 0

    @property
    def total(self) -> int:
        """Bytes, of all clients."""
        return self._total

    def add(self, client: Refusable, size: int) -> None:
        """Count bytes of a client's body; above the bound the largest body of all is refused."""
        self._sizes[client] = self._sizes.get(client, 0) + size
        self._total += size
        if self._total > self._bound:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            self.release(largest)
            message = _BODIES.format(megabytes=self._bound // 2**20)
            largest.refuse(ServerBusy(message, retry_after=RETRY_SECONDS))

    def release(self, client: Refusable) -> None:
        """Forget a client's body: it is complete, or given up."""
        self._total -= self._sizes.pop(client, 0)


class Load:
    """The connections of one worker. Mutable: which are open, and whether the server is ending."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.bodies = Bodies(bounds.bodies_bytes)
        self.notices = Notices()
        self.leaving = False
        """No connection is taken any more, and each request is the last of its connection."""
        self.ended: Callable[[], None] = lambda: None
        """Called when a connection has ended, so that another one may be taken."""
        self._idle: list[tuple[float, int, Client]] = []
        """A heap of those that may be idle, and since when. What has become of them is looked at when one is needed, so
        that a request costs nothing here."""
        self._numbers = count()
        self._served: set[Client] = set()
        self._surplus: set[Client] = set()
        self._closing: set[Client] = set()

    @property
    def open(self) -> int:
        """Connections that take up a descriptor."""
        return len(self._served) + len(self._surplus) + len(self._closing)

    def delay(self) -> float:
        """Seconds until another connection may be taken; infinite: when one has ended."""
        if self.open >= self.bounds.connections + REFUSING_CONNECTIONS:
            if not self._closing and not self._close_idlest():
                return self._youth() or float("inf")
            return float("inf")
        return self._youth() if len(self._served) >= self.bounds.connections else 0.0

    def surplus(self) -> bool:
        """Whether a new connection has to be refused; an idle one is closed for it, where there is one."""
        if len(self._served) < self.bounds.connections:
            return False
        self.notices.warn("connections", _FULL.format(bound=self.bounds.connections))
        return not self._close_idlest()

    def begin(self, client: Client, *, surplus: bool) -> None:
        """Count a connection that has been taken."""
        if surplus:
            self._surplus.add(client)
        else:
            self._served.add(client)

    def end(self, client: Client) -> None:
        """Forget a connection that has ended."""
        self.bodies.release(client)
        self._served.discard(client)
        self._surplus.discard(client)
        self._closing.discard(client)
        self.ended()

    def list_idle(self, client: Client) -> None:
        """Remember a connection that may be closed for another one."""
        since = client.idle_since
        if since is None or client not in self._served:
            return
        client.listed = True
        heappush(self._idle, (since, next(self._numbers), client))
        if len(self._idle) > 2 * len(self._served) + SPARE_ENTRIES:
            self._idle = [one for one in self._idle if one[2] in self._served]
            heapify(self._idle)

    def _idlest(self) -> Client | None:
        """The connection that has been idle longest."""
        while self._idle:
            since, number, client = self._idle[0]
            idle_since = client.idle_since if client in self._served else None
            if idle_since is None:
                heappop(self._idle)
                client.listed = False
            elif idle_since == since:
                return client
            else:
                heapreplace(self._idle, (idle_since, number, client))
        return None

    def _close_idlest(self) -> bool:
        """Close the connection that has been idle longest, unless something is under way on all of them."""
        client = self._idlest()
        if client is None or self._youth():
            return False
        self._close(client)
        return True

    def _youth(self) -> float:
        """Seconds until the idlest connection may be closed; 0 also where none is idle."""
        client = self._idlest()
        if client is None or not client.fresh:
            return 0.0
        return max(0.0, (client.idle_since or 0.0) + YOUNG_SECONDS - asyncio.get_running_loop().time())

    def _close(self, client: Client) -> None:
        self._served.discard(client)
        self._surplus.discard(client)
        self._closing.add(client)
        client.leave()
