"""Events of the memory flush: what became of messages on their way to consumers.

``events.py`` has all others. An event has no message contents and no keys of clients.
"""

from __future__ import annotations

from tidemark.core.frozen import frozen


@frozen
class FlushQueued:
    """A flush was added to the queue (S0-4)."""

    conversation: str
    key: str
    messages: int
    seconds: float
    """Seconds since the messages left."""


@frozen
class FlushDelayed:
    """The store did not take a flush; the outbox tries again."""

    waiting: int
    reason: str


@frozen
class FlushDropped:
    """A flush was not queued, and this process will not try again."""

    conversation: str
    reason: str


@frozen
class FlushDelivered:
    """A consumer took an entry."""

    consumer: str
    conversation: str
    key: str
    attempt: int
    seconds: float
    """Seconds since the messages left."""


@frozen
class FlushFailed:
    """A consumer did not take an entry, which is offered again."""

    consumer: str
    conversation: str
    key: str
    attempt: int
    reason: str
    retry_seconds: float


@frozen
class FlushBuried:
    """A consumer did not take an entry within its attempts, so it became a dead letter."""

    consumer: str
    conversation: str
    key: str
    attempt: int
    reason: str


@frozen
class FlushLost:
    """Newer entries replaced others before a consumer took them, because the queue's bounds are too small."""

    consumer: str
    entries: int
    """In all, since the queue exists."""


@frozen
class FlushWaiting:
    """The entries that a consumer has yet to take; every process emits it every few seconds."""

    consumer: str
    entries: int
    seconds: float
    """Age of the oldest entry; 0 if there is none."""
    lost: int
    dead: int
    """Dead letters of all consumers."""


FlushEvent = (
    FlushQueued | FlushDelayed | FlushDropped | FlushDelivered | FlushFailed | FlushBuried | FlushLost | FlushWaiting
)
