"""Notices: the warnings and refusals of a request that could not be handled as asked, in words.

The step ``fit`` and compaction by hand decide that one is due. Warnings become ``X-Tidemark-Warning``, errors the
answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from http import HTTPStatus

from tidemark.compaction.order import NotSummarized
from tidemark.core.base_urls import lacks_version
from tidemark.core.conversation.prompt_changes import PromptChange
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import CompactionFailed, ContextLengthExceeded
from tidemark.core.planning.budget import ModelProfile
from tidemark.core.planning.situation import Reason
from tidemark.core.ports import Route, UpstreamReply
from tidemark.core.report import Report
from tidemark.pipeline.values import RequestContext

WARNINGS = {
    "small_gain": "not compacted: it would free too little",
    "below_minimum": "not compacted: the conversation is below the minimum",
    "nothing_to_summarize": "nothing to summarize: no older message can be cut off from the newest",
}
"""By the reason why a compaction that was due was not done; ``retained`` has words of its own."""
ATTRIBUTION = "x-anthropic-billing-header:"
"""Begins the first block of Claude Code's system text. Some versions write a hash of each request into it."""
ATTRIBUTION_MEND = "it is Claude Code's attribution, which CLAUDE_CODE_ATTRIBUTION_HEADER=0 leaves out"
NO_SEARCH = "the search of earlier messages is not offered: the request has no space for it"
NO_RECALL = "recalled messages leave until the next compaction: the request has no space for them"
NOT_READY = "recalled messages leave for now: the index of the conversation is not ready"
FULL_RATIO = 0.95
"""FR-5.3.1c, FR-6.1.1: share of the limit above which a context is critically full."""


def not_done_warning(context: RequestContext, reason: Reason) -> str | None:
    """Say why no summary was made; None if nobody waited for one."""
    if reason == "left_to_upstream":
        return f"left to the upstream: {context.request.left_to_upstream}"
    if reason != "retained":
        return WARNINGS.get(reason)
    least = context.profile.policy.keep_last_messages
    messages = f" and the last {least} messages" if least > 1 else ""
    return (
        "nothing to summarize: all that no summary stands for has to stay "
        f"(the retention of {context.measure.budget.retention} tokens{messages})"
    )


def by_hand_warning(context: RequestContext, after: int) -> str | None:
    """Warn of a compaction by hand that had little to gain, and was done all the same (FR-5.4.2).

    And of any other one that could not keep what the client wanted.
    """
    measure = context.measure
    if context.controls.mode != "force":
        return _retention_warning(context)
    if after > context.count.total:
        tokens = measure.provider_tokens(context.count.total)
        return f"the request got longer: its {tokens} tokens were too few to summarize"
    if context.count.total < context.budget.min_tokens:
        return f"compacted below the minimum of {measure.budget.min_tokens} tokens"
    return None


def _retention_warning(context: RequestContext) -> str | None:
    """Warn of a retention of the client's own that leaves no space below the mark of compactions."""
    wanted, marks = context.controls.retention, context.measure.budget
    most = marks.high_water if marks.price is None else marks.limit
    if wanted is None or wanted <= most:
        return None
    what = "threshold" if most < marks.limit else "max_input_tokens"
    return f"X-Tidemark-Retention-Tokens is {wanted}, and requests are compacted to {most} tokens: raise {what}"


def is_full(context: RequestContext, tokens: int) -> bool:
    """Return whether so many tokens, counted locally, fill the request's limit critically."""
    return tokens > FULL_RATIO * context.measure.marks.limit


def with_full_warning(context: RequestContext, report: Report) -> Report:
    """Add the warning of a full context to a report (FR-5.3.1c)."""
    limit = context.measure.budget.limit
    notice = (
        f"the context is critically full: {report.tokens_after} of {limit} tokens after all that could be done; "
        "shorten the newest message, the system messages or the tools, or begin a new conversation"
    )
    return replace(report, warning=f"{report.warning}; {notice}" if report.warning else notice)


def with_less_reply_warning(context: RequestContext, report: Report) -> Report:
    """Say that a request was sent with less space for its reply than is reserved, if it was.

    :param context: with the usual limit
    """
    if report.local_tokens <= context.budget.limit:
        return report
    budget = context.measure.budget
    notice = (
        f"the reply has less space: the request is above its usual limit of {budget.limit} tokens and leaves "
        f"{budget.window - report.tokens_after} of the window's {budget.window}"
    )
    return with_warning(report, notice)


def with_warning(report: Report, notice: str | None) -> Report:
    """Add a notice to the warning of a report, if there is one."""
    if notice is None:
        return report
    return replace(report, warning=f"{notice}; {report.warning}" if report.warning else notice)


def with_cache_break(request: ModelRequest, change: PromptChange, report: Report) -> Report:
    """Say which part of its earlier request the client has changed."""
    notice = (
        f"the client changed what it sent before: {change.words}, and a provider's prompt cache breaks there; "
        "said once a conversation"
    )
    if change.part == "system" and _is_attribution(request, change.index):
        notice += f" ({ATTRIBUTION_MEND})"
    return with_warning(replace(report, cache_break=change.words), notice)


def _is_attribution(request: ModelRequest, index: int) -> bool:
    """Return whether a part of the system text is the block by which Claude Code is attributed."""
    system = request.billed_members.get(request.dialect.system_member)
    block = system[index] if isinstance(system, list) and index < len(system) else None
    text = block.get("text") if isinstance(block, dict) else None
    return isinstance(text, str) and text.startswith(ATTRIBUTION)


def with_base_warning(report: Report, reply: UpstreamReply, route: Route) -> Report:
    """Say where a 404 probably comes from: the base URL of the upstream has no version."""
    if reply.status != HTTPStatus.NOT_FOUND or not route.speaks_openai or not lacks_version(route.base_url):
        return report
    notice = "the upstream has no such path, and its base URL does not end in /v1, as nearly every server wants it"
    return with_warning(report, notice)


def with_left_out_warning(report: Report, names: Sequence[str]) -> Report:
    """Say which members of a request its upstream never got, because it speaks chat completions only."""
    notice = f"the upstream speaks chat completions only, so {' and '.join(names)} was left out"
    return with_warning(report, notice)


def compaction_failed(context: RequestContext, result: NotSummarized) -> CompactionFailed:
    """Return the refusal of a request without a summary that the policy does not forward (FR-5.1.1, FR-5.1.2)."""
    if context.controls.mode == "force":
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


def does_not_fit(context: RequestContext, least: int) -> ContextLengthExceeded:
    """Return the refusal of a request that is too large, in OpenAI's words and with the numbers (FR-5.3.1)."""
    measure = context.measure
    window, limit = measure.budget.window, measure.budget.limit
    total, least = measure.provider_tokens(context.count.total), measure.provider_tokens(least)
    return ContextLengthExceeded(
        f"This model's maximum context length is {window} tokens, of which {limit} are left for the input beside "
        f"the reply and a safety margin. However, your messages resulted in {total} tokens, "
        f"and at least {least} remain when all that can be summarized is. Please reduce the length of "
        "the newest message, the tools or the reply, or correct the model's window in model_info."
    )


def replay_warning(before: ModelProfile, after: ModelProfile, warning: str | None) -> str:
    """Return the warning of a request that was sent again after the upstream refused it as too long.

    :param before: the model as it was known
    :param after: the model as the refusal taught it
    :param warning: what else there is to say
    """
    if after.whole_reply and not before.whole_reply:
        notice = (
            f"the upstream's window of {after.window.window} tokens does not hold the input and the whole reply asked "
            "for; sent again with space for both"
        )
    else:
        notice = f"the upstream's window is smaller than known; learned {after.window.window} tokens and sent again"
    return f"{notice}; {warning}" if warning else notice
