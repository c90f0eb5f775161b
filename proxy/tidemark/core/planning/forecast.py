"""What a conversation would be today, had it been compacted so far: for shadow mode, which compacts nothing.

The plan decides for each of its requests, with summaries that nobody writes: each counts with the tokens that it would
probably have. ``pipeline/shadow.py`` goes on from the forecast of the request before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate

from tidemark.core.conversation.summary import MaskedResults, PrefixSummary, SummaryRecipe
from tidemark.core.frozen import frozen
from tidemark.core.planning.candidates import Candidates
from tidemark.core.planning.plan import plan, plan_ahead
from tidemark.core.planning.price import answer_places
from tidemark.core.planning.situation import CannotFit, Compact, MaskResults, PlanInput, SwapSummary

WRITTEN_RATIO, LEAST_WRITTEN = 20, 500
"""A model writes about a twentieth of what it replaces, and seldom fewer tokens than these."""
MOST_REQUESTS = 16
"""The most requests that are gone through at once: each is planned anew, which takes longer the longer it is."""
_RECIPE = SummaryRecipe("extractive", "", 0)


@frozen
class Forecast:
    """What one request would have been."""

    tokens: int
    """Of what would have been forwarded."""
    compacted: bool = False
    """Whether a summary would have come into use with this very request."""
    head_tokens: int = 0
    """If so, what stands before that summary."""
    replaced_tokens: int = 0
    """If so, what the summary stands for that the one before did not, and that one."""
    compactions: int = 0
    """How many there would have been until now."""
    summary: PrefixSummary | None = None
    """The summary in use, without its text."""
    prepared: PrefixSummary | None = None
    count: int = 0
    """The messages of the request."""
    last_digest: bytes = b""
    """Of the newest of them."""

    def continues(self, plan_input: PlanInput) -> bool:
        """Return whether a request goes on from the one of this forecast."""
        messages = plan_input.messages
        return 0 < self.count <= len(messages) and messages[self.count - 1].digest == self.last_digest


def forecast(plan_input: PlanInput, earlier: Forecast | None = None) -> Forecast:
    """Return what a request would have been.

    :param plan_input: of the request as it came, without any summary
    :param earlier: the forecast of an earlier request of the conversation; without one, the newest requests are gone
        through, as if nothing had been compacted before
    """
    latest = earlier if earlier is not None and earlier.continues(plan_input) else Forecast(0)
    tokens_before = [0, *accumulate(plan_input.tokens)]
    for end in [*_ends(plan_input, latest.count)][-MOST_REQUESTS:]:
        whole_tokens = plan_input.other_tokens + tokens_before[end]
        if latest.summary is None and whole_tokens <= plan_input.budget.prepare_mark:
            latest = replace(latest, tokens=whole_tokens)
        else:
            latest = _next(_request_of(plan_input, end, latest), latest)
        latest = replace(latest, count=end, last_digest=plan_input.messages[end - 1].digest)
    return latest


def _ends(plan_input: PlanInput, first: int) -> Iterator[int]:
    """Yield how many messages each request had: all before an answer, and at last all."""
    yield from (place for place in answer_places(plan_input.messages) if place > first)
    yield len(plan_input.messages)


def _request_of(plan_input: PlanInput, end: int, latest: Forecast) -> PlanInput:
    """Return the plan's input of an earlier request, with the summaries that there would have been."""
    summary, prepared = latest.summary, latest.prepared
    return replace(
        plan_input,
        messages=plan_input.messages[:end],
        tokens=plan_input.tokens[:end],
        mode="auto",
        summary=summary,
        summary_tokens=summary.tokens if summary else 0,
        prepared=prepared,
        prepared_tokens=prepared.tokens if prepared else 0,
        is_cold=plan_input.is_cold and end == len(plan_input.messages),
    )


def _next(plan_input: PlanInput, latest: Forecast) -> Forecast:
    """Return the forecast of a request after the one before it."""
    planned = plan(plan_input)
    summary, prepared = latest.summary, latest.prepared
    compacted, head_tokens, replaced_tokens = isinstance(planned, Compact | SwapSummary | MaskResults), 0, 0
    if isinstance(planned, Compact):
        summary, prepared = _expected(planned, plan_input), None
        tokens = planned.rest_tokens + summary.tokens
    elif isinstance(planned, SwapSummary):
        summary, prepared, tokens = planned.summary, None, planned.tokens
    elif isinstance(planned, MaskResults):
        summary, tokens = _masked(planned, plan_input), planned.tokens
    elif isinstance(planned, CannotFit):
        tokens = plan_input.total
    else:
        tokens = planned.tokens
    if isinstance(planned, Compact | SwapSummary | MaskResults):
        head_tokens = Candidates(plan_input).head_tokens
        replaced_tokens = 0 if isinstance(planned, MaskResults) else planned.replaced_tokens
    coming = plan_ahead(replace(plan_input, summary=summary, summary_tokens=summary.tokens if summary else 0))
    if coming is not None:
        prepared = _expected(coming, plan_input)
    return Forecast(
        tokens,
        compacted,
        head_tokens,
        replaced_tokens,
        compactions=latest.compactions + compacted,
        summary=summary,
        prepared=prepared,
    )


def _expected(planned: Compact, plan_input: PlanInput) -> PrefixSummary:
    """Return a summary without a text, of the tokens that it would probably have."""
    tokens = planned.max_summary_tokens
    if plan_input.policy.strategy != "extractive":
        tokens = min(tokens, max(planned.replaced_tokens // WRITTEN_RATIO, LEAST_WRITTEN))
    return PrefixSummary(
        b"", planned.covered, "", _RECIPE, "extractive", "automatic", 0.0, tokens=tokens, absorbed=planned.absorbed
    )


def _masked(planned: MaskResults, plan_input: PlanInput) -> PrefixSummary:
    """Return results with empty lines, of the tokens that all stands with that they are among."""
    before = planned.upon
    base, lines = (before.base, before.masked.lines if before.masked else ()) if before else (None, ())
    masked = MaskedResults(base, (*lines, *((position, "") for position in planned.positions)))
    absorbed = base.absorbed if base else ()
    rest = Candidates(replace(plan_input, summary=before)).rest_tokens(planned.covered)
    tokens = planned.tokens - rest
    return PrefixSummary(
        b"",
        planned.covered,
        "",
        _RECIPE,
        "extractive",
        "automatic",
        0.0,
        tokens=tokens,
        absorbed=absorbed,
        masked=masked,
    )
