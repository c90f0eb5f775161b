"""The step ``clip``: shortens tool results that are too large even for a compacted request, and reports it.

It comes after a plan that cannot fit, and a second plan follows it. Only what is forwarded is clipped: identity, store
and console keep the client's own messages (promise 6).
"""

from __future__ import annotations

from dataclasses import replace

from tidemark.compaction.clipping import clip_request
from tidemark.core.frozen import frozen
from tidemark.core.planning.clip import Clip
from tidemark.core.ports import TokenCounter
from tidemark.core.report import Report
from tidemark.pipeline.values import FittedRequest, Refused, RequestContext


@frozen
class ClippedRequest:
    """A request with smaller tool results."""

    context: RequestContext
    """The plan reads this one: it has the clipped messages, which may be forwarded, and their counts."""
    clips: int
    before: int
    """Tokens of the clipped messages as they came."""
    after: int
    original: RequestContext

    def result_of(self, result: FittedRequest | Refused) -> FittedRequest | Refused:
        """Return what came of the clipped request, with the report of the client's own."""
        if isinstance(result, Refused):
            return replace(result, report=self._report_of(result.report, is_forwarded=False))
        # If no summary came about, ``passthrough`` wants the request to go out as the client sent it.
        is_forwarded = result.summary is not None or result.report.action != "failed"
        report = self._report_of(result.report, is_forwarded=is_forwarded)
        if is_forwarded:
            return replace(result, report=report)
        is_changed = self.original.unclipped is not None
        return replace(result, messages=self.original.request.messages, report=report, changed=is_changed)

    def _report_of(self, report: Report, *, is_forwarded: bool) -> Report:
        """Return the report of the client's own request.

        :param is_forwarded: whether the clipped messages are forwarded, and not none or the client's own
        """
        total, provider_tokens = self.original.count.total, self.original.measure.provider_tokens
        if not is_forwarded:
            is_unchanged = report.local_tokens == self.context.count.total
            return replace(report, tokens_after=provider_tokens(total), local_tokens=total) if is_unchanged else report
        results = "1 tool result" if self.clips == 1 else f"{self.clips} tool results"
        before, after = provider_tokens(self.before), provider_tokens(self.after)
        warning = f"clipped {results} in the middle, {before} tokens to {after}"
        return replace(report, warning=f"{warning}; {report.warning}" if report.warning else warning)


async def clip(context: RequestContext, clips: tuple[Clip, ...], counter: TokenCounter) -> ClippedRequest:
    """Rewrite the messages that ``clips`` names, and count them again."""
    before = sum(context.count.messages[clip.place] for clip in clips)
    model = context.route.upstream_model
    request, count = await clip_request(context.request, context.count, clips, model, counter)
    after = sum(count.messages[clip.place] for clip in clips)
    smaller = replace(context, request=request, count=count, unclipped=context.unclipped or context)
    return ClippedRequest(smaller, len(clips), before, after, context)
