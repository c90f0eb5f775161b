"""Count and compact a single request without a conversation: no store, no upstream, no event.

``features/offline/service.py`` calls this for ``tidemark compact`` and ``POST /tidemark/compact``. It applies the rules
of the planner to one request, and lets the compactor make the summary.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from tidemark.compaction.clipping import clip_request
from tidemark.compaction.compactor import Compactor
from tidemark.compaction.order import CompactionOrder, Summarized, Trigger
from tidemark.core.conversation.prefix import chain_of
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.summary import Maker, Strategy
from tidemark.core.errors import CompactionFailed, ContextLengthExceeded
from tidemark.core.frozen import frozen
from tidemark.core.planning.assemble import assemble
from tidemark.core.planning.budget import Budget, ModelProfile, budget_for
from tidemark.core.planning.clip import clips_for
from tidemark.core.planning.kinds import work_share
from tidemark.core.planning.plan import plan
from tidemark.core.planning.situation import (
    CannotFit,
    Compact,
    CompactionPlan,
    MaskResults,
    NoCompaction,
    PlanInput,
    ReuseSummary,
    SwapSummary,
)
from tidemark.core.ports import Caller, RequestCount, Route, TokenCounter
from tidemark.offload.threads import offload_if_many

TALK_RETENTION_RATIO, WORK_RETENTION_RATIO = 0.10, 0.50
"""Share of a budget for the newest messages of a talk, and of an agent that nobody talks to."""
LEAST_WORK_SHARE, MOST_WORK_SHARE = 0.5, 0.85
"""Shares of an agent's steps up to which a request is a talk, and from which it is work.

Between them are services: an agent that talks with somebody needs what was said."""


@frozen
class Compacted:
    """A compacted request, and what was done to it."""

    body: bytes
    """The compacted request as JSON; the client's own bytes if nothing had to be done."""
    summary: str
    tokens_before: int
    tokens_after: int
    summarized_messages: int
    strategy: Maker


@frozen
class OfflineOptions:
    """The options of an offline compaction."""

    strategy: Strategy
    max_tokens: int | None
    """The whole budget of the result; None for the low water of the model."""
    route: Route
    caller: Caller


async def compact_once(
    request: ModelRequest,
    profile: ModelProfile,
    options: OfflineOptions,
    counter: TokenCounter,
    compactor: Compactor,
) -> Compacted:
    """Compact one request.

    With ``max_tokens`` the result fills that budget as far as possible: the newest messages within a tenth of it stay,
    in an agent's work within up to a half, and the summary may take the rest. If the summary is short, further
    messages stay.

    :raises ContextLengthExceeded: even the newest message alone is over the budget
    :raises SummaryRejected, UpstreamError: the strategy gave no usable summary
    """
    model = options.route.upstream_model
    count = await counter.count(request, model)
    if options.max_tokens is None:
        budget = budget_for(profile, None)
    else:
        budget = _filled(options.max_tokens, work_share(request.messages, count.messages))
    if count.total <= (budget.limit if options.max_tokens is not None else budget.low_water):
        return Compacted(request.body, "", count.total, count.total, 0, options.strategy)
    policy = replace(profile.policy, enabled=True, keep_last_messages=0)
    plan_input = PlanInput(
        request.messages,
        count.messages,
        count.other_tokens,
        budget,
        policy,
        mode="force",
        first_summary_tokens=count.first_summary_tokens,
    )
    request, plan_input, planned = await _plan(request, plan_input, count, model, counter)
    if not isinstance(planned, Compact):
        return _unsummarized(request, planned, count.total, budget.limit, options.strategy)
    profile = replace(profile, policy=replace(policy, strategy=options.strategy))
    chain = await offload_if_many(len(request.messages), partial(chain_of, "", request.messages))
    order = CompactionOrder(planned, "", "", chain, profile, options.route, options.caller, "manual")

    async def perform(planned: Compact) -> Compacted:
        bound = planned.max_summary_tokens
        if options.max_tokens is not None:
            bound = min(budget.limit - planned.rest_tokens, planned.replaced_tokens)
        bounded = replace(order, plan=replace(planned, max_summary_tokens=bound))
        return await _perform(bounded, request, before=count.total, compactor=compactor)

    compacted = await perform(planned)
    if options.max_tokens is None or options.strategy != "extractive":  # a second text of a model would cost too much
        return compacted
    widened = replace(plan_input, budget=_widened(budget, planned, compacted))
    wider = await offload_if_many(len(request.messages), partial(plan, widened))
    if not isinstance(wider, Compact) or wider.covered >= planned.covered:
        return compacted
    return max(compacted, await perform(wider), key=lambda compacted: compacted.tokens_after)


async def _plan(
    request: ModelRequest, plan_input: PlanInput, count: RequestCount, model: str, counter: TokenCounter
) -> tuple[ModelRequest, PlanInput, CompactionPlan]:
    """Plan a request, and plan it again with clipped tool results if it cannot fit."""
    many = len(request.messages)
    planned = await offload_if_many(many, partial(plan, plan_input))
    needed = replace(plan_input, mode="auto")  # a request that fits once it is clipped needs no summary
    clips = await offload_if_many(many, partial(clips_for, needed)) if isinstance(planned, CannotFit) else ()
    if not clips:
        return request, plan_input, planned
    request, smaller = await clip_request(request, count, clips, model, counter)
    body = request.dialect.body_with(request, request.messages, model=request.model)
    request = replace(request, body=body)
    plan_input = replace(needed, messages=request.messages, tokens=smaller.messages)
    return request, plan_input, await offload_if_many(many, partial(plan, plan_input))


async def _perform(order: CompactionOrder, request: ModelRequest, *, before: int, compactor: Compactor) -> Compacted:
    """Make the summary, and put the compacted request together."""
    result = await compactor.make(compactor.begin(order, Trigger.OFFLINE))
    if not isinstance(result, Summarized):  # an offline compaction raises its errors and shares no lease
        raise CompactionFailed("No summary could be made.")
    summary = result.summary

    def render() -> bytes:
        messages = assemble(request.messages, summary)
        return request.dialect.body_with(request, messages, model=request.model)

    body = await offload_if_many(len(request.messages), render)
    after = order.plan.rest_tokens + result.tokens
    return Compacted(body, summary.text, before, after, summary.covered, summary.made_by)


def _unsummarized(
    request: ModelRequest,
    planned: NoCompaction | ReuseSummary | SwapSummary | MaskResults | CannotFit,
    tokens: int,
    limit: int,
    strategy: Strategy,
) -> Compacted:
    """Return a request that needs no summary; it may have been clipped.

    :raises ContextLengthExceeded: it cannot fit
    """
    if isinstance(planned, CannotFit) or planned.tokens > limit:
        raise ContextLengthExceeded(
            f"The request has {tokens} tokens and cannot be brought below {planned.tokens}, but the budget is "
            f"{limit} tokens. Raise the budget, or shorten the newest message or the tools."
        )
    return Compacted(request.body, "", tokens, planned.tokens, 0, strategy)


def _filled(max_tokens: int, work: float) -> Budget:
    """Return a budget in which every mark is the whole of ``max_tokens``.

    :param work: the part of the request's tokens that stand in steps of an agent
    """
    beyond = min(max(work - LEAST_WORK_SHARE, 0) / (MOST_WORK_SHARE - LEAST_WORK_SHARE), 1)
    ratio = TALK_RETENTION_RATIO + (WORK_RETENTION_RATIO - TALK_RETENTION_RATIO) * beyond**3
    return Budget(
        window=max_tokens,
        limit=max_tokens,
        high_water=max_tokens,
        prepare_mark=max_tokens,
        low_water=max_tokens,
        retention=int(ratio * max_tokens),
        max_summary=int(min(1 - ratio, 0.5) * max_tokens),
        min_tokens=0,
    )


def _widened(budget: Budget, planned: Compact, done: Compacted) -> Budget:
    """Return the budget once the summary's size is known: the newest messages get the free tokens."""
    free = budget.limit - done.tokens_after
    return replace(budget, retention=budget.retention + free, max_summary=done.tokens_after - planned.rest_tokens)
