"""The ports of memory flush: the outbox that takes flushes, and the queue that stores them until delivery."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Protocol

from tidemark.core.conversation.flush import Flush
from tidemark.core.frozen import frozen


class MemoryFlush(Protocol):
    """Takes flushes (S0-4). Neither method raises, and a request waits for the intent at most."""

    async def intend(self, flush: Flush) -> None:
        """Note in the store that a flush follows; the note is sent together with the summary."""
        ...

    def put(self, flush: Flush) -> None:
        """Take a flush; it is queued in the background."""
        ...


@frozen
class FlushEntry:
    """One entry of the queue."""

    key: str
    tenant: str
    conversation: str
    body: bytes
    """The document (``core/conversation/flush.py``)."""
    at: float
    """Unix time, seconds, at which the messages left."""
    only: str = ""
    """The only consumer of a replayed entry; empty for all consumers."""
    id: str = ""
    """Its place in the queue; empty while it has none."""
    owner: str = ""
    """Whose key seals it in the store; empty for the tenant's."""


@frozen
class DeadLetter:
    """An entry that a consumer did not take within its attempts."""

    entry: FlushEntry
    """The entry; its ``id`` is its place among the dead letters."""
    consumer: str
    reason: str
    attempts: int
    died_at: float


@frozen
class ConsumerState:
    """How much of the queue a consumer has taken."""

    name: str
    waiting: int
    """Entries that were not offered to it yet."""
    pending: int
    """Entries that were offered to it and that it has not taken yet."""
    oldest_at: float | None
    """Unix time at which the oldest waiting or pending entry was queued."""
    delivered: int = 0
    dead: int = 0
    lost: int = 0
    """Entries that newer ones replaced before it took them."""


@frozen
class QueueState:
    """The queue as a whole."""

    length: int
    bytes_held: int
    dead: int
    intents: int
    now: float
    """The store's time."""
    consumers: Sequence[ConsumerState] = field(default_factory=tuple)
