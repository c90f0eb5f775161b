"""The pool of the HTTP client. A request goes over an idle connection to its server, or over a new one.

The wire lane calls it; it uses all other modules of the package. The number of connections has no limit: each carries
one exchange, and a stream could wait for minutes if it had to wait for the end of another one. A new one goes to the
first address that answers (RFC 8305): a server with a dead IPv6 address must not delay every connection. No other
module imports aiohappyeyeballs.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import aiohappyeyeballs

from tidemark.core.bounded import BoundedCache
from tidemark.core.ports import Upload
from tidemark.upstream.http1.answer import HttpAnswer
from tidemark.upstream.http1.connection import ConnectionState, UpstreamConnection
from tidemark.upstream.http1.failures import ConnectTimedOut
from tidemark.upstream.http1.target import Origin, head_of, target_of

LOOKUP_SECONDS = 10.0
"""How long the addresses of a name are cached: streams open many connections at once."""
CACHED_LOOKUPS = 256
SECOND_ADDRESS_SECONDS = 0.25
"""The next address is tried after so long, beside one that has not answered yet (RFC 8305, section 8)."""
HostPort = tuple[str, int]
Addresses = list[aiohappyeyeballs.AddrInfoType]
P = TypeVar("P", bound=asyncio.BaseProtocol)


class Pool:
    """All connections of one event loop. Mutable: the open ones, and since when each idle one is.

    :param keepalive_seconds: how long it keeps an idle connection
    :param connect_seconds: for name lookup, TCP and TLS together
    """

    def __init__(self, *, keepalive_seconds: float, connect_seconds: float) -> None:
        self._keepalive_seconds = keepalive_seconds
        self._connect_seconds = connect_seconds
        self._loop = asyncio.get_running_loop()
        self._opener = Opener()
        self._open: set[UpstreamConnection] = set()
        self._idle: dict[Origin, deque[tuple[float, UpstreamConnection]]] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __repr__(self) -> str:
        active = sum(connection.state is ConnectionState.ACTIVE for connection in self._open)
        return f"<Pool with {active} active and {len(self._open) - active} other connections>"

    async def ask(
        self,
        method: str,
        url: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes | Upload | None,
        due: float,
        *,
        fresh: bool = False,
    ) -> HttpAnswer:
        target = target_of(method, url)
        if isinstance(body, Upload):
            head = head_of(target, headers, body.length, chunked=body.length is None)
        else:
            head = head_of(target, headers, None if body is None else len(body))
        idle = None if fresh else self._take_idle(target.origin)
        connection = idle or await self._open_connection(target.origin, due)
        return await connection.ask(head, body, due, bodiless=method == "HEAD")

    async def aclose(self) -> None:
        self._closed = True
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
        for connection in tuple(self._open):
            connection.abort()
        self._idle.clear()
        await asyncio.sleep(0)  # the loop closes the sockets in its next turn

    def _take_idle(self, origin: Origin) -> UpstreamConnection | None:
        """Take the connection that became idle last, so that those beyond what is needed grow old."""
        idle = self._idle.get(origin)
        while idle:
            since, connection = idle.pop()
            if not connection.is_available:
                continue
            if self._loop.time() - since < self._keepalive_seconds:
                return connection
            connection.abort()
        return None

    async def _open_connection(self, origin: Origin, due: float) -> UpstreamConnection:
        make = partial(UpstreamConnection, self._loop, origin, self._add_idle, self._open.discard)
        connect_due = self._loop.time() + self._connect_seconds
        try:
            async with asyncio.timeout_at(min(connect_due, due)):
                connection = await self._opener.connect(origin, make)
        except TimeoutError as error:
            if connect_due < due:
                raise ConnectTimedOut(f"no connection within {self._connect_seconds:g} s") from error
            raise
        if self._closed:
            connection.abort()
        elif connection.is_available:
            self._open.add(connection)
        return connection

    def _add_idle(self, connection: UpstreamConnection) -> None:
        if self._closed:
            connection.abort()
            return
        idle = self._idle.get(connection.origin)
        if idle is None:
            idle = self._idle[connection.origin] = deque()
        idle.append((self._loop.time(), connection))
        if self._sweep_timer is None:
            self._sweep_timer = self._loop.call_later(self._keepalive_seconds, self._sweep)

    def _sweep(self) -> None:
        """Close connections that have been idle for too long, and run again when the next one will have been."""
        self._sweep_timer = None
        now, oldest = self._loop.time(), None
        for origin, idle in tuple(self._idle.items()):
            while idle and (not idle[0][1].is_available or now - idle[0][0] >= self._keepalive_seconds):
                idle.popleft()[1].abort()
            if not idle:
                del self._idle[origin]
            elif oldest is None or idle[0][0] < oldest:
                oldest = idle[0][0]
        if oldest is not None:
            self._sweep_timer = self._loop.call_at(oldest + self._keepalive_seconds, self._sweep)


class AddressCache:
    """Looks up names, once for all callers at a time. Mutable: cached addresses, and lookups under way."""

    def __init__(self) -> None:
        self._cached: BoundedCache[HostPort, tuple[float, Addresses]] = BoundedCache(CACHED_LOOKUPS)
        self._lookups: dict[HostPort, asyncio.Task[Addresses]] = {}

    async def addresses_of(self, server: HostPort) -> Addresses:
        """Return the addresses of a host and port, each time beginning with another one.

        :raises OSError: the name is unknown
        """
        loop = asyncio.get_running_loop()
        expires, addresses = self._cached.get(server) or (0.0, [])
        if not addresses or expires <= loop.time():
            lookup = self._lookups.get(server)
            if lookup is None:
                lookup = self._lookups[server] = loop.create_task(_look_up(loop, server))
                lookup.add_done_callback(lambda _: self._lookups.pop(server, None))
            addresses = await asyncio.shield(lookup)  # a caller who leaves must not end it for the others
            self._cached.put(server, (loop.time() + LOOKUP_SECONDS, addresses))
        rotated = addresses.copy()
        addresses.append(addresses.pop(0))
        return rotated


class Opener:
    """Opens connections. Mutable: cached addresses, and the TLS context once it is needed."""

    def __init__(self) -> None:
        self._addresses = AddressCache()
        self._tls_context: ssl.SSLContext | None = None

    async def connect(self, origin: Origin, make: Callable[[float], P]) -> P:
        """Connect to the first of a server's addresses that answers, TLS included.

        Both event loops set ``TCP_NODELAY`` themselves.

        :param make: makes the protocol from the seconds of a round trip, as the first packets took them
        :raises OSError: no address answered; the reason of the last one
        """
        loop = asyncio.get_running_loop()
        addresses = await self._addresses.addresses_of((origin.host, origin.port))
        context = await self._load_tls_context() if origin.tls else None
        # A certificate names hosts without the dot that ends an absolute name.
        server_name = origin.host.rstrip(".") if origin.tls else None
        while True:
            began = time.monotonic()  # uvloop's own clock counts in milliseconds
            try:
                sock = await aiohappyeyeballs.start_connection(
                    addresses, happy_eyeballs_delay=SECOND_ADDRESS_SECONDS, interleave=1, loop=loop
                )
                factory = partial(make, time.monotonic() - began)
                _, protocol = await loop.create_connection(factory, sock=sock, ssl=context, server_hostname=server_name)
            except (OSError, RuntimeError) as error:  # uvloop has both for a connection that is refused
                aiohappyeyeballs.pop_addr_infos_interleave(addresses, 1)
                if not addresses:
                    # The kernel's own TimeoutError does not count as one here: no time limit of ours is over.
                    raise ConnectionError(str(error)) from error
            else:
                return protocol

    async def _load_tls_context(self) -> ssl.SSLContext:
        if self._tls_context is None:
            self._tls_context = await asyncio.to_thread(tls_context)
        return self._tls_context


async def _look_up(loop: asyncio.AbstractEventLoop, server: HostPort) -> Addresses:
    host, port = server
    try:  # an address needs no lookup, hence no thread
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        addresses = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    if not addresses:
        raise OSError(f"no address of {host}")
    return list(addresses)


def tls_context() -> ssl.SSLContext:
    """Make a context that checks certificates and host names as OpenSSL is configured.

    ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` apply. Reading the authorities takes some 20 ms: call it once, in a thread.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
