"""This step clips the results that ``core/planning/clip.py`` found too large, and reports what came of it.

On the road of a request, between the plan that found that it cannot fit and the one that can. Only what is forwarded is
clipped: identity, store and console keep the client's own messages (promise 6).
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from proxy.compaction.clipping import clip_request
from proxy.core.planning.clip import Clip
from proxy.core.ports import TokenCounter
from proxy.core.report import Report
from proxy.pipeline.identify import RequestContext


@dataclass(frozen=True, slots=True)
class Clipped:
    """A request with smaller results."""

    case: RequestContext
    """To plan with: its messages and counts are those of what may be forwarded."""
    clips: int
    before: int
    """Tokens of the clipped messages as they came."""
    after: int
    original: RequestContext

    def told(self, report: Report, *, sent: bool) -> Report:
        """The report of the client's own request.

        :param sent: whether the clipped messages are forwarded, and not none or the client's own
        """
        whole, told = self.original.count.total, self.original.measure.told
        report = replace(report, tokens_before=told(whole))
        if not sent:
            as_it_came = report.local_tokens == self.case.count.total
            return replace(report, tokens_after=told(whole), local_tokens=whole) if as_it_came else report
        results = "1 tool result" if self.clips == 1 else f"{self.clips} tool results"
        warning = f"clipped {results} in the middle, {told(self.before)} tokens to {told(self.after)}"
        return replace(report, warning=f"{warning}; {report.warning}" if report.warning else warning)


async def clip(case: RequestContext, clips: tuple[Clip, ...], counter: TokenCounter) -> Clipped:
    """Rewrite the messages that ``clips`` names and count them again."""
    before = sum(case.count.messages[one.place] for one in clips)
    request, count = await clip_request(case.request, case.count, clips, case.route.upstream_model, counter)
    after = sum(count.messages[one.place] for one in clips)
    return Clipped(replace(case, request=request, count=count, unclipped=case), len(clips), before, after, case)
