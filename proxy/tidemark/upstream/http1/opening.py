"""Opens connections: it looks up a name, connects to the first address that answers, and starts TLS.

Second step of the HTTP client, where no idle connection is left. The only module that imports aiohappyeyeballs
(RFC 8305): a server with a dead IPv6 address must not delay every connection.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Callable
from functools import partial
from typing import TypeVar

import aiohappyeyeballs

from tidemark.core.bounded import BoundedCache
from tidemark.upstream.http1.target import Origin

LOOKUP_SECONDS = 10.0
"""How long the addresses of a name are cached: streams open many connections at once."""
CACHED_LOOKUPS = 256
SECOND_ADDRESS_SECONDS = 0.25
"""The next address is tried after so long, beside one that has not answered yet (RFC 8305, section 8)."""

HostPort = tuple[str, int]
Addresses = list[aiohappyeyeballs.AddrInfoType]
P = TypeVar("P", bound=asyncio.BaseProtocol)


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
                    # The kernel's own TimeoutError is none here: no time of ours is over.
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
