"""The input of a plan and its six outcomes.

``plan.py`` chooses an outcome, and ``pipeline/fit.py`` performs it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.frozen import frozen
from tidemark.core.planning.budget import Budget, CompactionPolicy

Mode = Literal["auto", "force", "off", "shadow"]
"""``X-Tidemark-Summarize``."""
Reason = Literal[
    "fits",
    "off",
    "shadow",
    "disabled",
    "below_minimum",
    "small_gain",
    "nothing_to_summarize",
    "retained",
    "left_to_upstream",
]
"""``retained``: all messages must stay (FR-2.2.1); ``nothing_to_summarize``: no cut is allowed; ``left_to_upstream``:
the client asks the provider to compact."""


class EarlierMessagesNeeded(Exception):
    """A request whose oldest messages were left unread needs them after all, so it is made again (FR-4.3.1)."""


@frozen
class LeftOut:
    """The oldest messages of a conversation, which were not read because its summary stands for them (FR-4.3.1)."""

    count: int = 0
    tokens: int = 0


NOTHING_LEFT_OUT = LeftOut()


@frozen
class PlanInput:
    """Everything that the plan depends on."""

    messages: Sequence[Message]
    tokens: Sequence[int]
    """Tokens of each message."""
    other_tokens: int
    """Tokens of everything besides the messages: tools, response_format, priming."""
    budget: Budget
    policy: CompactionPolicy
    mode: Mode = "auto"
    summary: PrefixSummary | None = None
    summary_tokens: int = 0
    """Tokens of the summary's rendered message."""
    prepared: PrefixSummary | None = None
    """A summary that was made in the background, for use at the high water."""
    prepared_tokens: int = 0
    first_summary_tokens: int = 0
    """How much ``other_tokens`` changes when the request has a summary."""
    left_out: LeftOut = NOTHING_LEFT_OUT
    """The messages before ``messages``; ``summary`` stands for them."""
    asks_provider: bool = False
    """Whether the provider is to write the next summary itself, which wants a cut of its own kind."""

    masks_results: bool = False
    """Whether old results of tools are masked before anything is summarized."""

    lasting: int | None = None
    """How many client messages the request shares with the one before it. A client that changed what follows will do so
    again, so no summary of that is prepared. None: nothing came before."""

    is_cold: bool = False
    """Whether the provider's cache has lost the conversation since its last turn."""

    @property
    def total(self) -> int:
        """Return the tokens of the request as it came."""
        return self.other_tokens + sum(self.tokens) + self.left_out.tokens


@frozen
class NoCompaction:
    """Forward the request as it came."""

    reason: Reason
    tokens: int


@frozen
class ReuseSummary:
    """Use the stored summary again; the forwarded prefix stays the same (promise 5)."""

    summary: PrefixSummary
    tokens: int
    reason: Reason = "fits"


@frozen
class SwapSummary:
    """Put the prepared summary into use: a compaction for which no request waits (promise 7)."""

    summary: PrefixSummary
    tokens: int
    replaced_tokens: int
    """Tokens of everything that the summary message replaces, with a previous summary."""


@frozen
class MaskResults:
    """Put a line in the place of each old result that is named, and summarize nothing (``masks.py``)."""

    covered: int
    """Up to which client message results were looked at; all behind it stay as they are."""
    positions: tuple[int, ...]
    """Of the results among the client messages, from 0; those that are masked already stay so."""
    tokens: int
    """Tokens of the request, with the bound of each line."""
    replaced_tokens: int
    """Tokens of these results."""
    upon: PrefixSummary | None = None
    """The record in use before. A plan may pass over the stored one, as in a smaller window."""


@frozen
class Compact:
    """Make a new summary of ``messages`` and ``previous``, to stand for the first ``covered`` messages."""

    covered: int
    """How many leading non-system messages the summary will stand for."""
    messages: tuple[Message, ...]
    """The messages that ``previous`` does not cover, oldest first."""
    previous: PrefixSummary | None
    max_summary_tokens: int
    """Bound of the whole summary message."""
    absorbed: tuple[bytes, ...]
    """Digests of the inner system messages that the summary absorbs, with those of a previous summary."""
    replaced_tokens: int
    """Tokens of everything that the summary message replaces, with a previous summary."""
    rest_tokens: int
    """Tokens of the request without the summary message."""
    fallback: NoCompaction | ReuseSummary | None
    """The outcome if no summary can be made; None if nothing else fits."""
    earlier: tuple[Message, ...] = ()
    """The messages that ``previous`` stands for, if a strategy without a model may choose among them again."""
    is_mask: bool = False
    """Whether results are masked, and nothing is summarized."""


@frozen
class CannotFit:
    """Refuse the request: it exceeds its limit even with the smallest summary and the newest message alone."""

    tokens: int
    """The fewest tokens that a compaction can bring it to."""
    limit: int


CompactionPlan = NoCompaction | ReuseSummary | SwapSummary | MaskResults | Compact | CannotFit
