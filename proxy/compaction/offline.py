"""Counting and compacting without a conversation: no store, no upstream, nothing is kept.

Beside the road of a request: ``tidemark count`` and ``tidemark compact``, ``POST /tidemark/count`` and
``POST /tidemark/compact``. The same core as on the road, applied to one request on its own.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from proxy.compaction.clipping import clip_request
from proxy.compaction.writer import write_summary
from proxy.core.conversation.messages import ModelRequest, render_body, render_messages
from proxy.core.conversation.prefix import chain_of
from proxy.core.conversation.summary import PrefixSummary, Strategy, render_text
from proxy.core.errors import ContextLengthExceeded
from proxy.core.planning.assemble import assemble
from proxy.core.planning.budget import Budget, ModelProfile, budget_for
from proxy.core.planning.clip import clips_for
from proxy.core.planning.plan import plan
from proxy.core.planning.situation import CannotFit, Compact, PlanInput
from proxy.core.ports import Caller, Route, Summarizer, SummaryTask, TokenCounter
from proxy.offload.threads import beside_many

FILL_RETENTION_RATIO = 0.25
"""Share of a given budget that the newest messages may take; what they leave is the summary's."""
ChooseStrategy = Callable[[Strategy, Route | None], Summarizer]
"""The summarizer for a strategy; ``app`` knows them all."""


@dataclass(frozen=True, slots=True)
class Compacted:
    """A request made smaller, and what was done to it."""

    body: bytes
    """The compacted request as JSON; the very bytes that came in where nothing was to be done."""
    summary: str
    tokens_before: int
    tokens_after: int
    summarized_messages: int
    strategy: Strategy


@dataclass(frozen=True, slots=True)
class OfflineOptions:
    """What is asked for."""

    strategy: Strategy
    max_tokens: int | None = None
    """The whole budget of the result; None for the low water of the model."""
    route: Route | None = None
    caller: Caller | None = None


async def compact_once(
    request: ModelRequest, profile: ModelProfile, wish: OfflineOptions, counter: TokenCounter, choose: ChooseStrategy
) -> Compacted:
    """Compact one request.

    With ``max_tokens`` the result fills that budget as well as it can: the newest messages within a quarter
    of it stay, and the summary may take all that they leave. What a short summary leaves, further messages get.

    :raises ContextLengthExceeded: even the newest message alone is over the budget
    :raises SummaryRejected, UpstreamError: the strategy gave no usable summary
    """
    count = await counter.count(request, wish.route.upstream_model if wish.route else request.model)
    budget = _filled(wish.max_tokens) if wish.max_tokens is not None else budget_for(profile, None)
    if count.total <= (budget.limit if wish.max_tokens is not None else budget.low_water):
        return Compacted(request.body, "", count.total, count.total, 0, wish.strategy)
    policy = replace(profile.policy, enabled=True, keep_last_messages=0)
    situation = PlanInput(
        request.messages, count.messages, count.fixed, budget, policy, mode="force", summary_first=count.summary_first
    )
    many = len(request.messages)
    planned = await beside_many(many, partial(plan, situation))
    needed = replace(situation, mode="auto")  # what fits once it is clipped needs no summary
    clips = await beside_many(many, partial(clips_for, needed)) if isinstance(planned, CannotFit) else ()
    if clips:
        model = wish.route.upstream_model if wish.route else request.model
        request, smaller = await clip_request(request, count, clips, model, counter)
        request = replace(request, body=render_body(request.fields, {"messages": render_messages(request.messages)}))
        situation = replace(needed, messages=request.messages, tokens=smaller.messages)
        planned = await beside_many(many, partial(plan, situation))

    async def perform(planned: Compact) -> Compacted:
        bound = planned.max_summary_tokens
        if wish.max_tokens is not None:
            bound = min(budget.limit - planned.rest_tokens, planned.replaced_tokens)
        return await _perform(request, planned, wish, before=count.total, bound=bound, counter=counter, choose=choose)

    if isinstance(planned, Compact):
        done = await perform(planned)
        if wish.max_tokens is None or wish.strategy != "extractive":  # a second text of a model's would cost too much
            return done
        widened = replace(situation, budget=_widened(budget, planned, done))
        wider = await beside_many(many, partial(plan, widened))
        if not isinstance(wider, Compact) or wider.covered >= planned.covered:
            return done
        return max(done, await perform(wider), key=lambda one: one.tokens_after)
    least = planned.tokens
    if isinstance(planned, CannotFit) or least > budget.limit:
        message = (
            f"The request has {count.total} tokens and cannot be brought below {least}, but the budget is "
            f"{budget.limit} tokens. Raise the budget, or shorten the newest message or the tools."
        )
        raise ContextLengthExceeded(message)
    return Compacted(request.body, "", count.total, least, 0, wish.strategy)


async def _perform(
    request: ModelRequest,
    planned: Compact,
    wish: OfflineOptions,
    *,
    before: int,
    bound: int,
    counter: TokenCounter,
    choose: ChooseStrategy,
) -> Compacted:
    """Make the summary and put the request together."""
    summarizer = choose(wish.strategy, wish.route)
    model = wish.route.upstream_model if wish.route else request.model
    task = SummaryTask(planned.messages, None, bound, model, wish.route, wish.caller)
    text = await write_summary(summarizer, task, planned.covered, counter)
    tokens = counter.count_message(render_text(text, planned.covered), model)
    chain = await beside_many(len(request.messages), partial(chain_of, "", request.messages))
    summary = PrefixSummary(
        prefix=chain.at(planned.covered),
        covered=planned.covered,
        text=text,
        recipe=summarizer.recipe,
        made_by=wish.strategy,
        cause="manual",
        created_at=0.0,
        absorbed=planned.absorbed,
    )

    def rendered() -> bytes:
        return render_body(request.fields, {"messages": render_messages(assemble(request.messages, summary))})

    body = await beside_many(len(request.messages), rendered)
    return Compacted(body, text, before, planned.rest_tokens + tokens, planned.covered, wish.strategy)


def _filled(max_tokens: int) -> Budget:
    """A budget in which every mark is the whole of ``max_tokens``."""
    return Budget(
        window=max_tokens,
        limit=max_tokens,
        high_water=max_tokens,
        prepare_mark=max_tokens,
        low_water=max_tokens,
        retention=int(FILL_RETENTION_RATIO * max_tokens),
        max_summary=max_tokens // 2,
        min_tokens=0,
    )


def _widened(budget: Budget, planned: Compact, done: Compacted) -> Budget:
    """The budget when the summary's size is known: what is still free goes to the newest messages."""
    free = budget.limit - done.tokens_after
    return replace(budget, retention=budget.retention + free, max_summary=done.tokens_after - planned.rest_tokens)
