"""Events: frozen values that report what happened to a request, a summary or the store.

All packages above the core emit them; the log and the metrics listen. An event has no message contents and no keys.
Those of the memory flush are in ``flush_events.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from tidemark.core.frozen import frozen

from .flush_events import FlushEvent
from .receipt import Receipt
from .report import NO_USAGE, Action, RecallOutcome, Report, Usage

ShedReason = Literal["streams", "waiting", "waited"]
"""Why a request was refused: no place and none may wait, too many wait, it waited too long."""
BreakerState = Literal["closed", "open", "half_open"]
"""The state of a summarizer's breaker; ``half_open`` allows one probe."""
Outcome = Literal["complete", "refused", "incomplete", "disconnected", "rejected", "error"]
"""How an exchange ended. In order: completely; with an error status of the upstream; cut short by the upstream; by
the client's disconnection; with Tidemark's refusal of a bad request; with a failure of Tidemark."""
CompactionTrigger = Literal["request", "preparation", "manual", "offline", "swap", "mask"]
"""What asked for a summary; ``swap`` puts a prepared one into use."""


@frozen
class RequestServed:
    """One request was answered or abandoned. Each request emits it once."""

    path: str
    status: int
    outcome: Outcome
    seconds: float
    """From the first byte of the request to the last of the response."""
    first_byte_seconds: float | None = None
    model: str = ""
    stream: bool = False
    report: Report | None = None
    """None if the request ended before its conversation was identified."""
    usage: Usage = NO_USAGE
    code: str | None = None
    """The code of the error, if there was one."""
    cause: str | None = None
    """The cause of the error, for the log and never for a client."""
    endpoint: str = ""
    """Which endpoint a request was for that Tidemark does not understand, by a few names."""
    trace_id: str = ""
    """The W3C trace that the request belongs to, in 32 hexadecimal digits; empty if it belongs to none."""
    owner: str = ""
    """Whose request it is; empty if it ended before that was known."""
    tenant: str = ""
    """The name of the tenant by its key; empty without ``auth.mode: keys``."""
    client: bytes = b""
    """The header ``User-Agent``, by which a program names itself."""
    upstream_seconds: float | None = None
    """From asking the upstream to the first byte of its answer, which is read whole if it is no stream."""


@frozen
class CompactionStarted:
    """The making of a summary has begun (FR-1.6.2: with its scope)."""

    conversation: str
    model: str
    strategy: str
    messages: int
    tokens: int
    owner: str = ""
    """The owner of the conversation."""
    trigger: CompactionTrigger = "request"


@frozen
class CompactionGivenUp:
    """A compaction that had started ended without a summary; nothing was lost."""

    conversation: str
    model: str
    strategy: str
    messages: int
    tokens: int
    reason: str
    seconds: float
    owner: str = ""
    """The owner of the conversation."""
    trigger: CompactionTrigger = "request"


@frozen
class WindowLearned:
    """An upstream's overflow taught the window of a model."""

    model: str
    window: int
    owner: str
    """The owner whose requests the window applies to."""


@frozen
class WindowAssumed:
    """No source knows the window of a model, so a default is assumed until the operator states one (FR-3.2.3)."""

    model: str
    window: int
    mend: str
    """How to state it."""


@frozen
class ConversationCompacted:
    """A summary was made and stored."""

    conversation: str
    model: str
    strategy: str
    """The strategy that wrote the summary."""
    messages: int
    tokens_replaced: int
    summary_tokens: int
    seconds: float
    tokens_before: int = 0
    """Tokens of the conversation before, by local count."""
    tokens_after: int = 0
    owner: str = ""
    """The owner of the conversation."""
    trigger: CompactionTrigger = "request"
    receipt: Receipt = ()
    """What the summary has of all that it stands for, by kind."""


@frozen
class ManualCompactionEnded:
    """A person compacted a stored conversation, or tried to. No request was sent for it."""

    conversation: str
    model: str
    action: Action
    """``forced``; ``none`` if nothing could be summarized; ``failed`` if nothing was changed."""
    owner: str = ""
    """The owner of the conversation."""


@frozen
class SummaryReplaced:
    """A person replaced the summary in use by a text of their own, or by a preview."""

    conversation: str
    model: str
    edited: bool
    """Whether it is a text of their own."""
    messages: int
    summary_tokens: int
    owner: str = ""
    """The owner of the conversation."""


@frozen
class SummaryPrepared:
    """A summary was made in the background and is not in use yet."""

    conversation: str
    model: str
    strategy: str
    messages: int
    summary_tokens: int
    seconds: float
    tokens_replaced: int = 0
    tokens_before: int = 0
    """Tokens of the conversation before, by local count."""
    tokens_after: int = 0
    owner: str = ""
    """The owner of the conversation."""
    trigger: CompactionTrigger = "preparation"


@frozen
class ContextFull:
    """A request was sent above 95 % of its limit, and no summary can free more (FR-5.3.1c)."""

    conversation: str
    model: str
    tokens: int
    limit: int


@frozen
class MessagesSearched:
    """A model called the search function, and the call was answered (``pipeline/search_rounds.py``)."""

    conversation: str
    model: str
    outcome: RecallOutcome
    round: int = 1
    """Which round of its request it was; several calls may be in one."""


@frozen
class BreakerChanged:
    """A summarizer's breaker opened, admits a probe, or closed."""

    model: str
    strategy: str
    state: BreakerState
    failures: int
    """In a row."""
    seconds: float
    """Seconds until the summarizer may be asked again."""


@frozen
class SummaryFailed:
    """A summarizer failed (FR-5.1.1); the failure policy decides what follows."""

    conversation: str
    model: str
    strategy: str
    reason: str
    policy: str
    seconds: float
    detail: str = ""
    """Details for the log that a client may not read."""
    owner: str = ""
    """The owner of the conversation."""


@frozen
class StoreDegraded:
    """The store did not answer, and the request continued without it."""

    operation: str
    reason: str


@frozen
class StoreReplaced:
    """The store is another one than before, or was emptied: the conversations of before are gone."""


@frozen
class ConversationsExpired:
    """The store has deleted conversations that nobody used for the longest lifetime that a tenant has."""

    number: int


@frozen
class RecordBroken:
    """A stored record cannot be read, or was broken and is mended. Other records are not affected."""

    conversation: str
    record: str
    """The record, by its place: ``message 3``."""
    reason: str


@frozen
class RequestShed:
    """A model request was refused because the worker has as many as ``limits`` allows."""

    reason: ShedReason
    requests: int
    """The requests that are being answered."""
    waiting: int


@frozen
class TurnStored:
    """A turn was written at the end of a response."""

    conversation: str
    messages: int
    bytes_written: int
    seconds: float


Role = Literal["operator", "auditor", "tenant"]
"""What a person reaches: everything, figures and the audit log without text, or what is their own."""


@frozen
class Audited:
    """A person read, changed or deleted what the audit log must name. It never holds the text itself (issue 33)."""

    action: str
    """What was done, as ``conversation.read`` or ``key.revoked``."""
    role: Role
    actor: str = ""
    """Who did it: the id of a key, or the name of a signed-in person. Empty for the admin token."""
    tenant: str = ""
    """Whose data it was; empty if it is nobody's alone."""
    subject: str = ""
    """What it was done to, by its id: a conversation, a key, the name of a setting."""
    address: str = ""
    """The address that the request came from; empty for a command."""


Event = (
    RequestServed
    | CompactionStarted
    | CompactionGivenUp
    | WindowLearned
    | WindowAssumed
    | ConversationCompacted
    | ManualCompactionEnded
    | SummaryReplaced
    | SummaryPrepared
    | SummaryFailed
    | ContextFull
    | MessagesSearched
    | BreakerChanged
    | StoreDegraded
    | StoreReplaced
    | ConversationsExpired
    | RecordBroken
    | RequestShed
    | TurnStored
    | Audited
    | FlushEvent
)
Listener = Callable[[Event], None]
"""Takes an event and returns at once; it must not raise."""


class Listeners:
    """Gives each event to all that listen, in the order in which they were added."""

    def __init__(self, *listeners: Listener) -> None:
        self.listeners = [*listeners]

    def __call__(self, event: Event) -> None:
        for listener in self.listeners:
            listener(event)
