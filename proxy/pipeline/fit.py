"""Bringing one understood request within its budget: plan, compact, assemble.

The middle of the road of a request, between identity and budget, and the upstream. Every rule is in ``core/``, every
summary is the compactor's; this file turns an outcome of the plan into the messages that are forwarded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from proxy.compaction.background import BackgroundCompaction
from proxy.compaction.compactor import Summarized
from proxy.compaction.immediate import ImmediateCompaction
from proxy.compaction.writer import Clock, CompactionOrder, NotSummarized
from proxy.core.conversation.messages import Message
from proxy.core.conversation.summary import PrefixSummary, render_summary
from proxy.core.planning.assemble import assemble
from proxy.core.planning.clip import Clip, clips_for, could_shrink
from proxy.core.planning.plan import least_tokens, plan, plan_ahead, plan_at_once, would_help
from proxy.core.planning.situation import (
    CannotFit,
    Compact,
    CompactionPlan,
    NoCompaction,
    PlanInput,
    Reason,
    ReuseSummary,
    SwapSummary,
)
from proxy.core.ports import Route, TokenCounter
from proxy.core.report import Action, Report
from proxy.core.values import value
from proxy.offload.threads import offload_if_many
from proxy.pipeline.clip import clip
from proxy.pipeline.identify import RequestContext
from proxy.pipeline.notices import (
    by_hand_warning,
    compaction_failed,
    does_not_fit,
    is_full,
    not_done_warning,
    with_full_warning,
)
from proxy.pipeline.record import Ahead
from proxy.pipeline.values import Refused

Compacting = Callable[[int, int], None]
"""Told how many messages and tokens are being summarized while the client waits (FR-1.6.2)."""


@value
class FittedRequest:
    """What will be forwarded."""

    messages: Sequence[Message]
    report: Report
    changed: bool = True
    summary: PrefixSummary | None = None
    """The one that is in use now."""
    full: bool = False
    """Whether the request is critically near its limit, and no compaction would change that (FR-5.3.1c)."""


class BudgetFitter:
    """Takes ports only; holds no state of its own."""

    def __init__(
        self, *, counter: TokenCounter, compactor: ImmediateCompaction, preparation: BackgroundCompaction, timer: Clock
    ) -> None:
        self._counter = counter
        self._compactor = compactor
        self._preparation = preparation
        self._timer = timer

    def plan(self, case: RequestContext) -> CompactionPlan:
        """What is to be done with a request."""
        return _at_once(case) or plan(self._situation(case))

    async def fit(self, case: RequestContext, compacting: Compacting) -> FittedRequest | Refused:
        """Plan, and perform the plan; a request that stays critically large is sent with a warning."""
        planned = _at_once(case) or await self._planned(case)
        if isinstance(planned, NoCompaction):
            fitted = self._unchanged(case, planned)
            return self._judged(case, fitted, planned.reason) if is_full(case, planned.tokens) else fitted
        done = await self._fitted(case, planned, compacting)
        if isinstance(done, Refused) or not is_full(case, done.report.local_tokens):
            return done
        return self._judged(case, done, planned.reason if isinstance(planned, ReuseSummary) else None)

    async def _fitted(
        self, case: RequestContext, planned: CompactionPlan, compacting: Compacting
    ) -> FittedRequest | Refused:
        """Perform the plan; where that cannot fit, with tool results clipped (FR-5.3.1)."""
        clips: tuple[Clip, ...] = ()
        if isinstance(planned, CannotFit):
            clips = await offload_if_many(len(case.request.messages), partial(clips_for, self._situation(case)))
        if not clips:
            return await self._performed(case, planned, compacting)
        smaller = await clip(case, clips, self._counter)
        fitted = await self._performed(smaller.case, await self._planned(smaller.case), compacting)
        if isinstance(fitted, Refused):
            return replace(fitted, report=smaller.told(fitted.report, sent=False))
        # Where no summary came about, ``passthrough`` wants the request to go out as the client sent it.
        sent = fitted.changed or fitted.report.action != "failed"
        return replace(fitted, report=smaller.told(fitted.report, sent=sent), changed=sent)

    def _judged(self, case: RequestContext, fitted: FittedRequest, reason: Reason | None) -> FittedRequest:
        """Warn of a full context, unless the next compaction will make room (FR-5.3.1c).

        :param reason: why the plan left the request as it was; None where it did all that it could
        """
        if reason == "fits" and not is_full(case, least_tokens(self._situation(case))):
            return fitted
        return replace(fitted, report=with_full_warning(case, fitted.report), full=True)

    async def _planned(self, case: RequestContext) -> CompactionPlan:
        """The same as ``plan``, in a thread where there are very many messages."""
        return await offload_if_many(len(case.request.messages), partial(self.plan, case))

    def could_shrink(self, case: RequestContext) -> bool:
        """Whether there is another way than to forward the request as it came or to refuse it."""
        return could_shrink(self._situation(case))

    def ahead(self, case: RequestContext, report: Report) -> Ahead | None:
        """What to do when the response is out; None where there is nothing to prepare."""
        if report.local_tokens <= case.budget.prepare_mark or report.action not in ("none", "reused"):
            return None
        memory = case.memory
        if memory.degraded or memory.preparing or case.controls.retention is not None:
            return None
        return self._preparing(case)

    def _preparing(self, case: RequestContext) -> Ahead:
        """Prepares what the plan says, under the id that the turn was stored under."""

        async def begin(conversation: str) -> None:
            situation = self._situation(case)
            planned = await offload_if_many(len(situation.messages), partial(plan_ahead, situation))
            if planned is not None:
                await self._preparation.begin(order_of(case, planned), conversation)

        return begin

    def _situation(self, case: RequestContext) -> PlanInput:
        summary = case.memory.summary
        # Of a request with a retention of its own, nobody knew that before.
        prepared = case.memory.prepared if case.controls.retention is None else None
        return PlanInput(
            messages=case.request.messages,
            tokens=case.count.messages,
            fixed=case.count.fixed,
            budget=case.budget,
            policy=case.profile.policy,
            mode=case.controls.mode,
            summary=summary,
            summary_tokens=self._summary_tokens(summary, case.route) if summary else 0,
            prepared=prepared,
            prepared_tokens=self._summary_tokens(prepared, case.route) if prepared else 0,
            summary_first=case.count.summary_first,
        )

    def _summary_tokens(self, summary: PrefixSummary, route: Route) -> int:
        return self._counter.count_message(render_summary(summary), route.upstream_model)

    async def _performed(
        self, case: RequestContext, planned: CompactionPlan, compacting: Compacting
    ) -> FittedRequest | Refused:
        """Every outcome of ``core/planning/plan.py`` has its branch here."""
        if isinstance(planned, Compact):
            return await self._compacted(case, planned, compacting)
        return await self._at_hand(case, planned)

    async def _at_hand(
        self, case: RequestContext, planned: NoCompaction | ReuseSummary | SwapSummary | CannotFit
    ) -> FittedRequest | Refused:
        """What needs no summary to be made."""
        if isinstance(planned, NoCompaction):
            return self._unchanged(case, planned)
        if isinstance(planned, ReuseSummary):
            return self._reused(case, planned)
        if isinstance(planned, SwapSummary):
            return await self._swapped(case, planned)
        error = does_not_fit(case, planned.tokens)
        return Refused(error, case.report("failed", planned.tokens, self._timer()))

    async def _compacted(
        self, case: RequestContext, planned: Compact, compacting: Compacting
    ) -> FittedRequest | Refused:
        """A summary has to be made, or is being made: the client waits, but no longer than the policy says."""
        compacting(planned.covered, planned.replaced_tokens)
        began, loop = self._timer(), asyncio.get_running_loop()
        deadline = loop.time() + case.profile.policy.wait_seconds
        if self._worth_waiting(case):
            case = await self._waited(case, deadline - loop.time())
            case = replace(case, started=case.started + self._timer() - began)
            again = await self._planned(case)
            if not isinstance(again, Compact):
                return await self._at_hand(case, again)
            planned, began = again, self._timer()
        result = await self._compactor.compact(order_of(case, planned), wait_seconds=deadline - loop.time())
        case = replace(case, started=case.started + self._timer() - began)
        if isinstance(result, NotSummarized):
            return self._without_summary(case, planned, result)
        action: Action = "forced" if case.controls.mode == "force" else "compacted"
        return self._with_summary(case, result, planned.rest_tokens + result.tokens, action)

    def _worth_waiting(self, case: RequestContext) -> bool:
        """Whether a summary is being prepared, and is of use here as soon as it is there."""
        if not case.memory.preparing or case.controls.mode != "auto" or case.controls.retention is not None:
            return False
        return would_help(self._situation(case), case.memory.preparing, case.memory.preparing_absorbed)

    async def _waited(self, case: RequestContext, seconds: float) -> RequestContext:
        """The case with the summary that is being prepared, if it comes in time."""
        recipe = self._preparation.recipe_for(case.profile, case.route)
        memory = case.memory
        prepared = await self._preparation.awaited(
            memory.preparing_name, case.chain, memory.preparing, recipe, seconds, absorbed=memory.preparing_absorbed
        )
        return replace(case, memory=replace(memory, prepared=prepared, preparing=0))

    async def _swapped(self, case: RequestContext, planned: SwapSummary) -> FittedRequest | Refused:
        """The prepared summary takes its place."""
        result = await self._compactor.adopt(order_of(case, _as_compaction(planned)), planned.summary)
        after = planned.tokens - self._summary_tokens(planned.summary, case.route) + result.tokens
        return self._with_summary(case, result, after, "compacted")

    def _with_summary(
        self, case: RequestContext, result: Summarized, after: int, action: Action
    ) -> FittedRequest | Refused:
        summary = result.summary
        warning = result.warning or by_hand_warning(case, after)
        report = case.report(action, after, self._timer(), summary=summary, warning=warning, degraded=result.degraded)
        if after > case.budget.limit:
            return Refused(does_not_fit(case, after), replace(report, action="failed"))
        return FittedRequest(assemble(case.request.messages, summary), report, summary=summary)

    def _without_summary(
        self, case: RequestContext, planned: Compact, result: NotSummarized
    ) -> FittedRequest | Refused:
        """No summary could be made: the failure policy decides (FR-5.1.1, FR-5.1.2)."""
        policy = case.profile.policy.on_failure
        warning = f"the summary failed ({policy}): {result.reason}"
        accepted = case.controls.acknowledge or policy == "passthrough"
        if not accepted and (policy == "block" or planned.fallback is None):
            error = compaction_failed(case, result)
            return Refused(error, case.report("failed", case.count.total, self._timer(), warning=warning))
        if isinstance(planned.fallback, ReuseSummary):
            fitted = self._reused(case, planned.fallback)
        else:
            fitted = self._unchanged(case, NoCompaction("fits", case.count.total))
        return replace(fitted, report=replace(fitted.report, action="failed", warning=warning))

    def _unchanged(self, case: RequestContext, planned: NoCompaction) -> FittedRequest:
        action: Action = "bypassed" if planned.reason == "off" else "none"
        report = case.report(action, planned.tokens, self._timer(), warning=not_done_warning(case, planned.reason))
        return FittedRequest(case.request.messages, report, changed=False)

    def _reused(self, case: RequestContext, planned: ReuseSummary) -> FittedRequest:
        summary = planned.summary
        warning = not_done_warning(case, planned.reason)
        report = case.report("reused", planned.tokens, self._timer(), summary=summary, warning=warning)
        return FittedRequest(assemble(case.request.messages, summary), report, summary=summary)


def _at_once(case: RequestContext) -> NoCompaction | None:
    summarized = case.memory.summary is not None
    return plan_at_once(
        case.count.total, case.measure.marks, case.profile.policy, case.controls.mode, summarized=summarized
    )


def order_of(case: RequestContext, planned: Compact) -> CompactionOrder:
    """What is to be made of a plan."""
    came, in_use = case.unclipped or case, (case.memory.summary, case.put_in_use)
    return CompactionOrder(
        plan=planned,
        tenant=case.tenant,
        conversation=case.conversation,
        chain=case.chain,
        profile=case.profile,
        route=case.route,
        caller=case.caller,
        cause="manual" if case.controls.mode == "force" else "automatic",
        degraded=case.memory.degraded,
        request=case.request,
        whole=came.request.messages,
        counted=came.count.messages,
        in_use=max((one for one in in_use if one is not None), key=lambda one: one.covered, default=None),
    )


def _as_compaction(planned: SwapSummary) -> Compact:
    """The order that a prepared summary is the answer to."""
    summary = planned.summary
    return Compact(
        covered=summary.covered,
        messages=(),
        previous=None,
        max_summary_tokens=summary.tokens,
        absorbed=summary.absorbed,
        replaced_tokens=planned.replaced_tokens,
        rest_tokens=0,
        fallback=None,
    )
