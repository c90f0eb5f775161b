"""Notices: what a client is told in words of a request that could not be handled as asked.

Below ``pipeline/fit.py`` and ``archive/summarize.py``, which decide that something is to be told. Warnings become
``X-Tidemark-Warning``, errors the answer.
"""

from __future__ import annotations

from dataclasses import replace

from proxy.compaction.writer import NotSummarized
from proxy.core.errors import CompactionFailed, ContextLengthExceeded
from proxy.core.planning.situation import Reason
from proxy.core.report import Report
from proxy.pipeline.identify import RequestContext

WARNINGS = {
    "small_gain": "not compacted: it would free too little",
    "below_minimum": "not compacted: the conversation is below the minimum",
    "nothing_to_summarize": "nothing to summarize: no older message can be cut off from the newest",
}
"""Where a compaction was asked for or due and yet not done, but for ``retained``."""
FULL_RATIO = 0.95
"""FR-5.3.1c, FR-6.1.1: share of the limit above which a context is critically full."""


def not_done_warning(case: RequestContext, reason: Reason) -> str | None:
    """Say why no summary was made; None where nobody waited for one."""
    if reason != "retained":
        return WARNINGS.get(reason)
    floor = case.profile.policy.keep_last_messages
    messages = f" and the last {floor} messages" if floor > 1 else ""
    return (
        "nothing to summarize: all that no summary stands for has to stay "
        f"(the retention of {case.measure.budget.retention} tokens{messages})"
    )


def by_hand_warning(case: RequestContext, after: int) -> str | None:
    """Warn of a compaction by hand that had little to gain, and was done all the same (FR-5.4.2)."""
    if case.controls.mode != "force":
        return None
    measure = case.measure
    if after > case.count.total:
        return f"the request got longer: its {measure.told(case.count.total)} tokens were too few to summarize"
    if case.count.total < case.budget.min_tokens:
        return f"compacted below the minimum of {measure.budget.min_tokens} tokens"
    return None


def is_full(case: RequestContext, tokens: int) -> bool:
    """Whether so many tokens, counted locally, fill the request's limit critically."""
    return tokens > FULL_RATIO * case.measure.marks.limit


def with_full_warning(case: RequestContext, report: Report) -> Report:
    """Add the warning of a full context to what is told of a request (FR-5.3.1c)."""
    limit = case.measure.budget.limit
    notice = (
        f"the context is critically full: {report.tokens_after} of {limit} tokens after all that could be done; "
        "shorten the newest message, the system messages or the tools, or begin a new conversation"
    )
    return replace(report, warning=f"{report.warning}; {notice}" if report.warning else notice)


def compaction_failed(case: RequestContext, result: NotSummarized) -> CompactionFailed:
    """The refusal where no summary could be made and the policy lets nothing else go out (FR-5.1.1, FR-5.1.2)."""
    if case.controls.mode == "force":
        words = (
            f"No summary could be made, and nothing was changed: {result.reason}. Send the request again to retry, or "
            "without asking for a summary to go on as before."
        )
    else:
        words = (
            "The conversation is due for compaction and its summary failed. Send the request again to retry, or "
            "send it with 'X-Tidemark-Overflow: acknowledge' to forward it as it is."
        )
    return CompactionFailed(words, internal=result.reason, retry_after=result.retry_after)


def does_not_fit(case: RequestContext, least: int) -> ContextLengthExceeded:
    """The refusal of a request that is too large, in OpenAI's words and with the numbers (FR-5.3.1)."""
    measure = case.measure
    window, limit = measure.budget.window, measure.budget.limit
    return ContextLengthExceeded(
        f"This model's maximum context length is {window} tokens, of which {limit} are left for the input beside "
        f"the reply and a safety margin. However, your messages resulted in {measure.told(case.count.total)} tokens, "
        f"and at least {measure.told(least)} remain when all that can be summarized is. Please reduce the length of "
        "the newest message, the tools or the reply, or correct the model's window in model_info."
    )
