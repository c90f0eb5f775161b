"""What a plan is made of, and what may come of it: one situation, five outcomes.

Below ``plan.py`` on the road of a request; whoever performs an outcome knows it from here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from proxy.core.conversation.messages import Message
from proxy.core.conversation.summary import PrefixSummary
from proxy.core.planning.budget import Budget, CompactionPolicy
from proxy.core.values import value

Mode = Literal["auto", "force", "off"]
"""``X-Tidemark-Summarize``."""
Reason = Literal["fits", "off", "disabled", "below_minimum", "small_gain", "nothing_to_summarize", "retained"]
"""``retained``: all that could be summarized has to stay (FR-2.2.1); ``nothing_to_summarize``: no cut is allowed."""


@value
class PlanInput:
    """All that the plan depends on."""

    messages: Sequence[Message]
    tokens: Sequence[int]
    """Of each message."""
    fixed: int
    """Tokens of all that is no message: tools, response_format, priming."""
    budget: Budget
    policy: CompactionPolicy
    mode: Mode = "auto"
    summary: PrefixSummary | None = None
    summary_tokens: int = 0
    """Of the summary's rendered message."""
    prepared: PrefixSummary | None = None
    """One that was made in the background and waits for the high water."""
    prepared_tokens: int = 0
    summary_first: int = 0
    """By how many tokens ``fixed`` changes once a summary stands in the request."""

    @property
    def total(self) -> int:
        """Tokens of the request as it came in."""
        return self.fixed + sum(self.tokens)


@value
class NoCompaction:
    """The request goes out as it came in."""

    reason: Reason
    tokens: int


@dataclass(frozen=True, slots=True)
class ReuseSummary:
    """The stored summary stands for the prefix once more; the forwarded prefix stays as it was (promise 5)."""

    summary: PrefixSummary
    tokens: int
    reason: Reason = "fits"


@dataclass(frozen=True, slots=True)
class SwapSummary:
    """The prepared summary takes its place: a compaction that nobody waits for (promise 7)."""

    summary: PrefixSummary
    tokens: int
    replaced_tokens: int
    """Of all that the summary message takes the place of, a previous summary included."""


@dataclass(frozen=True, slots=True)
class Compact:
    """A new summary is to be made of ``messages`` and ``previous``, then assembled over ``covered`` messages."""

    covered: int
    """How many leading non-system messages the summary will stand for."""
    messages: tuple[Message, ...]
    """What is new to the summary, oldest first: not covered by ``previous``."""
    previous: PrefixSummary | None
    max_summary_tokens: int
    """Bound of the whole summary message."""
    absorbed: tuple[bytes, ...]
    """Digests of the inner system messages that the summary must tell, a previous summary's among them."""
    replaced_tokens: int
    """Of all that the summary message takes the place of, a previous summary included."""
    rest_tokens: int
    """Of the request without the summary message."""
    fallback: NoCompaction | ReuseSummary | None
    """What may be sent if no summary can be made; None when nothing else fits."""


@dataclass(frozen=True, slots=True)
class CannotFit:
    """Even with the smallest summary and the newest message alone the request is over its limit."""

    tokens: int
    """The least it could be brought to."""
    limit: int


CompactionPlan = NoCompaction | ReuseSummary | SwapSummary | Compact | CannotFit
