"""Facts: what happened on the road of a request, as frozen values.

The flow emits them; logging, metrics and the console listen, each in its own words. A fact carries no
message contents and no key material.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from .report import NO_USAGE, Report, Usage
from .values import value

BreakerState = Literal["closed", "open", "half_open"]
"""Of a summarizer's breaker; ``half_open`` lets one probe through."""
Outcome = Literal["complete", "refused", "incomplete", "disconnected", "rejected", "error"]
"""How an exchange ended: in full; with an error status of the upstream; cut short by the upstream; by the
client's leaving; with our own error to a bad request; with our own failure."""


@value
class RequestServed:
    """One request has been answered, or given up. Emitted once for each request."""

    path: str
    status: int
    outcome: Outcome
    seconds: float
    """From the first byte of the request to the last of the response."""
    first_byte_seconds: float | None = None
    model: str = ""
    stream: bool = False
    report: Report | None = None
    """None where the request ended before anything was known of its conversation."""
    usage: Usage = NO_USAGE
    code: str | None = None
    """The code of the error, where there was one."""
    cause: str | None = None
    """What lies behind the error: for the log, never for a client."""


@dataclass(frozen=True, slots=True)
class CompactionStarted:
    """A summary is being made (FR-1.6.2: with its scope)."""

    conversation: str
    model: str
    strategy: str
    messages: int
    tokens: int


@dataclass(frozen=True, slots=True)
class ConversationCompacted:
    """A summary was made and stored."""

    conversation: str
    model: str
    strategy: str
    """The strategy that wrote it in the end."""
    messages: int
    tokens_replaced: int
    summary_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class SummaryPrepared:
    """A summary was made in the background and waits for its use."""

    conversation: str
    model: str
    strategy: str
    messages: int
    summary_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class ContextFull:
    """A request went out above 95 % of its limit, and no summary makes more room (FR-5.3.1c)."""

    conversation: str
    model: str
    tokens: int
    limit: int


@dataclass(frozen=True, slots=True)
class BreakerChanged:
    """A summarizer is left alone for a while, tried once more, or trusted again."""

    model: str
    strategy: str
    state: BreakerState
    failures: int
    """In a row."""
    seconds: float
    """Until somebody may ask it again."""


@dataclass(frozen=True, slots=True)
class SummaryFailed:
    """A summarizer failed (FR-5.1.1); what is done about it is the failure policy's matter."""

    conversation: str
    model: str
    strategy: str
    reason: str
    policy: str
    seconds: float
    detail: str = ""
    """For the log: what a client may not read, or where a strategy slipped."""


@dataclass(frozen=True, slots=True)
class StoreDegraded:
    """The store did not answer; the request goes on without it."""

    operation: str
    reason: str


@dataclass(frozen=True, slots=True)
class RecordBroken:
    """A stored record cannot be read: it is broken, or a newer version wrote it. All others are read."""

    conversation: str
    record: str
    """Which one, by its place: ``message 3``."""
    reason: str


@dataclass(frozen=True, slots=True)
class TurnStored:
    """A turn was written at the end of a response."""

    conversation: str
    messages: int
    bytes_written: int
    seconds: float


@dataclass(frozen=True, slots=True)
class FlushQueued:
    """What left the context is in the queue (S0-4)."""

    conversation: str
    key: str
    messages: int
    seconds: float
    """Since the messages left."""


@dataclass(frozen=True, slots=True)
class FlushDelayed:
    """The store does not take what left the context; it is tried again."""

    waiting: int
    reason: str


@dataclass(frozen=True, slots=True)
class FlushDropped:
    """What left the context is not queued, and will not be by this process."""

    conversation: str
    reason: str


@dataclass(frozen=True, slots=True)
class FlushDelivered:
    """A consumer took an entry."""

    consumer: str
    conversation: str
    key: str
    attempt: int
    seconds: float
    """Since the messages left."""


@dataclass(frozen=True, slots=True)
class FlushFailed:
    """A consumer did not take an entry, and is offered it again."""

    consumer: str
    conversation: str
    key: str
    attempt: int
    reason: str
    retry_seconds: float


@dataclass(frozen=True, slots=True)
class FlushBuried:
    """A consumer did not take an entry in the end; it is a dead letter."""

    consumer: str
    conversation: str
    key: str
    attempt: int
    reason: str


@dataclass(frozen=True, slots=True)
class FlushLost:
    """Entries made way for newer ones before a consumer took them: the queue's bounds are too small for its pace."""

    consumer: str
    entries: int
    """In all, as long as the queue is there."""


@dataclass(frozen=True, slots=True)
class FlushWaiting:
    """How much a consumer has still to take; told every few seconds, by every process."""

    consumer: str
    entries: int
    seconds: float
    """Age of the oldest; 0 where there is none."""
    lost: int
    dead: int
    """Dead letters of all consumers."""


Event = (
    RequestServed
    | CompactionStarted
    | ConversationCompacted
    | SummaryPrepared
    | SummaryFailed
    | ContextFull
    | BreakerChanged
    | StoreDegraded
    | RecordBroken
    | TurnStored
    | FlushQueued
    | FlushDelayed
    | FlushDropped
    | FlushDelivered
    | FlushFailed
    | FlushBuried
    | FlushLost
    | FlushWaiting
)
Listener = Callable[[Event], None]
"""Takes a fact and returns at once; it must not raise."""
