"""The plan: what is to be done with a request, decided from counts alone.

On the road of a request after the count, before clipping and compaction. ``plan`` is given what the client sent, how
much each part counts, the budget and the newest summaries, and returns one of five outcomes; others perform it.
``plan_ahead`` says what to prepare once the response is out. They render nothing, so a summary that is yet to be made
is taken at its bound, the largest it may be.
"""

from __future__ import annotations

from dataclasses import replace

from proxy.core.conversation.summary import PrefixSummary, SummaryRecipe
from proxy.core.planning.budget import Budget, CompactionPolicy
from proxy.core.planning.candidates import Candidates
from proxy.core.planning.situation import CannotFit, Compact, CompactionPlan, Mode, NoCompaction, PlanInput

_UNKNOWN = SummaryRecipe("extractive", "", 0)
FAR_RATIO = 0.25
"""A prepared summary that leaves by so much more beside it than has to stay is brought up to date; or by a turn."""
GAIN_RATIO = 0.75
"""Of what stands too much, so much must go by another preparation, since each may ask a model."""
LAST_GAIN_RATIO = 0.5
"""The same where the high water is likely to be crossed soon, and there will be no better time."""
TURN_MESSAGES = 2
"""A reply and what is said to it: so much of the newest is taken for the size of a turn."""
SOON_TURNS = 2
"""The high water is near where so many turns would cross it."""


def plan(situation: PlanInput) -> CompactionPlan:
    """Decide what to do with a request (FR-1.2, FR-1.3, FR-2.2, FR-5.3, FR-5.4)."""
    given, budget = situation, situation.budget
    at_once = plan_at_once(given.total, budget, given.policy, given.mode, summarized=given.summary is not None)
    if at_once is not None:
        return at_once
    case = Candidates(situation)
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


def plan_ahead(situation: PlanInput) -> Compact | None:
    """What to prepare while nobody waits; None while that is too early, done already, or would bring too little.

    The summary is used when the high water is crossed, and the messages that bring the conversation there will
    stand after it. So the room up to the high water is taken off what has to stay of today's messages.
    """
    budget, policy = situation.budget, situation.policy
    early = situation.summary is None and situation.total <= budget.prepare_mark
    if situation.mode != "auto" or not policy.enabled or early:
        return None
    case = Candidates(situation)
    current = case.current()
    if not budget.prepare_mark < current.tokens <= budget.high_water:
        return None
    if case.total < budget.min_tokens or len(case.said) < policy.min_messages:
        return None
    coming = budget.high_water - current.tokens
    waiting = case.prepared()
    if waiting is not None:
        return _nearer(case, waiting, coming)
    made = _next(case, coming)
    if made is None or current.tokens - (made.rest_tokens + made.max_summary_tokens) < policy.min_gain * current.tokens:
        return None
    return made


def _next(case: Candidates, coming: int) -> Compact | None:
    """The next summary, if ``coming`` tokens come before it is used."""
    retention = case.budget.retention
    # Whoever crosses the high water brings a message more, so one less of today's is needed.
    candidates = [covered for covered in case.candidates() if case.holds_floor(covered - 1)]
    kept = [covered for covered in candidates if case.said_after(covered) <= retention - coming] or candidates[-1:]
    # One cut more, so that no less than the retention stands after it at the high water.
    return case.ahead(candidates[max(len(candidates) - len(kept) - (coming < retention), 0) :], coming)


def _nearer(case: Candidates, waiting: Candidates, coming: int) -> Compact | None:
    """A summary in place of the one that waits, where that would leave far more beside it than has to stay.

    A summary that was prepared early is followed by all that is said up to the high water. Where the policy asks for
    less than that (FR-1.3, S2), the next one goes on from it when most of that has been said.
    """
    budget, count = case.budget, len(case.said)
    floor = case.said_after(max(count - max(case.given.policy.keep_last_messages, 1), 0))
    must_stay, turn = max(budget.retention, floor), case.said_after(max(count - TURN_MESSAGES, 0))
    standing = waiting.said_after(waiting.start) + coming
    if budget.high_water - budget.prepare_mark <= (1 + FAR_RATIO) * budget.retention:
        return None  # all that comes between the marks has to stay, as with the default retention
    if standing <= must_stay + min(FAR_RATIO * must_stay, turn):
        return None
    # A summarizer that repeats what is forwarded, for the provider's cache, goes on from the summary in use.
    made = _next(case if case.given.policy.summarizer_cache_friendly else waiting, coming)
    if made is None:
        return None
    gain = waiting.said_after(waiting.start) - waiting.said_after(made.covered)
    wanted = LAST_GAIN_RATIO if coming <= SOON_TURNS * turn else GAIN_RATIO
    return made if gain >= wanted * (standing - must_stay) else None


def least_tokens(situation: PlanInput) -> int:
    """The fewest tokens that a request could be brought to by a summary of all that a cut may take."""
    return Candidates(situation).least()


def would_help(situation: PlanInput, covered: int, absorbed: tuple[bytes, ...] = ()) -> bool:
    """Whether a summary that is being prepared is worth waiting for: of so many messages, at its bound.

    :param absorbed: digests of the system messages that it will tell
    """
    case = Candidates(situation)
    expected = PrefixSummary(b"", covered, "", _UNKNOWN, "extractive", "prepared", 0.0, absorbed=absorbed)
    given = replace(situation, prepared=expected, prepared_tokens=situation.budget.max_summary)
    return Candidates(given, case.cuts).swap(case.current()) is not None
