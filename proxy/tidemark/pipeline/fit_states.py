"""The states of the step ``fit`` beside the outcomes of a plan: each has what the next work needs.

``fit.py`` goes from state to state. A state belongs to an attempt, and a new plan begins a new attempt.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.errors import ContextLengthExceeded
from tidemark.core.frozen import frozen
from tidemark.core.planning.situation import Compact, CompactionPlan, NoCompaction, Reason, ReuseSummary
from tidemark.core.recall.epoch import EpochRecall
from tidemark.pipeline.clip import ClippedRequest
from tidemark.pipeline.notices import NO_SEARCH, with_less_reply_warning, with_warning
from tidemark.pipeline.values import FittedRequest, Refused, RequestContext


@frozen
class Attempt:
    """One attempt to bring a request within a limit, and what was done since its first plan."""

    whole: RequestContext
    """The request as it came, for this limit."""
    context: RequestContext
    """The request as it is planned: ``whole``, until it was clipped or waited for a summary."""
    gives_up: Literal["search", "reply"] | None = None
    """What the request goes without: the search function, or space for its reply as well."""
    has_search_tokens: bool = True
    """As of ``FittedRequest``."""
    clipped: ClippedRequest | None = None
    deadline: float | None = None
    """By the event loop's clock: until when it may wait for a summary; None before it waited."""
    crowded: PutBack | None = None
    """What did not fit beside the summary in use, so that a prepared one came into use."""


@frozen
class Unplanned:
    """The request is to be planned: for the first time, after it was clipped, or after it waited."""

    attempt: Attempt


@frozen
class Summarize:
    """A summary is to be made, since none is being made that would help."""

    planned: Compact
    deadline: float
    """By the event loop's clock."""
    began: float
    """By the timer: when the wait for it began."""


@frozen
class Performed:
    """A plan was performed: the request fits, or is refused."""

    result: FittedRequest | Refused
    planned: CompactionPlan


@frozen
class Recall:
    """The originals that bear on the questions of a compacted request are to be found."""

    fitted: FittedRequest
    summary: PrefixSummary
    reason: Reason | None
    """As of ``Measure``."""


@frozen
class Crowded:
    """What is recalled does not fit beside the summary in use; a prepared one may leave it the space."""

    attempt: Attempt
    put_back: PutBack
    """What goes out if there is none: no request waits for a summary to make space for recalled messages."""


@frozen
class PutBack:
    """What was recalled is to be put back into a compacted request."""

    fitted: FittedRequest
    recalled: EpochRecall
    reason: Reason | None
    """As of ``Measure``."""


@frozen
class Measure:
    """The request is complete, and its size is to be compared with its limit (FR-5.3.1c)."""

    fitted: FittedRequest
    reason: Reason | None
    """Why the attempt's first plan left the request as it was; None if it did all it could."""


@frozen
class Full:
    """The request fills its limit critically, and its client is to be warned."""

    fitted: FittedRequest


@frozen
class WithoutSearch:
    """The request is too long, and the search function is to leave."""

    refused: Refused


@frozen
class LessReply:
    """The request is too long without the search function, and its reply is to have less space."""

    refused: Refused


State = (
    Unplanned
    | CompactionPlan
    | Summarize
    | Performed
    | Recall
    | Crowded
    | PutBack
    | Measure
    | Full
    | WithoutSearch
    | LessReply
    | FittedRequest
    | Refused
)
"""``FittedRequest`` and ``Refused`` end the step."""


def after_plan(attempt: Attempt, state: Performed) -> Recall | Measure | WithoutSearch | LessReply | Refused:
    """Return what follows a plan: recall if there is a summary, another attempt if it is too long."""
    result, planned = state.result, state.planned
    if attempt.clipped is not None:
        result = attempt.clipped.result_of(result)
    if isinstance(result, Refused):
        if attempt.gives_up == "reply" or not isinstance(result.error, ContextLengthExceeded):
            return result
        return LessReply(result) if attempt.gives_up else WithoutSearch(result)
    reason = attempt.crowded.reason if attempt.crowded else None
    if isinstance(planned, NoCompaction | ReuseSummary) and attempt.context is attempt.whole:
        reason = planned.reason
    return Measure(result, reason) if result.summary is None else Recall(result, result.summary, reason)


def with_attempt_warning(attempt: Attempt, fitted: FittedRequest, usual: RequestContext) -> FittedRequest:
    """Return the request of a later attempt, with a warning that names what it lacks."""
    if attempt.gives_up == "reply":
        report = with_less_reply_warning(usual, fitted.report)
    else:
        report = with_warning(fitted.report, NO_SEARCH) if fitted.summary else fitted.report
    return replace(fitted, report=report, has_search_tokens=attempt.has_search_tokens)
