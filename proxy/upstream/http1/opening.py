"""How a connection is made: addresses of a name, the first of them that answers, and TLS.

Second step of the HTTP client, where no idle connection is left. The one door to aiohappyeyeballs (RFC 8305): a
server with a dead IPv6 address must not cost every connection its time.
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

from proxy.upstream.http1.target import Origin

LOOKUP_SECONDS = 10.0
"""How long a name's addresses are believed: streams open many connections at once."""
KEPT_LOOKUPS = 256
SECOND_ADDRESS_SECONDS = 0.25
"""When the next address is tried beside one that has not answered yet (RFC 8305, section 8)."""

Place = tuple[str, int]
P = TypeVar("P", bound=asyncio.BaseProtocol)


class Addresses:
    """Looks up names, once for all who ask meanwhile. Mutable: what is known, and what is being asked."""

    def __init__(self) -> None:
        self._known: dict[Place, tuple[float, list[aiohappyeyeballs.AddrInfoType]]] = {}
        self._asked: dict[Place, asyncio.Task[list[aiohappyeyeballs.AddrInfoType]]] = {}

    async def of(self, place: Place) -> list[aiohappyeyeballs.AddrInfoType]:
        """The addresses of a host and port, each time beginning with another one.

        :raises OSError: the name is not known
        """
        loop = asyncio.get_running_loop()
        known = self._known.get(place)
        if known is None or known[0] <= loop.time():
            asking = self._asked.get(place)
            if asking is None:
                asking = self._asked[place] = loop.create_task(_looked_up(loop, place))
                asking.add_done_callback(lambda _: self._asked.pop(place, None))
            # Whoever leaves must not end the lookup for the others.
            known = self._keep(place, loop.time() + LOOKUP_SECONDS, await asyncio.shield(asking))
        addresses = known[1]
        found = addresses.copy()
        addresses.append(addresses.pop(0))
        return found

    def _keep(
        self, place: Place, until: float, found: list[aiohappyeyeballs.AddrInfoType]
    ) -> tuple[float, list[aiohappyeyeballs.AddrInfoType]]:
        while len(self._known) >= KEPT_LOOKUPS:
            del self._known[next(iter(self._known))]
        self._known[place] = known = (until, found)
        return known


class Opener:
    """Makes connections. Mutable: addresses, and what TLS trusts once it is asked for."""

    def __init__(self) -> None:
        self._addresses = Addresses()
        self._context: ssl.SSLContext | None = None

    async def connect(self, origin: Origin, make: Callable[[float], P]) -> P:
        """A connection to the first of a server's addresses that answers, TLS included.

        Both event loops set ``TCP_NODELAY`` themselves.

        :param make: given the seconds of a round trip: what the first packets there and back took
        :raises OSError: none of them did; the last one's reason
        """
        loop = asyncio.get_running_loop()
        addresses = await self._addresses.of((origin.host, origin.port))
        context = await self._trusted() if origin.tls else None
        # A certificate names hosts without the dot that ends an absolute name.
        named = origin.host.rstrip(".") if origin.tls else None
        while True:
            began = time.monotonic()  # uvloop's own clock counts in milliseconds
            try:
                sock = await aiohappyeyeballs.start_connection(
                    addresses, happy_eyeballs_delay=SECOND_ADDRESS_SECONDS, interleave=1, loop=loop
                )
                made = partial(make, time.monotonic() - began)
                _, protocol = await loop.create_connection(made, sock=sock, ssl=context, server_hostname=named)
            except (OSError, RuntimeError) as error:  # uvloop has both for a connection that is refused
                aiohappyeyeballs.pop_addr_infos_interleave(addresses, 1)
                if not addresses:
                    # Not as a TimeoutError, which the kernel's own would be: no time of ours is over.
                    raise ConnectionError(str(error)) from error
            else:
                return protocol

    async def _trusted(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = await asyncio.to_thread(tls_context)
        return self._context


async def _looked_up(loop: asyncio.AbstractEventLoop, place: Place) -> list[aiohappyeyeballs.AddrInfoType]:
    host, port = place
    try:  # an address needs no lookup, hence no thread
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST)
    except socket.gaierror:
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    if not found:
        raise OSError(f"no address of {host}")
    return list(found)


def tls_context() -> ssl.SSLContext:
    """Certificates and host names are checked as OpenSSL is configured, ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` too.

    Reading the authorities takes some 20 ms: for a thread, and once.
    """
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
