"""The token budget of a request: how much may be sent, when to compact, and down to which size.

The budget is made after the catalog has found the window, and before the plan. FR-1.2.4: tokens for the reply and a
safety margin are left free before anything is compared. All marks follow from the model's window, the request's reply
length and the policy.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tidemark.core.conversation.cache_marks import MarkPolicy
from tidemark.core.conversation.records import Keep
from tidemark.core.conversation.summary import Strategy, Template
from tidemark.core.frozen import frozen
from tidemark.core.money import ModelPrice
from tidemark.core.recall.epoch import LEAST_SHARE_TOKENS

WindowSource = Literal["api", "manual", "default"]
"""FR-3.2.1: read from data or the upstream, set by the operator, or assumed."""
OnFailure = Literal["deterministic", "block", "passthrough"]
Oversize = Literal["clip", "error"]
ToolResults = Literal["as_is", "lossless"]
CompactionMode = Literal["active", "shadow"]
"""``shadow``: requests travel as they came, and are only reported on (``core/planning/forecast.py``)."""

MARGIN_RATIO = 0.05
"""FR-1.2.4: the default share of the window that stays free, because local counts may be wrong."""
DEFAULT_WINDOW_TOKENS = 128_000
"""FR-3.2.2: the conservative default for a model without any data."""
DEFAULT_OUTPUT_TOKENS = 4096
"""The longest reply of a model whose maximum is unknown; OpenAI's own older default."""
UNKNOWN_REPLY_SHARE = 1 / 4
"""The most of a window that is left for a reply of unknown length (docs/adr/0050)."""
LEAST_REPLY_SHARE = 1 / 16
"""Share of the window that is left for the reply of a request that would be refused otherwise."""
LEAST_REPLY_TOKENS = 256
"""The same in tokens, for small windows; a request that reserves less leaves what it reserves."""
TALK_SUMMARY_SHARES, WORK_SUMMARY_SHARES = (0.30, 0.10), (0.10, 0.05)
"""Shares of the limit for the summary of a talk and of an agent's work: without a model, with one.

Lines that are chosen cost nothing, and a model writes no more because it may. What an agent needs stands in its newest
messages.
"""
MIN_SUMMARY_TOKENS = 64
"""The smallest summary message. About half of it is the message's frame."""
SUMMARY_FLOOR_TOKENS = 256
SUMMARY_CEILING_TOKENS, CHOSEN_CEILING_TOKENS = 4096, 16_384
"""The largest summary that ``auto`` allows a model, and a strategy that chooses lines."""
PRICE_TARGET = 0.25
"""The low water by price, beside the head, as a share of its floor. Deeper is cheaper, and loses more."""
RECALL_SHARE = 0.08
"""More brings little: most answers are among the first messages that a question finds (docs/fidelity.md)."""
MOST_RECALL_TOKENS = 2_000
"""More messages than that seldom bear on one question."""
MOST_RECALL_SHARE = 0.2
"""Share of the limit from which on ``LEAST_SHARE_TOKENS`` would crowd out the newest messages."""


@frozen
class ModelWindow:
    """The longest input and output of a model, in tokens."""

    max_input_tokens: int = DEFAULT_WINDOW_TOKENS
    max_output_tokens: int | None = None
    context_window: int | None = None
    """Input and output together; None if no source states it, then ``max_input_tokens`` stands for it."""
    source: WindowSource = "default"

    @property
    def window(self) -> int:
        """Return the window that input and reply share."""
        return self.context_window or self.max_input_tokens


@frozen
class CompactionPolicy:
    """When and how far a model's conversations are compacted: the keys of ``compaction.defaults``."""

    enabled: bool = True
    mode: CompactionMode = "active"
    keep: Keep = "all"
    """What is stored of a model's requests (``store.keep``)."""
    strategy: Strategy = "hybrid"
    threshold: float = 0.95
    """Share of the window (up to 1) or an absolute number of tokens (above 1) from which compaction is due."""
    by_price: bool = False
    """Whether the model's price sets the marks (``core/planning/price.py``); ``threshold`` does if none is known."""
    price_floor: int = 40_000
    """The lowest high water by price, in tokens, since each compaction loses something."""
    margin: float = MARGIN_RATIO
    """Share of the window that stays free (FR-1.2.4)."""
    prepare: float = 0.70
    """Share of the high water from which the next summary is prepared."""
    target: float = 0.45
    """The low water, to which a compaction brings the request, as a share of the limit. An absolute ``threshold``
    takes the limit's place, because it is the user's limit (S0)."""
    retention_tokens: int = 1000
    retention_ratio: float = 0.25
    """A share of the same base as ``target``'s; the newest messages within the larger of the two stay (FR-1.3)."""
    keep_last_messages: int = 0
    """At least this many of the newest messages stay, if the request fits with them (S2); 0 for none."""
    max_summary_tokens: int | None = None
    """None is ``auto``: see ``summary_bound``."""
    min_tokens: int = 2000
    """Smaller requests are not compacted automatically (FR-5.4.1); at most half of the limit."""
    min_messages: int = 0
    """Requests with fewer non-system messages are not compacted automatically (S4)."""
    min_gain: float = 0.10
    """A compaction that would free a smaller share of the request is not done."""
    on_failure: OnFailure = "deterministic"
    template: str | Template = "general"
    summarizer_model: str = "auto"
    summarizer_timeout_seconds: float = 60.0
    summarizer_cache_friendly: bool | None = None
    """Whether the summarizer's call is appended to the cached prefix (``core/planning/cached_prefix.py``). None is
    ``auto``, which the catalog resolves; where nobody did, it means no."""
    summarizer_parallel: int = 4
    """The most pieces of one conversation that are summarized at once."""
    summarizer_revise: bool = False
    """Whether the summarizer is asked once more about what its text names and nobody said."""
    wait_seconds: float = 30.0
    """The longest time that a request waits for a summary that another request is making."""
    oversize: Oversize = "clip"
    """What to do with a tool result that is too large even for a compacted request (``core/planning/clip.py``)."""
    mask_results: bool = False
    """Whether lines take the place of old tool results before anything is summarized (``core/planning/masks.py``)."""
    tool_results: ToolResults = "as_is"
    """Whether tool results go out in their lossless forms (``core/conversation/lossless.py``)."""
    commands: bool = True
    """Whether ``/context`` and ``/summarize`` are answered (``pipeline/command_text.py``)."""
    command_dialects: tuple[str, ...] = ("chat",)
    """The dialects in which they are answered; agents that speak the others send no chat commands."""
    shorten_sentences: bool = True
    """Whether ``extractive`` may drop articles (``summarizers/extractive.py``)."""
    max_recall_tokens: int | None = None
    """The most tokens of originals that are put back for one question. None is ``auto``: see ``recall_bound``."""
    recall_tool: bool = False
    """Whether the model of a compacted conversation may search its earlier messages (``pipeline/search_offers.py``)."""
    cache_marks: MarkPolicy = "auto"
    """Whether compacted requests get cache marks if their clients set none (``core/conversation/cache_marks.py``)."""
    calibrate: bool = False
    """Whether the marks follow the provider's own counts (``core/planning/calibration.py``); FR-1.1.5 says no."""

    def answers_commands(self, dialect: str) -> bool:
        """Return whether commands in a dialect are answered.

        :param dialect: the dialect's name
        """
        return self.commands and dialect in self.command_dialects


@frozen
class ModelProfile:
    """A request's model: its window and its policy."""

    name: str
    window: ModelWindow
    policy: CompactionPolicy
    density: float = 1.0
    """The provider's tokens for each local one, as learned from an overflow. A calibrated model uses it until a reply
    gives a better value."""
    whole_reply: bool = False
    """Whether the upstream refuses a request whose input and requested reply together exceed the window. vLLM does; a
    refusal teaches it."""
    price: ModelPrice | None = None
    """None if no source states it."""


@frozen
class Budget:
    """The marks of one request, all in tokens."""

    window: int
    limit: int
    """The most that may be forwarded."""
    high_water: int
    """Above this a compaction is due."""
    prepare_mark: int
    low_water: int
    """A compaction brings the request to at most this, if its fixed parts allow."""
    retention: int
    max_summary: int
    """Bound of the whole summary message, in a talk."""
    min_tokens: int
    max_recall: int = 0
    """Bound of the earlier messages that are put back for one question; 0 for none."""
    max_work_summary: int = 0
    """Bound of the summary message for an agent's work; 0 if it is the same as in a talk."""
    price: ModelPrice | None = None
    """What sets the marks of each conversation; None if they are the same for all of them."""

    def summary_for(self, work_share: float) -> int:
        """Return the bound of a summary message, between those of a talk and of an agent's work.

        :param work_share: of the conversation (``kinds.py``)
        """
        if not self.max_work_summary:
            return self.max_summary
        return self.max_summary - int((self.max_summary - self.max_work_summary) * work_share)


def budget_for(
    profile: ModelProfile, max_output_tokens: int | None, retention: int | None = None, *, least_reply: bool = False
) -> Budget:
    """Return the budget of one request.

    :param max_output_tokens: the reply length that the request asks for, which sets the reserve (docs/compaction.md)
    :param retention: the request's own retention in tokens (FR-2.2.2), in place of the policy's and of the low water
    :param least_reply: reserve the least that a reply gets, for a request that does not fit beside more
    """
    window, policy = profile.window, profile.policy
    margin = round(policy.margin * window.window)
    reserve = reply_reserve(window, max_output_tokens, whole=profile.whole_reply, margin=margin)
    if least_reply:
        reserve = min(reserve, max(int(LEAST_REPLY_SHARE * window.window), LEAST_REPLY_TOKENS))
    limit = max(min(window.max_input_tokens, window.window - reserve) - margin, 0)
    price = price_for(profile, limit)
    mark = policy.threshold if policy.threshold > 1 else policy.threshold * window.window
    high_water = min(int(mark), limit) if price is None else policy.price_floor
    is_absolute = price is not None or policy.threshold > 1
    whole, target = high_water if is_absolute else limit, policy.target if price is None else PRICE_TARGET
    low_water, max_summary = min(int(target * whole), high_water), summary_bound(policy, whole)
    if retention is not None:  # the client's own comes before the low water
        low_water = high_water if price is None else min(max(low_water, retention + max_summary), limit)
    return Budget(
        window=window.window,
        limit=limit,
        high_water=high_water,
        prepare_mark=int(policy.prepare * high_water),
        low_water=low_water,
        retention=max(policy.retention_tokens, int(policy.retention_ratio * whole)) if retention is None else retention,
        max_summary=max_summary,
        max_work_summary=0 if policy.max_summary_tokens is not None else summary_bound(policy, whole, work=True),
        min_tokens=min(policy.min_tokens, limit // 2),
        max_recall=recall_bound(policy, whole),
        price=price,
    )


def above_head(budget: Budget, policy: CompactionPolicy, head_tokens: int) -> Budget:
    """Return the budget of a conversation whose head is above the low water: its marks count from the head.

    Otherwise a compaction would end just below the high water, or a summary be prepared as soon as one is in use. In a
    small window, the tools of an agent alone are such a head.
    """
    space = budget.high_water - head_tokens
    if space <= 0 or head_tokens < budget.low_water:
        return budget
    low_water = head_tokens + space * budget.low_water // budget.high_water
    prepare_mark = max(head_tokens + int(policy.prepare * space), budget.prepare_mark)
    return replace(budget, low_water=low_water, prepare_mark=prepare_mark)


def price_for(profile: ModelProfile, limit: int) -> ModelPrice | None:
    """Return the price that sets a model's marks; None if the threshold does.

    A model without a price, one that costs nothing, and one whose limit is below the floor have their usual marks.
    """
    price, policy = profile.price, profile.policy
    if not policy.by_price or price is None or price.is_free or limit <= policy.price_floor:
        return None
    return price


def reply_reserve(window: ModelWindow, max_output_tokens: int | None, *, whole: bool = False, margin: int = 0) -> int:
    """Return the tokens to leave free for the reply: what the request asks for, within what the model can write.

    It is at most the model's longest reply, if that is known, and at most half of the window: agents send one large
    number for every model (opencode 32,000), as a bound. Without a number it is the longest reply, and if that is not
    known either, a quarter of the window.

    :param whole: leave free all that the request asks for, if that leaves any input beside ``margin`` tokens; without
        a number as much as an upstream may keep free of itself
    """
    half = window.window // 2
    if max_output_tokens is None:
        unknown = DEFAULT_OUTPUT_TOKENS if whole else unknown_reply(window.window)
        return min(window.max_output_tokens or unknown, half)
    if whole and max_output_tokens < window.window - margin:
        return max_output_tokens
    return min(max_output_tokens, window.max_output_tokens or max_output_tokens, half)


def unknown_reply(window: int) -> int:
    """Return the tokens to leave free for a reply whose length neither the request nor a source states."""
    return min(DEFAULT_OUTPUT_TOKENS, int(UNKNOWN_REPLY_SHARE * window))


def recall_bound(policy: CompactionPolicy, limit: int) -> int:
    """Return the bound of the messages that are recalled for one question, at most half of ``limit``.

    It is as configured. ``auto`` is 8 % of the limit between 400 and 2,000 tokens; 0 if 400 are over 20 %.
    """
    if policy.max_recall_tokens is not None:
        return min(policy.max_recall_tokens, limit // 2)
    if limit * MOST_RECALL_SHARE < LEAST_SHARE_TOKENS:
        return 0
    return min(max(int(RECALL_SHARE * limit), LEAST_SHARE_TOKENS), MOST_RECALL_TOKENS)


def summary_bound(policy: CompactionPolicy, limit: int, *, work: bool = False) -> int:
    """Return the bound of a summary message, at most half of ``limit``.

    It is as configured. ``auto`` is a share of the limit: 30 % in a talk and 10 % in an agent's work if lines are
    chosen (``extractive``), 10 and 5 % if a model writes. It is at least 256 tokens, and at most 16,384 or 4,096.
    """
    wanted = policy.max_summary_tokens
    if wanted is None:
        shares, ceiling = TALK_SUMMARY_SHARES, SUMMARY_CEILING_TOKENS
        if work:
            shares = WORK_SUMMARY_SHARES
        share = shares[policy.strategy != "extractive"]
        if policy.strategy == "extractive":
            ceiling = CHOSEN_CEILING_TOKENS
        wanted = min(max(int(share * limit), SUMMARY_FLOOR_TOKENS), ceiling)
    return max(min(wanted, limit // 2), MIN_SUMMARY_TOKENS)
