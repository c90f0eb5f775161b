"""Reports: what was done to one request, for its response headers and its log line (promise 9).

The pipeline makes a report, the server renders it as headers, the telemetry as a log line and as metrics.
"""

from __future__ import annotations

from typing import Literal

from tidemark.core.frozen import frozen
from tidemark.core.money import ModelPrice

Action = Literal["none", "reused", "compacted", "forced", "bypassed", "failed"]
"""``X-Tidemark-Action``: what was done to the request."""
RecallOutcome = Literal["", "recalled", "nothing", "no_room", "not_ready"]
"""What came of recalling earlier messages; empty if the request has no summary, or recall is off."""


@frozen
class ShadowReport:
    """What compaction would have made of a request, in the model's tokens, counted locally."""

    tokens: int
    """Of what would have been forwarded."""
    head_tokens: int = 0
    """What stands before the summary, if a new one would have come into use with this request; else 0."""
    summary_input_tokens: int = 0
    """What a model would have read to write that summary; 0 if none is asked."""
    summary_output_tokens: int = 0


@frozen
class Report:
    """What was done to one request. Tokens are the model's, counted locally."""

    conversation: str
    """The id that the client gets; empty if the conversation has none yet."""
    tenant: str
    limit: int
    """The most tokens that may be forwarded."""
    action: Action = "none"
    tokens_before: int = 0
    tokens_after: int = 0
    local_tokens: int = 0
    """Tokens of what was forwarded by our own count; ``tokens_after`` is calibrated if the model is."""
    summarized: int = 0
    """How many client messages the summary stands for."""
    strategy: str | None = None
    warning: str | None = None
    degraded: bool = False
    """Whether the store failed this request."""
    overhead_seconds: float = 0.0
    """Tidemark's own time, from the lookup of the model to the call of the upstream, without making a summary."""
    gap: str = ""
    """The gaps of a stored history, as a header's value (``core/conversation/alignment.py``)."""
    receipt: str = ""
    """What the summary has of all that it stands for, as a header's value (``core/receipt.py``)."""
    recall: RecallOutcome = ""
    recalled_tokens: int = 0
    """Tokens of all earlier messages that were put back since the compaction, with their frames."""
    local_recalled_tokens: int = 0
    """The same by our own count."""
    shadow: ShadowReport | None = None
    """What compaction would have made of the request; None if it is not in shadow mode."""
    cache_break: str = ""
    """Which part of its earlier request the client has changed, as ``PromptChange.words``; reported once."""
    lossless_tokens: int = 0
    """By how much the lossless forms of tool results are shorter, of those that were forwarded."""
    covered: int = 0
    """Up to which client message the record in use reaches. It stands for fewer if it masks results."""
    price: ModelPrice | None = None
    """What the model costs at the time of the request; None if nobody states it."""
    not_stored: bool = False
    """Whether nothing of the request is stored, as the operator or the client wants it."""
    position: int = 0
    """The position of the request's newest message in its conversation, counted from 1; 0 for none."""
    newest: bytes = b""
    """The hash of the conversation up to that message, which is the message's id in the store."""
    is_summary_moved: bool = False
    """Whether the summary was sent in the user's turn, because of the server's chat template (docs/adr/0049)."""


@frozen
class OwnAnswer:
    """An answer that Tidemark gives itself, without an upstream; a dialect writes it."""

    text: str
    id: str
    """Hex; a dialect puts its own prefix before it."""
    created_at: float
    """Unix time, seconds."""


@frozen
class Usage:
    """Tokens as the provider counted them, for monitoring only (FR-1.1.5); None if it does not report them."""

    input_tokens: int | None = None
    cached_tokens: int | None = None
    """The part of the input that came from the provider's prompt cache."""
    output_tokens: int | None = None
    cache_write_tokens: int | None = None
    """The part of the input that the provider wrote to its prompt cache."""
    hour_write_tokens: int | None = None
    """The part of that which stays for an hour, and costs more."""


NO_USAGE = Usage()
