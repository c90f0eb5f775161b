"""The states of the step ``fit`` beside the five outcomes of a plan: each has what the next work needs.

``fit.py`` goes from state to state. A state belongs to an attempt, and a new plan begins a new attempt.
"""

from __future__ import annotations

from typing import Literal

from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.frozen import frozen
from tidemark.core.planning.situation import Compact, CompactionPlan, Reason
from tidemark.core.recall.epoch import EpochRecall
from tidemark.pipeline.clip import ClippedRequest
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
