"""The plan: what is to be done with a request, decided from counts alone.

On the road of a request after the count, before clipping and compaction. ``plan`` is given what the client sent, how
much each part counts, the budget and the newest summaries, and returns one of five outcomes; others perform it.
``plan_ahead`` says what to prepare once the response is out. They render nothing, so a summary that is yet to be made
is taken at its bound, the largest it may be.
"""

from __future__ import annotations

from dataclasses import replace

from proxy.core.conversation.summary import RunningSummary, SummaryRecipe
from proxy.core.planning.budget import Budget, CompactionPolicy
from proxy.core.planning.candidates import Case
from proxy.core.planning.situation import CannotFit, Compact, CompactionPlan, Mode, NoCompaction, Situation

_UNKNOWN = SummaryRecipe("extractive", "", 0)


def plan(situation: Situation) -> CompactionPlan:
    """Decide what to do with a request (FR-1.2, FR-1.3, FR-2.2, FR-5.3, FR-5.4)."""
    given, budget = situation, situation.budget
    at_once = plan_at_once(given.total, budget, given.policy, given.mode, summarized=given.summary is not None)
    if at_once is not None:
        return at_once
    case = Case(situation)
    current = case.current()
    if situation.mode == "force":
        planned = case.forced(current)
    elif current.tokens <= budget.high_water:
        planned = current
    else:
        planned = case.due(current)
    if isinstance(planned, CannotFit) and case.summary is not None:
        # The stored summary was made for a larger window, or covers too much: make one anew (FR-5.3.1).
        return plan(replace(situation, summary=None))
    return planned


def plan_at_once(
    total: int, budget: Budget, policy: CompactionPolicy, mode: Mode, *, summarized: bool
) -> NoCompaction | None:
    """What to do with a request where its size alone tells: most end here, and no message was looked at.

    :param summarized: whether there is a summary, which then stands for the prefix once more
    """
    if mode == "off":
        return NoCompaction("off", total)
    if mode == "auto" and not policy.enabled:
        return NoCompaction("disabled", total)
    if mode == "auto" and not summarized and total <= budget.high_water:
        return NoCompaction("fits", total)
    return None


def plan_ahead(situation: Situation) -> Compact | None:
    """What to prepare while nobody waits; None while that is too early, done already, or would bring too little.

    The summary is used when the high water is crossed, and the messages that bring the conversation there will
    stand after it. So the room up to the high water is taken off what has to stay of today's messages.
    """
    budget, policy = situation.budget, situation.policy
    if situation.mode != "auto" or not policy.enabled:
        return None
    if situation.summary is None and situation.total <= budget.prepare_mark:
        return None
    case = Case(situation)
    current = case.current()
    if not budget.prepare_mark < current.tokens <= budget.high_water:
        return None
    if case.total < budget.min_tokens or len(case.said) < policy.min_messages or case.prepared() is not None:
        return None
    coming = budget.high_water - current.tokens
    candidates = [covered for covered in case.candidates() if case.holds_floor(covered)]
    kept = case.retained(candidates, max(budget.retention - coming, 0))
    # One cut more, so that no less than the retention stands after it at the high water.
    made = case.ahead(candidates[max(len(candidates) - len(kept) - (coming < budget.retention), 0) :], coming)
    if made is None:
        return None
    after = made.rest_tokens + made.max_summary_tokens
    return None if current.tokens - after < policy.min_gain * current.tokens else made


def would_help(situation: Situation, covered: int) -> bool:
    """Whether a summary that is being prepared is worth waiting for: of so many messages, at its bound."""
    case = Case(situation)
    expected = RunningSummary(b"", covered, "", _UNKNOWN, "extractive", "prepared", 0.0, absorbed=tuple(case.told))
    given = replace(situation, prepared=expected, prepared_tokens=situation.budget.max_summary)
    return Case(given, case.cuts).swap(case.current()) is not None
