"""The step ``fit``: brings a request within its budget, by a plan, a summary and the messages that remain.

It comes after ``identify`` and before the upstream. The rules are in ``core/planning/`` and the summaries are the
compactor's. ``BudgetFitter.fit`` has the whole order: it goes from state to state (``fit_states.py``), and the work of
each state returns the next one.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from functools import partial
from typing import assert_never

from tidemark.compaction.background import BackgroundCompaction
from tidemark.compaction.immediate import ImmediateCompaction
from tidemark.compaction.order import CompactionOrder, NotSummarized, Summarized
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.planning.budget import CompactionPolicy, budget_for
from tidemark.core.planning.clip import Clip, clips_for, could_shrink
from tidemark.core.planning.plan import least_tokens, plan, plan_ahead, plan_at_once, rest_tokens, would_help
from tidemark.core.planning.situation import (
    CannotFit,
    Compact,
    CompactionPlan,
    EarlierMessagesNeeded,
    MaskResults,
    NoCompaction,
    PlanInput,
    ReuseSummary,
    SwapSummary,
)
from tidemark.core.ports import Clock, TokenCounter
from tidemark.core.report import Action, Report
from tidemark.offload.threads import offload_if_many
from tidemark.pipeline.clip import clip
from tidemark.pipeline.fit_states import (
    Attempt,
    Crowded,
    Full,
    LessReply,
    Measure,
    Performed,
    PutBack,
    Recall,
    State,
    Summarize,
    Unplanned,
    WithoutSearch,
    after_plan,
    with_attempt_warning,
)
from tidemark.pipeline.masked_results import ResultMasks
from tidemark.pipeline.native_compaction import NativeCompaction
from tidemark.pipeline.notices import (
    by_hand_warning,
    compaction_failed,
    does_not_fit,
    is_full,
    not_done_warning,
    with_full_warning,
)
from tidemark.pipeline.orders import mask_plan_of, order_of, swap_plan_of
from tidemark.pipeline.recall import Recaller, recall_mark, recalled_before_next, without_recalled
from tidemark.pipeline.search_offers import SearchOffers, without_search
from tidemark.pipeline.values import (
    NO_PROGRESS,
    FittedRequest,
    Prepare,
    Progress,
    Refused,
    RequestContext,
)

Fitted = FittedRequest | Refused


class BudgetFitter:
    """Plans and performs. It takes ports only, and has no state of its own."""

    def __init__(
        self,
        *,
        counter: TokenCounter,
        compactor: ImmediateCompaction,
        preparation: BackgroundCompaction,
        recaller: Recaller,
        timer: Clock,
        natives: NativeCompaction,
        masks: ResultMasks,
        searches: SearchOffers,
    ) -> None:
        self._counter = counter
        self._natives = natives
        self._masks = masks
        self._searches = searches
        self._recaller = recaller
        self._compactor = compactor
        self._preparation = preparation
        self._timer = timer

    def plan(self, context: RequestContext) -> CompactionPlan:
        planned = _plan_at_once(context) or plan(self.plan_input(context))
        if isinstance(planned, NoCompaction | CannotFit):
            _check_whole(context)
        return planned

    async def fit(  # noqa: C901, PLR0912 - one case for each state
        self, context: RequestContext, progress: Progress = NO_PROGRESS
    ) -> Fitted:
        """Bring a request within its limit, or within the one that leaves the least space for the reply.

        The second limit is only for what would be refused: the upstream may be content with a shorter reply. Before
        that, the search function leaves.
        """
        attempt = Attempt(context, context)
        state: State = _plan_at_once(context) or Unplanned(attempt)
        while True:
            match state:
                case NoCompaction() if attempt.context is context and not is_full(context, state.tokens):
                    return self._unchanged(context, state)  # most requests end here
                case Unplanned(attempt):
                    state = await self._planned(attempt.context)
                case NoCompaction():
                    state = Performed(self._unchanged(attempt.context, state), state)
                case ReuseSummary():
                    state = Performed(self._reused(attempt.context, state), state)
                case SwapSummary():
                    state = Performed(await self._swap(attempt.context, state), state)
                case MaskResults():
                    state = Performed(await self._mask(attempt.context, state), state)
                case Compact():
                    state = await self._wait(attempt, state, progress)
                case Summarize():
                    state = Performed(await self._summarize(attempt.context, state), state.planned)
                case CannotFit():
                    state = await self._clip(attempt, state)
                case Performed():
                    state = after_plan(attempt, state)
                case Recall():
                    state = await self._recall(attempt, state)
                case Crowded(attempt, put_back):
                    state = await self._plan_for(attempt.context, put_back)
                case PutBack():
                    fitted = self._recaller.put_back(attempt.whole, state.fitted, state.recalled)
                    state = Measure(fitted, state.reason)
                case Measure():
                    state = self._measure(attempt.whole, state)
                case Full(fitted):
                    state = replace(fitted, report=with_full_warning(attempt.whole, fitted.report), full=True)
                case WithoutSearch():
                    state = self._without_search(attempt.whole, state)
                case LessReply():
                    state = self._with_less_reply(attempt.whole, state)
                case FittedRequest():
                    return state if attempt.gives_up is None else with_attempt_warning(attempt, state, context)
                case Refused():
                    return state
                case _:
                    assert_never(state)

    def could_shrink(self, context: RequestContext) -> bool:
        """Return whether the request, which an upstream refused, can be sent in another way than as it came."""
        if could_shrink(self.plan_input(context)):
            return True
        _check_whole(context)
        # An upstream that counts the whole reply would refuse less space for it again.
        wider = None if context.profile.whole_reply else _with_least_reply(context)
        return wider is not None and could_shrink(self.plan_input(wider))

    def prepare_after(self, context: RequestContext, report: Report) -> Prepare | None:
        """Return what prepares the next summary when the reply has ended; None if nothing is due."""
        if report.local_tokens <= context.budget.prepare_mark or report.action not in ("none", "reused"):
            return None
        stored = context.stored
        if stored.degraded or stored.preparing_count or context.controls.retention is not None:
            return None
        if context.request.left_to_upstream or context.is_shadow:
            return None

        recalled_tokens = recalled_before_next(report, context.budget)

        async def prepare(conversation: str) -> None:
            plan_input = replace(self.plan_input(context, recalled_tokens), lasting=stored.stored_count or None)
            try:
                planned = await offload_if_many(len(plan_input.messages), partial(plan_ahead, plan_input))
            except EarlierMessagesNeeded:  # the next compaction is made when it is due, with all messages
                return
            if planned is not None:
                await self._preparation.begin(self._order(context, planned), conversation)
                self._recaller.begin(context, planned.covered)

        return prepare

    async def _planned(self, context: RequestContext) -> CompactionPlan:
        """Decide the same as ``plan``, in a thread if there are very many messages."""
        return await offload_if_many(len(context.request.messages), partial(self.plan, context))

    async def _plan_for(self, context: RequestContext, put_back: PutBack) -> SwapSummary | PutBack:
        """Plan to use a prepared summary now, so that what is recalled fits; without one, all stays as it is."""
        recalled, bound = put_back.recalled, context.budget.max_recall
        wanted = recalled.share(bound) if recalled.outcome == "no_room" else 0
        crowded = without_recalled(self.plan_input(context), recalled.tokens + wanted)
        planned = await offload_if_many(len(crowded.messages), partial(plan, crowded))
        return planned if isinstance(planned, SwapSummary) else put_back

    async def _clip(self, attempt: Attempt, planned: CannotFit) -> Unplanned | Performed:
        """Clip the tool results of a request that cannot fit; refuse it if that does not help (FR-5.3.1)."""
        context = attempt.context
        clips: tuple[Clip, ...] = ()
        if context is attempt.whole:
            clips = await offload_if_many(len(context.request.messages), partial(clips_for, self.plan_input(context)))
        if clips:
            clipped = await clip(context, clips, self._counter)
            return Unplanned(replace(attempt, context=clipped.context, clipped=clipped))
        error = does_not_fit(context, planned.tokens)
        return Performed(Refused(error, context.report("failed", planned.tokens, self._timer())), planned)

    async def _wait(self, attempt: Attempt, planned: Compact, progress: Progress) -> Unplanned | Summarize:
        """Wait for a summary that is being made, once and if it would help, as long as the policy allows."""
        if attempt.deadline is not None:
            return Summarize(planned, attempt.deadline, self._timer())
        progress.on_summarizing(planned.covered, planned.replaced_tokens)
        context, began, loop = attempt.context, self._timer(), asyncio.get_running_loop()
        deadline = loop.time() + _wait_seconds(context.profile.policy)
        if not self._is_worth_waiting(context):
            return Summarize(planned, deadline, began)
        context = await self._with_preparation(context, deadline - loop.time())
        context = replace(context, started=context.started + self._timer() - began)
        return Unplanned(replace(attempt, context=context, deadline=deadline))

    async def _summarize(self, context: RequestContext, state: Summarize) -> Fitted:
        planned, loop = state.planned, asyncio.get_running_loop()
        self._recaller.begin(context, planned.covered)
        order = self._order(context, planned)
        result = await self._compactor.compact(order, wait_seconds=state.deadline - loop.time())
        context = replace(context, started=context.started + self._timer() - state.began)
        if isinstance(result, NotSummarized):
            return self._without_summary(context, planned, result)
        action: Action = "forced" if context.controls.mode == "force" else "compacted"
        return self._with_summary(context, result, planned.rest_tokens + result.tokens, action)

    async def _recall(self, attempt: Attempt, state: Recall) -> Crowded | PutBack | Measure:
        """Find what the epoch recalls, and whether it fits beside the summary in use."""
        context, fitted = attempt.whole, state.fitted
        earlier = attempt.crowded.recalled if attempt.crowded else None
        recalled = await self._recaller.recall(context, fitted, state.summary) or earlier
        if recalled is None:
            return Measure(fitted, state.reason)
        put_back = PutBack(fitted, recalled, state.reason)
        is_reused = state.reason is not None and earlier is None
        after = fitted.report.local_tokens + recalled.tokens
        is_crowded = recalled.outcome == "no_room" or (recalled.texts and after > recall_mark(context))
        if is_reused and is_crowded:
            return Crowded(replace(attempt, crowded=put_back), put_back)
        return put_back

    def _measure(self, context: RequestContext, state: Measure) -> Full | FittedRequest:
        """Find out whether a request is critically full and the next compaction will not free enough (FR-5.3.1c)."""
        fitted, reason = state.fitted, state.reason
        # What is recalled uses what is free, and would fill no context by itself.
        tokens = fitted.report.local_tokens - fitted.report.local_recalled_tokens
        if reason in ("left_to_upstream", "shadow") or not is_full(context, tokens):
            return fitted
        if reason == "fits" and not is_full(context, least_tokens(self.plan_input(context))):
            return fitted
        return Full(fitted)

    def _without_search(self, context: RequestContext, state: WithoutSearch) -> Unplanned | LessReply:
        """Begin an attempt that has no space for the search function, if this one had."""
        if not self._searches.tokens(context):
            return LessReply(state.refused)
        context = without_search(context)
        return Unplanned(Attempt(context, context, "search", has_search_tokens=False))

    def _with_less_reply(self, context: RequestContext, state: LessReply) -> Unplanned | Refused:
        """Begin an attempt with the limit that leaves the least space for the reply, if that is higher."""
        wider = _with_least_reply(context)
        if wider is None:
            return state.refused
        wider = replace(wider, started=self._timer() - state.refused.report.overhead_seconds)
        return Unplanned(Attempt(wider, wider, "reply", has_search_tokens=self._searches.tokens(wider) > 0))

    def _is_worth_waiting(self, context: RequestContext) -> bool:
        """Return whether a summary is in preparation that would help this request."""
        stored, controls = context.stored, context.controls
        if not stored.preparing_count or controls.mode != "auto" or controls.retention is not None:
            return False
        return would_help(self.plan_input(context), stored.preparing_count, stored.preparing_absorbed)

    async def _with_preparation(self, context: RequestContext, seconds: float) -> RequestContext:
        """Return the context with the summary that is in preparation, if it comes in time."""
        recipe = self._preparation.recipe_for(context.profile, context.route)
        stored = context.stored
        prepared = await self._preparation.awaited(
            stored.preparing_lease,
            context.chain,
            stored.preparing_count,
            recipe,
            seconds,
            absorbed=stored.preparing_absorbed,
        )
        return replace(context, stored=replace(stored, prepared=prepared, preparing_count=0))

    async def _swap(self, context: RequestContext, planned: SwapSummary) -> Fitted:
        result = await self._compactor.adopt(order_of(context, swap_plan_of(planned)), planned.summary)
        after = planned.tokens - self._natives.tokens(context, planned.summary) + result.tokens
        return self._with_summary(context, result, after, "compacted")

    async def _mask(self, context: RequestContext, planned: MaskResults) -> Fitted:
        """Put lines in the place of results; all that was said stays, so no model is asked and nothing leaves."""
        masked = await asyncio.to_thread(self._masks.masked, context, planned)  # it reads and counts each result
        base, upon = masked.base, planned.upon
        earlier = replace(masked, lines=upon.masked.lines if upon and upon.masked else ())
        base_tokens = self._natives.tokens(context, base) if base else 0
        before, after = (base_tokens + self._masks.tokens(context, each, planned.covered) for each in (earlier, masked))
        rest = rest_tokens(replace(self.plan_input(context), summary=upon), planned.covered)
        plan = mask_plan_of(planned.covered, base.absorbed if base else (), before=before, after=after, rest=rest)
        order = order_of(context, plan)
        result = await self._compactor.mask(order, masked)
        return self._with_summary(context, result, rest + result.tokens, "compacted")

    def _with_summary(self, context: RequestContext, result: Summarized, after: int, action: Action) -> Fitted:
        """Return the request with a new summary; a refusal if even that does not fit."""
        summary = result.summary
        warning = result.warning or by_hand_warning(context, after)
        report = context.report(
            action, after, self._timer(), summary=summary, warning=warning, degraded=result.degraded
        )
        if after > context.budget.limit:
            return Refused(does_not_fit(context, after), replace(report, action="failed"))
        return self._fitted(context, summary, report)

    def _without_summary(self, context: RequestContext, planned: Compact, result: NotSummarized) -> Fitted:
        """Return what the failure policy decides if no summary could be made (FR-5.1.1, FR-5.1.2)."""
        policy = context.profile.policy.on_failure
        warning = f"the summary failed ({policy}): {result.reason}"
        accepted = context.controls.acknowledge or policy == "passthrough"
        if not accepted and (policy == "block" or planned.fallback is None):
            error = compaction_failed(context, result)
            return Refused(error, context.report("failed", context.count.total, self._timer(), warning=warning))
        if isinstance(planned.fallback, ReuseSummary):
            fitted = self._reused(context, planned.fallback)
        else:
            fitted = self._unchanged(context, NoCompaction("fits", context.count.total))
        return replace(fitted, report=replace(fitted.report, action="failed", warning=warning))

    def _unchanged(self, context: RequestContext, planned: NoCompaction) -> FittedRequest:
        if context.count.left_out.count:  # each request comes here
            _check_whole(context)
        action: Action = "bypassed" if planned.reason == "off" else "none"
        warning = not_done_warning(context, planned.reason)
        report = context.report(action, planned.tokens, self._timer(), warning=warning)
        return FittedRequest(context.request.messages, report, changed=context.unclipped is not None)

    def _reused(self, context: RequestContext, planned: ReuseSummary) -> FittedRequest:
        summary = planned.summary
        warning = not_done_warning(context, planned.reason)
        report = context.report("reused", planned.tokens, self._timer(), summary=summary, warning=warning)
        return self._fitted(context, summary, report)

    def plan_input(self, context: RequestContext, recalled_tokens: int = 0) -> PlanInput:
        """Return everything that a plan depends on.

        :param recalled_tokens: of the epoch, which leave the conversation so much less below the marks
        """
        budget = context.budget
        if recalled_tokens:
            high_water, prepare_mark = budget.high_water - recalled_tokens, budget.prepare_mark - recalled_tokens
            budget = replace(budget, high_water=high_water, prepare_mark=prepare_mark)
        summary = context.stored.summary
        # A preparation did not know the retention of this request.
        prepared = context.stored.prepared if context.controls.retention is None else None
        return PlanInput(
            messages=context.request.messages,
            tokens=context.count.messages,
            other_tokens=context.count.other_tokens,
            budget=budget,
            policy=context.profile.policy,
            mode=context.mode,
            summary=summary,
            summary_tokens=self._natives.tokens(context, summary) if summary else 0,
            prepared=prepared,
            prepared_tokens=self._natives.tokens(context, prepared) if prepared else 0,
            first_summary_tokens=context.count.first_summary_tokens + self._searches.tokens(context),
            left_out=context.count.left_out,
            asks_provider=self._natives.is_due(context),
            masks_results=context.profile.policy.mask_results,
            is_cold=budget.price is not None and context.idle_seconds > budget.price.cache_seconds > 0,
        )

    def _order(self, context: RequestContext, planned: Compact) -> CompactionOrder:
        """Return the order for the summary that a plan asks for, with what asks the provider for it."""
        return replace(order_of(context, planned), ask_provider=self._natives.ask_for(context, planned))

    def _fitted(self, context: RequestContext, summary: PrefixSummary, report: Report) -> FittedRequest:
        native = self._natives.standing(context, summary)
        return FittedRequest(self._natives.assembled(context, summary), report, summary=summary, native=native)


def _check_whole(context: RequestContext) -> None:
    """Make sure that nothing was left out of a request that goes out, or is refused, without its summary.

    :raises EarlierMessagesNeeded: its oldest messages were not read
    """
    if context.count.left_out.count:
        raise EarlierMessagesNeeded


def _wait_seconds(policy: CompactionPolicy) -> float:
    """Return the longest time that a request waits for a summary, whoever makes it.

    A preparation that hangs takes the model's time, too: the request does not wait for it twice.
    """
    if policy.strategy == "extractive":
        return policy.wait_seconds
    return min(policy.wait_seconds, policy.summarizer_timeout_seconds)


def _with_least_reply(context: RequestContext) -> RequestContext | None:
    """Return a context whose limit leaves the least space for the reply; None if that is no higher."""
    budget = context.measure.budget
    reply_tokens, retention = context.request.max_output_tokens, context.controls.retention
    wider = budget_for(context.profile, reply_tokens, retention, least_reply=True)
    if wider.limit <= budget.limit:
        return None
    return replace(context, measure=replace(context.measure, budget=wider))


def _plan_at_once(context: RequestContext) -> NoCompaction | None:
    """Decide without a look at the messages; None if that is not possible."""
    if context.request.left_to_upstream and context.controls.mode != "off":
        return NoCompaction("left_to_upstream", context.count.total)
    is_summarized = context.stored.summary is not None
    return plan_at_once(
        context.count.total,
        context.measure.marks,
        context.profile.policy,
        context.mode,
        summarized=is_summarized,
    )
