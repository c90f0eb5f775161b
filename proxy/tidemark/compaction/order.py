"""The values of a compaction: its occasion, its order and its result.

The pipeline and the features write orders, and the compactor answers them. The modules that act on these values stand
beside this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from enum import Enum

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import PrefixChain
from tidemark.core.conversation.records import Keep
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.summary import Cause, PrefixSummary
from tidemark.core.frozen import frozen
from tidemark.core.phrases import Reading
from tidemark.core.planning.budget import ModelProfile
from tidemark.core.planning.situation import Compact
from tidemark.core.ports import AskProvider, Caller, Route


class Trigger(Enum):
    """Names what asks for a summary. It decides what a failure means, and how the summary is stored."""

    REQUEST = "request"
    """A request waits. A failure follows the model's policy; the summary is put into use at once."""
    PREPARATION = "preparation"
    """The next summary is made in the background. A failure changes nothing; nothing leaves the context yet."""
    MANUAL = "manual"
    """The operator or a client summarizes a stored conversation. A failure changes nothing."""
    OFFLINE = "offline"
    """A single request is compacted without a conversation. Errors are raised; nothing is stored."""


@frozen
class CompactionOrder:
    """Describes a compaction to make: the plan, the conversation, the model and the caller."""

    plan: Compact
    tenant: str
    conversation: str
    chain: PrefixChain
    profile: ModelProfile
    route: Route
    caller: Caller
    cause: Cause
    owner: str = ""
    """Who hears of the compaction (``/tidemark/events``)."""
    degraded: bool = False
    """Whether the store does not answer. Then a deterministic strategy writes the same summary for the same request."""
    request: ModelRequest | None = None
    """The planned request, which a summarizer may continue (``core/planning/cached_prefix.py``)."""
    original_messages: Sequence[Message] = ()
    """The request's messages as the client sent them, if some were clipped since."""
    original_tokens: Sequence[int] = ()
    """The tokens of each message of ``original_messages``."""
    keep: Keep = "all"
    """What is stored of the request. Messages leave the context for nobody else unless all of it is."""
    left_out: int = 0
    """How many client messages stand before ``original_messages``; the summary in use stands for them."""
    in_use: PrefixSummary | None = None
    """The summary that stands for the prefix now."""
    by_hand: bool = False
    """Whether a person asked for it, so that no request waits."""
    ask_provider: AskProvider | None = None
    """Has the provider write the summary, for the strategy ``native``."""
    reading: Reading = field(default_factory=Reading, compare=False, repr=False)
    """What was read of the messages; empty before the compaction and after it."""

    @property
    def model(self) -> str:
        """Return the client's name for the model, if a request stands behind it."""
        return self.request.model if self.request is not None else ""


@frozen
class NotSummarized:
    """No summary could be made, and nothing was lost or changed."""

    reason: str
    retry_after: float = 0.0
    """Seconds until the summarizer's breaker lets a call through again; 0 for at once."""
    overdue: bool = False
    """Whether the messages took too long to read, so that only ``SummaryWriter.plain`` can summarize them."""


@frozen
class Summarized:
    """There is a summary, and it is within its bound."""

    summary: PrefixSummary
    tokens: int
    """Tokens of the summary message, for the order's model."""
    warning: str | None = None
    degraded: bool = False
    """Whether it could not be stored, so that the next request will not find it."""


CompactionResult = Summarized | NotSummarized
