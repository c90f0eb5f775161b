"""The bounds on what the clients of one worker may use: bytes, seconds and connections.

``connection``, ``request_reader`` and ``load`` apply them. Clients, upstreams and the worker itself share its open
files, so the bound on connections follows from their limit.
"""

from __future__ import annotations

from tidemark.core.frozen import frozen

HEAD_BYTES = 65_536
"""The largest head of a request, its URL included, and its largest trailers. Common servers take 8 to 64 KB."""
HEAD_LINES = 128
"""The most lines of a request's head, and of its trailers. Browsers and gateways together send some 40."""
LINGER_SECONDS = 2.0
"""After a refusal the client's bytes are read and dropped for so long. Closing at once would reset the connection, and
the refusal could be lost (RFC 9112, section 9.6)."""
REST_SECONDS = 30.0
"""The longest silence in the rest of a body whose request has been answered already."""
REST_BYTES = 1_048_576
"""The largest such rest, which is read and dropped so that the connection stays usable. Beyond it the connection ends.
A client that sends a conversation which was refused sends less; reading on would let it send forever."""
ENDING_SECONDS = 1.0
"""While the server ends, a client that has connected just before may take so long to send its request."""
YOUNG_SECONDS = 0.2
"""A connection without a request is not closed for a new one for so long: its request is under way."""
SURPLUS_SECONDS = 0.5
"""A client that will be refused for too many connections may take so long to send its request."""
MOST_CONNECTIONS = 10_000
"""The bound of a worker if nothing is configured; a connection costs some 10 KB."""
LEAST_CONNECTIONS = 4
"""The least bound of a worker, however few files may be open."""
REFUSING_CONNECTIONS = 8
"""The connections beyond the bound, over which surplus clients are refused with the reason."""
OWN_DESCRIPTORS = 32
"""The open files of a worker itself: event loop, store, metrics and log need some 25."""
DESCRIPTORS_PER_CONNECTION = 2
"""One for the client, and one for the upstream that its request is forwarded to."""


@frozen(kw_only=True)
class Bounds:
    """The bounds on what the clients of one worker may use."""

    head_seconds: float = 10.0
    """From the first byte of a request to the end of its head."""
    body_seconds: float = 60.0
    """The longest silence between two pieces of a request's body."""
    bodies_bytes: int = 256 * 1024 * 1024
    """The sum of all bodies that are being read at one moment."""
    connections: int = MOST_CONNECTIONS


def raise_descriptor_limit(connections: int | None) -> int:
    """Raise the soft limit of open files as far as so many connections need and the hard limit allows.

    :param connections: of one worker; None for the default
    :return: how many files a process may open now
    """
    try:
        import resource  # noqa: PLC0415 - Windows has none, and no such limit
    except ImportError:
        return _descriptors(connections or MOST_CONNECTIONS)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _descriptors(connections or MOST_CONNECTIONS)
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return wanted if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # macOS has another limit below the hard one
        return soft
    return wanted


def allowed_connections(descriptors: int, connections: int | None) -> int:
    """Derive the bound on connections from the number of files that a worker may open.

    :param connections: the configured bound; None for the default
    """
    affordable = (descriptors - OWN_DESCRIPTORS - REFUSING_CONNECTIONS) // DESCRIPTORS_PER_CONNECTION
    return min(connections or MOST_CONNECTIONS, max(affordable, LEAST_CONNECTIONS))


def _descriptors(connections: int) -> int:
    return connections * DESCRIPTORS_PER_CONNECTION + OWN_DESCRIPTORS + REFUSING_CONNECTIONS
