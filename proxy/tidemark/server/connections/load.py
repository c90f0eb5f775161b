"""Bounds what all clients of one worker use together: connections, and bytes of bodies that are being read.

``server`` asks it before it accepts a connection; each connection reports what it does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from heapq import heapify, heappop, heappush, heapreplace
from itertools import count
from typing import Protocol

from tidemark.core.errors import ServerBusy, TidemarkError
from tidemark.server.connections.bounds import REFUSING_CONNECTIONS, YOUNG_SECONDS, Bounds

RETRY_SECONDS = 1.0
"""The ``Retry-After`` of clients that are refused at a bound; bodies and answers end all the time."""
SPARE_ENTRIES = 64
"""The number of connections that have ended before the list of idle ones is cleared of them."""
_FULL = (
    "All {bound} connections of this worker are in use. The idlest ones are closed for new ones, and where none is"
    " idle, new ones are refused with 503. For more, raise the limit of open files (ulimit -n) or"
    " server.max_connections."
)
_BODIES = "Request bodies of more than {megabytes} MB are being read at once. Try again in a moment."
QUIET_SECONDS = 10.0
"""The least time between two lines of one kind, as for ``store.degraded``."""


class Refusable(Protocol):
    """A connection whose request can be refused."""

    def refuse(self, error: TidemarkError) -> None:
        """Answer the request that is being read with an error, and close."""
        ...


class Client(Refusable, Protocol):
    """A connection, as the load sees it."""

    is_listed: bool
    """Whether the load has it in its list of idle connections."""

    @property
    def is_fresh(self) -> bool:
        """Whether no request has come yet."""
        ...

    @property
    def idle_since(self) -> float | None:
        """The time since which the client has no request under way, by the loop's clock; None if it has one."""
        ...

    def close_idle(self) -> None:
        """Close; no request is under way."""
        ...


class Bodies:
    """Counts the bytes of bodies that are being read. Mutable: how many, by client."""

    def __init__(self, bound_bytes: int) -> None:
        self._bound = bound_bytes
        self._sizes: dict[Refusable, int] = {}
        self._total = 0

    @property
    def total(self) -> int:
        """The bytes of all clients."""
        return self._total

    def add(self, client: Refusable, size: int) -> None:
        """Count bytes of a client's body; above the bound, refuse the largest body of all."""
        self._sizes[client] = self._sizes.get(client, 0) + size
        self._total += size
        if self._total > self._bound:
            largest = max(self._sizes, key=self._sizes.__getitem__)
            self.release(largest)
            message = _BODIES.format(megabytes=self._bound // 2**20)
            largest.refuse(ServerBusy(message, retry_after=RETRY_SECONDS))

    def release(self, client: Refusable) -> None:
        """Forget a client's body, which is complete or refused."""
        self._total -= self._sizes.pop(client, 0)


class Load:
    """Bounds the connections of one worker. Mutable: the open ones, and whether the server is ending."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.bodies = Bodies(bounds.bodies_bytes)
        self.notices = Notices()
        self.ending = False
        """The server accepts no connection any more, and each request is the last of its connection."""
        self.on_end: Callable[[], None] = lambda: None
        """Called when a connection has ended, so that another one may be accepted."""
        self._idle: list[tuple[float, int, Client]] = []
        """A heap of connections that may be idle, and since when. They are checked only when an idle one is needed, so
        that a request costs nothing here."""
        self._numbers = count()
        self._served: set[Client] = set()
        self._surplus: set[Client] = set()
        self._closing: set[Client] = set()

    @property
    def open(self) -> int:
        """The number of connections that use a descriptor."""
        return len(self._served) + len(self._surplus) + len(self._closing)

    def accept_delay(self) -> float:
        """Return the seconds until another connection may be accepted; infinite if one has to end first."""
        if self.open >= self.bounds.connections + REFUSING_CONNECTIONS:
            if not self._closing and not self._close_idlest():
                return self._seconds_until_closable() or float("inf")
            return float("inf")
        return self._seconds_until_closable() if len(self._served) >= self.bounds.connections else 0.0

    def admit(self) -> bool:
        """Return whether a new connection is within the bound; if one is idle, close the idlest one for it."""
        if len(self._served) < self.bounds.connections:
            return True
        self.notices.warn("connections", _FULL.format(bound=self.bounds.connections))
        return self._close_idlest()

    def begin(self, client: Client, *, surplus: bool) -> None:
        """Count a connection that has been accepted."""
        if surplus:
            self._surplus.add(client)
        else:
            self._served.add(client)

    def end(self, client: Client) -> None:
        self.bodies.release(client)
        self._served.discard(client)
        self._surplus.discard(client)
        self._closing.discard(client)
        self.on_end()

    def list_idle(self, client: Client) -> None:
        """List a connection as one that may be closed for another."""
        since = client.idle_since
        if since is None or client not in self._served:
            return
        client.is_listed = True
        heappush(self._idle, (since, next(self._numbers), client))
        if len(self._idle) > 2 * len(self._served) + SPARE_ENTRIES:
            self._idle = [entry for entry in self._idle if entry[2] in self._served]
            heapify(self._idle)

    def _idlest(self) -> Client | None:
        """Return the connection that has been idle longest."""
        while self._idle:
            since, number, client = self._idle[0]
            idle_since = client.idle_since if client in self._served else None
            if idle_since is None:
                heappop(self._idle)
                client.is_listed = False
            elif idle_since == since:
                return client
            else:
                heapreplace(self._idle, (idle_since, number, client))
        return None

    def _close_idlest(self) -> bool:
        """Close the connection that has been idle longest, and return whether there was one."""
        client = self._idlest()
        if client is None or self._seconds_until_closable():
            return False
        self._close(client)
        return True

    def _seconds_until_closable(self) -> float:
        """Return the seconds until the idlest connection may be closed; 0 also if none is idle."""
        client = self._idlest()
        if client is None or not client.is_fresh:
            return 0.0
        return max(0.0, (client.idle_since or 0.0) + YOUNG_SECONDS - asyncio.get_running_loop().time())

    def _close(self, client: Client) -> None:
        self._served.discard(client)
        self._surplus.discard(client)
        self._closing.add(client)
        client.close_idle()


class Notices:
    """Logs the warnings of one worker. Mutable: when each kind was last logged, and how often it was omitted since."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._log = logging.getLogger("tidemark.serving")
        self._logged_at: dict[str, float] = {}
        self._omitted: dict[str, int] = {}

    def warn(self, kind: str, message: str) -> None:
        """Log a warning, unless its kind has just been logged; the next line of the kind counts the omitted ones."""
        now = self._clock()
        if now - self._logged_at.get(kind, -QUIET_SECONDS) < QUIET_SECONDS:
            self._omitted[kind] = self._omitted.get(kind, 0) + 1
            return
        self._logged_at[kind] = now
        omitted = self._omitted.pop(kind, 0)
        self._log.warning("%s%s", message, f" ({omitted} more since the last such line)" if omitted else "")
