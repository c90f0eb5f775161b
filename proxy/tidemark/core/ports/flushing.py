"""The ports of memory flush: the outbox that takes flushes, and the queue that stores them until delivery."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from tidemark.core.conversation.flush import Flush


class MemoryFlush(Protocol):
    """Takes flushes (S0-4). Neither method raises, and a request waits for the intent at most."""

    async def intend(self, flush: Flush) -> None:
        """Note in the store that a flush follows; the note is sent together with the summary."""
        ...

    def put(self, flush: Flush) -> None:
        """Take a flush; it is queued in the background."""
        ...


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An entry that a consumer did not take within its attempts."""

    entry: FlushEntry
    """The entry; its ``id`` is its place among the dead letters."""
    consumer: str
    reason: str
    attempts: int
    died_at: float


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class QueueState:
    """The queue as a whole."""

    length: int
    bytes_held: int
    dead: int
    intents: int
    now: float
    """The store's time."""
    consumers: Sequence[ConsumerState] = field(default_factory=tuple)


class FlushQueue(Protocol):
    """The queue, one for all workers. Every method raises ``StoreUnavailable`` if the store did not answer."""

    async def intend(self, key: str, note: bytes) -> None:
        """Store a note until the entry of that key is added."""
        ...

    async def intents(self) -> Mapping[str, bytes]:
        """Return the notes whose entries have not been added."""
        ...

    async def forget_intent(self, key: str) -> None:
        """Remove a note."""
        ...

    async def add(self, entry: FlushEntry) -> bool:
        """Append an entry; False if one of its key was appended before. An entry without a body is only marked."""
        ...

    async def read(self, consumer: str, reader: str, count: int, after: str = "") -> Sequence[FlushEntry]:
        """Return the next entries that were not offered to a consumer yet.

        :param after: the last entry that this reader received, ``0-0`` for none. Entries that it was offered after that
            come first, because the answer was lost or came too late
        """
        ...

    async def claim(self, consumer: str, reader: str, idle_seconds: float) -> Sequence[FlushEntry]:
        """Return entries that any reader was offered so long ago and did not take; they are this reader's now."""
        ...

    async def begin(self, consumer: str, entry: FlushEntry) -> int:
        """Count an attempt before it is made, so that an attempt that ends the process counts, too.

        :returns: the number of the attempt; 0 if the entry was deleted or replaced, so that it is not delivered
        """
        ...

    async def done(self, consumer: str, entry: FlushEntry, *, delivered: bool = True) -> None:
        """Mark an entry as taken by a consumer, or as meant for another one."""
        ...

    async def bury(self, consumer: str, entry: FlushEntry, reason: str, attempts: int) -> bool:
        """Make an entry a dead letter, which waits until the operator replays it; False if the queue lost it."""
        ...

    async def lead(self, reader: str, seconds: float) -> bool:
        """Become, or stay, the only reader of all; 0 seconds end that."""
        ...

    async def state(self) -> QueueState:
        """Return how full the queue is, and how much its consumers have taken."""
        ...
