"""What the clients of one worker may take: bytes, seconds, connections. ``load`` applies them.

A worker's open files are shared between clients, upstreams and itself, so the bound on connections is derived from
their limit.
"""

from __future__ import annotations

import resource
from dataclasses import dataclass

HEAD_BYTES = 65_536
"""Of a request's head, its URL included, and of its trailers. Common servers take 8 to 64 KB."""
HEAD_LINES = 128
"""Of a request's head, and of its trailers. Browsers and gateways together send some 40."""
LINGER_SECONDS = 2.0
"""After a refusal the client's bytes are dropped for so long: closing at once would reset the connection, and the
refusal could be lost (RFC 9112, section 9.6)."""
REST_SECONDS = 30.0
"""For the rest of a body whose request has been answered before all of it came."""
LEAVING_SECONDS = 1.0
"""Once the server ends: for the request of a client that has connected just before."""
YOUNG_SECONDS = 0.2
"""So long a connection that has asked nothing yet is not closed for a new one: its request is on its way."""
SURPLUS_SECONDS = 0.5
"""For the request of a client that will be told that there is no room."""
MOST_CONNECTIONS = 10_000
"""That a worker takes where nothing is configured; a connection costs some 10 KB."""
LEAST_CONNECTIONS = 4
"""However few files may be open."""
REFUSING_CONNECTIONS = 8
"""Beyond the bound, so that surplus clients are told why they are refused."""
OWN_DESCRIPTORS = 32
"""Of a worker itself: event loop, store, metrics and log take some 25."""
DESCRIPTORS_PER_CONNECTION = 2
"""The client's, and the upstream's that its request is forwarded over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What the clients of one worker may take."""

    head_seconds: float = 10.0
    """From the first byte of a request to the end of its head."""
    body_seconds: float = 60.0
    """Between two pieces of a request's body."""
    bodies_bytes: int = 256 * 1024 * 1024
    """Of all bodies that are being read at one moment."""
    connections: int = MOST_CONNECTIONS


def raise_descriptor_limit(connections: int | None) -> int:
    """Raise the soft limit of open files as far as so many connections need and the hard limit allows.

    :param connections: of one worker; None: as many as a worker takes of itself
    :return: how many files a process may open now
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _descriptors(connections or MOST_CONNECTIONS)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # macOS has a limit of its own below the hard one
        return soft
    return wanted


def allowed_connections(descriptors: int, connections: int | None) -> int:
    """Derive how many connections a worker may take that can open so many files.

    :param connections: what is configured; None: as many as a worker takes of itself
    """
    room = (descriptors - OWN_DESCRIPTORS - REFUSING_CONNECTIONS) // DESCRIPTORS_PER_CONNECTION
    return min(connections or MOST_CONNECTIONS, max(room, LEAST_CONNECTIONS))


def _descriptors(connections: int) -> int:
    return connections * DESCRIPTORS_PER_CONNECTION + OWN_DESCRIPTORS + REFUSING_CONNECTIONS
