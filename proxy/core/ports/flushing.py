"""What leaves the context: how the flow tells of it, and the queue that it is kept in until it is delivered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from proxy.core.conversation.flush import Flush


class MemoryFlush(Protocol):
    """Takes what leaves the context (S0-4). Neither method raises, and no request waits for more than the intent."""

    async def intend(self, flush: Flush) -> None:
        """Note in the store that this is about to leave; sent together with the summary that takes its place."""
        ...

    def put(self, flush: Flush) -> None:
        """Take it; it is queued off the request."""
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
    """Unix time, seconds: when the messages left."""
    only: str = ""
    """The one consumer that it is for, where it was replayed; empty for all."""
    id: str = ""
    """Where it stands in the queue; empty while it does not."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An entry that a consumer did not take in the end."""

    entry: FlushEntry
    """Its ``id`` is the one among the dead letters."""
    consumer: str
    reason: str
    attempts: int
    died_at: float


@dataclass(frozen=True, slots=True)
class ConsumerState:
    """How far a consumer is."""

    name: str
    waiting: int
    """Entries that it has not been given yet."""
    pending: int
    """Entries that it was given and has not taken yet."""
    oldest_at: float | None
    """Unix time at which the oldest of both was queued."""
    delivered: int = 0
    dead: int = 0
    lost: int = 0
    """Entries that made way for newer ones before it took them."""


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
    """The queue, one for all workers. Every method raises ``StoreUnavailable`` where the store did not answer."""

    async def intend(self, key: str, note: bytes) -> None:
        """Keep the note until the entry of that key is added."""
        ...

    async def intents(self) -> Mapping[str, bytes]:
        """Notes whose entries have not been added."""
        ...

    async def forget_intent(self, key: str) -> None:
        """Take a note back."""
        ...

    async def add(self, entry: FlushEntry) -> bool:
        """Append an entry, unless one of its key ever was; False where it was. One without a body is only marked."""
        ...

    async def read(self, consumer: str, reader: str, count: int, after: str = "") -> Sequence[FlushEntry]:
        """The next entries that a consumer has not been given yet.

        :param after: the last that this reader has, ``0-0`` for none. What it was given after that comes before all
            else: the answer was lost, or came too late
        """
        ...

    async def claim(self, consumer: str, reader: str, idle_seconds: float) -> Sequence[FlushEntry]:
        """All entries that were given to some reader so long ago and not taken; they are this reader's now."""
        ...

    async def begin(self, consumer: str, entry: FlushEntry) -> int:
        """Count one more attempt, before it is made, so that one that ends the process counts too.

        :returns: 0 where the entry is not in the queue any more, forgotten or pushed out: it is nobody's to deliver
        """
        ...

    async def done(self, consumer: str, entry: FlushEntry, *, delivered: bool = True) -> None:
        """The consumer took it, or it was not meant for it."""
        ...

    async def bury(self, consumer: str, entry: FlushEntry, reason: str, attempts: int) -> bool:
        """Make it a dead letter, which nobody delivers until somebody replays it; False where the queue lost it."""
        ...

    async def lead(self, reader: str, seconds: float) -> bool:
        """Become, or stay, the one reader of all; 0 seconds gives that up."""
        ...

    async def state(self) -> QueueState:
        """How full the queue is, and how far its consumers are."""
        ...
