"""The plan: decides from token counts what to do with a request.

It comes after the count, and before clipping and compaction. ``plan`` takes the messages, their counts, the budget and
the newest summaries, and returns one of six outcomes, which ``pipeline/fit.py`` performs. ``plan_ahead`` returns the
summary to prepare after the response. Neither renders anything, so a summary that does not exist yet counts with its
bound.
"""

from __future__ import annotations

from dataclasses import replace

from tidemark.core.conversation.summary import PrefixSummary, SummaryRecipe
from tidemark.core.planning.budget import Budget, CompactionPolicy
from tidemark.core.planning.candidates import Candidates
from tidemark.core.planning.situation import CannotFit, Compact, CompactionPlan, Mode, NoCompaction, PlanInput

_UNKNOWN = SummaryRecipe("extractive", "", 0)
FAR_RATIO = 0.25
"""A prepared summary is replaced if more than this share of what must stay is left beside it.

If a turn is smaller than that share, a turn is enough.
"""
GAIN_RATIO = 0.75
"""The share of the excess that another preparation must remove, since each may ask a model."""
LAST_GAIN_RATIO = 0.5
"""The same share if the next turns will probably cross the high water."""
TURN_MESSAGES = 2
"""A reply and the next question: the newest messages by which the size of a turn is estimated."""
SOON_TURNS = 2
"""The high water is near if this many turns would cross it."""


def plan(plan_input: PlanInput) -> CompactionPlan:
    """Decide what to do with a request (FR-1.2, FR-1.3, FR-2.2, FR-5.3, FR-5.4)."""
    budget, is_summarized = plan_input.budget, plan_input.summary is not None
    at_once = plan_at_once(plan_input.total, budget, plan_input.policy, plan_input.mode, summarized=is_summarized)
    if at_once is not None:
        return at_once
    candidates = Candidates(plan_input)
    current = candidates.current()
    if plan_input.mode == "force":
        planned = candidates.plan_forced(current)
    elif current.tokens <= candidates.budget.high_water:
        planned = current
    else:
        planned = candidates.plan_due(current)
    if plan_input.settled is not None and _is_crowded(planned, budget):
        return plan(replace(plan_input, settled=None))
    if isinstance(planned, CannotFit) and plan_input.asks_provider:
        return plan(replace(plan_input, asks_provider=False))
    if isinstance(planned, CannotFit) and candidates.summary is not None:
        # The stored summary was made for a larger window, or covers too much: plan a new one (FR-5.3.1). If messages
        # were left out, that needs them.
        return plan(replace(plan_input, summary=None))
    return planned


def _is_crowded(planned: CompactionPlan, budget: Budget) -> bool:
    """Return whether a plan leaves a request above its high water, or cannot be performed."""
    if isinstance(planned, Compact):
        return planned.rest_tokens + planned.max_summary_tokens > budget.high_water
    return isinstance(planned, CannotFit)


def plan_at_once(
    total: int, budget: Budget, policy: CompactionPolicy, mode: Mode, *, summarized: bool
) -> NoCompaction | None:
    """Decide by the size alone, without a look at the messages, as most requests allow; else None.

    :param summarized: whether there is a summary, which would be reused
    """
    if mode in ("off", "shadow"):
        return NoCompaction(mode, total)
    if mode == "auto" and not policy.enabled:
        return NoCompaction("disabled", total)
    if mode == "auto" and not summarized and total <= budget.high_water:
        return NoCompaction("fits", total)
    return None


def plan_ahead(plan_input: PlanInput) -> Compact | None:
    """Plan a preparation; None while it is too early, already made, or would free too little.

    The prepared summary comes into use when the high water is crossed, and the messages until then will follow it. So
    of the present messages fewer must stay, by the tokens that are left up to the high water.
    """
    budget, policy = plan_input.budget, plan_input.policy
    early = plan_input.summary is None and plan_input.total <= budget.prepare_mark
    if plan_input.mode != "auto" or not policy.enabled or early:
        return None
    candidates = Candidates(plan_input)
    budget, current = candidates.budget, candidates.current()
    if not budget.prepare_mark < current.tokens <= budget.high_water:
        return None
    if candidates.total < budget.min_tokens or candidates.count < policy.min_messages:
        return None
    coming = budget.high_water - current.tokens
    waiting = candidates.prepared()
    if waiting is not None:
        return _nearer(candidates, waiting, coming)
    # If results can be masked then, no summary will be needed.
    planned = _next(candidates, coming) if candidates.masked(current.tokens, coming) is None else None
    if planned is None:
        return None
    gain = current.tokens - (planned.rest_tokens + planned.max_summary_tokens)
    return planned if gain >= policy.min_gain * budget.high_water else None  # as when it is to come into use


def _next(candidates: Candidates, coming: int) -> Compact | None:
    """Plan the next summary, if ``coming`` tokens arrive before it is used."""
    retention = candidates.budget.retention
    # The request that crosses the high water adds a message, so one less of the present ones is needed.
    choices = [covered for covered in candidates.candidates() if candidates.keeps_last_messages(covered - 1)]
    after = candidates.client_tokens_after
    within = [covered for covered in choices if after(covered) <= retention - coming] or choices[-1:]
    # One cut before those within the retention is offered too, so that the retention is left at the high water.
    planned = candidates.compact_ahead(choices[max(len(choices) - len(within) - (coming < retention), 0) :], coming)
    if planned is None:
        return None
    then = planned.rest_tokens + planned.max_summary_tokens + coming
    return planned if candidates.pays(candidates.budget.high_water, then, planned.replaced_tokens) else None


def _nearer(candidates: Candidates, waiting: Candidates, coming: int) -> Compact | None:
    """Plan a summary in place of a prepared one that would leave far more messages than must stay.

    All messages up to the high water follow a summary that was prepared early. If the policy retains fewer (FR-1.3,
    S2), the next summary continues from it once most of those messages have arrived.
    """
    budget, count = candidates.budget, candidates.count
    floor = candidates.client_tokens_after(max(count - max(candidates.plan_input.policy.keep_last_messages, 1), 0))
    must_stay, turn = max(budget.retention, floor), candidates.client_tokens_after(max(count - TURN_MESSAGES, 0))
    remaining = waiting.client_tokens_after(waiting.start) + coming
    if budget.high_water - budget.prepare_mark <= (1 + FAR_RATIO) * budget.retention:
        return None  # all messages between the marks must stay, as with the default retention
    if remaining <= must_stay + min(FAR_RATIO * must_stay, turn):
        return None
    # A summarizer that uses the provider's prompt cache continues from the summary in use, which is forwarded.
    continues_in_use = candidates.plan_input.policy.summarizer_cache_friendly or candidates.plan_input.asks_provider
    planned = _next(candidates if continues_in_use else waiting, coming)
    if planned is None:
        return None
    gain = waiting.client_tokens_after(waiting.start) - waiting.client_tokens_after(planned.covered)
    wanted = LAST_GAIN_RATIO if coming <= SOON_TURNS * turn else GAIN_RATIO
    return planned if gain >= wanted * (remaining - must_stay) else None


def least_tokens(plan_input: PlanInput) -> int:
    """Return the fewest tokens that a compaction can bring a request to."""
    return Candidates(replace(plan_input, settled=None)).least_tokens()


def rest_tokens(plan_input: PlanInput, covered: int) -> int:
    """Return the tokens of a request beside what stands for its first ``covered`` client messages."""
    return Candidates(plan_input).rest_tokens(covered)


def would_help(plan_input: PlanInput, covered: int, absorbed: tuple[bytes, ...] = ()) -> bool:
    """Return whether a summary in preparation is worth waiting for, if it has its largest size.

    :param covered: how many messages it will stand for
    :param absorbed: digests of the system messages that it will absorb
    """
    candidates = Candidates(plan_input)
    expected = PrefixSummary(b"", covered, "", _UNKNOWN, "extractive", "prepared", 0.0, absorbed=absorbed)
    with_expected = replace(plan_input, prepared=expected, prepared_tokens=candidates.max_summary)
    return Candidates(with_expected, candidates.cuts).swap(candidates.current()) is not None
