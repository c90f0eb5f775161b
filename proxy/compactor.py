"""Making a summary: one at a time for each prefix, bounded, checked, stored; and what is done when it fails.

Fifth step on the road of a request, between the plan, which says what to summarize, and the assembly, which
puts the summary in its place. The strategies write texts; this file decides whether a text is a summary.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, replace

from proxy.core.budget import ModelProfile
from proxy.core.errors import StoreError, SummaryRejected, TidemarkError
from proxy.core.events import CompactionStarted, ConversationCompacted, Listener, StoreDegraded, SummaryFailed
from proxy.core.plan import Compact
from proxy.core.ports import Caller, ConversationStore, Route, Summarizer, SummaryTask, TokenCounter
from proxy.core.prefix import PrefixChain
from proxy.core.summary import Cause, RunningSummary, Strategy, SummaryRecipe, render_summary, render_text

Clock = Callable[[], float]
ChooseSummarizer = Callable[[ModelProfile, Route], Summarizer]
"""The strategy that a model's policy names; ``app.py`` knows them all."""


@dataclass(frozen=True, slots=True)
class CompactionOrder:
    """One compaction that is to be done."""

    plan: Compact
    tenant: str
    conversation: str
    chain: PrefixChain
    profile: ModelProfile
    route: Route
    caller: Caller
    cause: Cause
    degraded: bool = False
    """Whether the store is down: then the summary is a deterministic one, the same for the same request."""


@dataclass(frozen=True, slots=True)
class Summarized:
    """There is a summary, and it is within its bound."""

    summary: RunningSummary
    tokens: int
    """Of the rendered message, for the order's model."""
    warning: str | None = None


@dataclass(frozen=True, slots=True)
class NotSummarized:
    """No summary could be made; nothing was lost or changed."""

    reason: str


CompactionResult = Summarized | NotSummarized


class Compactor:
    """Performs compactions.

    The mutable state is the table of compactions under way in this process: equal orders share one task, and
    the task ends when nobody waits for it any more.
    """

    def __init__(
        self,
        *,
        choose: ChooseSummarizer,
        fallback: Summarizer,
        store: ConversationStore,
        counter: TokenCounter,
        emit: Listener,
        clock: Clock,
        timer: Clock,
    ) -> None:
        self._choose = choose
        self._fallback = fallback
        self._store = store
        self._counter = counter
        self._emit = emit
        self._clock = clock
        self._timer = timer
        self._under_way: dict[_Key, _Flight] = {}

    def summarizer_for(self, profile: ModelProfile, route: Route) -> Summarizer:
        """The summarizer of a model; its recipe is part of what summaries are found by."""
        return self._choose(profile, route)

    async def compact(self, order: CompactionOrder) -> CompactionResult:
        """Make the summary that ``order`` asks for, or wait for the equal one that is being made."""
        summarizer = self._fallback if order.degraded else self._choose(order.profile, order.route)
        key = _key(order, summarizer)
        flight = self._under_way.get(key)
        if flight is None:
            flight = self._under_way[key] = _Flight(asyncio.create_task(self._perform(order, summarizer)))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if flight.task.done() or flight.waiting == 0:
                # At once, and not when the task has ended: who comes next must not wait for one that is dying.
                if self._under_way.get(key) is flight:
                    del self._under_way[key]
                flight.task.cancel()

    async def _perform(self, order: CompactionOrder, summarizer: Summarizer) -> CompactionResult:
        started = self._timer()
        plan, recipe = order.plan, summarizer.recipe
        self._emit(
            CompactionStarted(
                order.conversation, order.profile.name, recipe.strategy, plan.covered, plan.replaced_tokens
            )
        )
        warning = None
        made_by: Strategy = recipe.strategy
        text = await self._attempt(order, summarizer, started)
        if isinstance(text, NotSummarized) and order.profile.policy.on_failure == "deterministic":
            made_by = self._fallback.recipe.strategy
            if made_by != recipe.strategy:
                warning = f"the {recipe.strategy} summarizer failed; the summary is {made_by}"
                text = await self._attempt(order, self._fallback, started)
        if isinstance(text, NotSummarized):
            return text
        return await self._keep(order, recipe, text, made_by=made_by, warning=warning, started=started)

    async def _attempt(self, order: CompactionOrder, summarizer: Summarizer, started: float) -> str | NotSummarized:
        """A text, or why there is none. Whatever a strategy raises is a failure that has its policy (FR-5.1.1)."""
        try:
            return await self._text(order, summarizer)
        except TimeoutError:
            reason = "the summarizer did not answer in time"
        except TidemarkError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 - a strategy's slip must not cost the client its answer
            reason = f"the summarizer failed: {type(error).__name__}"
        self._emit(self._failure(order, summarizer.recipe.strategy, reason, started))
        return NotSummarized(reason)

    async def _text(self, order: CompactionOrder, summarizer: Summarizer) -> str:
        plan, timeout = order.plan, order.profile.policy.summarizer_timeout_seconds
        task = SummaryTask(
            messages=plan.messages,
            previous=plan.previous.text if plan.previous else None,
            max_tokens=plan.max_summary_tokens,
            model=order.route.upstream_model,
            route=order.route,
            caller=order.caller,
            timeout_seconds=timeout,
        )
        async with asyncio.timeout(timeout):
            return await write_summary(summarizer, task, plan.covered, self._counter)

    async def _keep(
        self,
        order: CompactionOrder,
        recipe: SummaryRecipe,
        text: str,
        *,
        made_by: Strategy,
        warning: str | None,
        started: float,
    ) -> Summarized:
        plan, model = order.plan, order.route.upstream_model
        summary = RunningSummary(
            prefix=order.chain.at(plan.covered),
            covered=plan.covered,
            text=text,
            recipe=recipe,
            made_by=made_by,
            cause=order.cause,
            created_at=self._clock(),
            previous=plan.previous.prefix if plan.previous else None,
            tokens=self._counter.count_message(render_text(text, plan.covered), model),
            absorbed=plan.absorbed,
        )
        summary = await self._stored(order, summary)
        tokens = self._counter.count_message(render_summary(summary), model)
        self._emit(
            ConversationCompacted(
                conversation=order.conversation,
                model=order.profile.name,
                strategy=summary.made_by,
                messages=summary.covered,
                tokens_replaced=plan.replaced_tokens,
                summary_tokens=tokens,
                seconds=self._timer() - started,
            )
        )
        return Summarized(summary, tokens, warning)

    async def _stored(self, order: CompactionOrder, summary: RunningSummary) -> RunningSummary:
        """The summary that is stored for the prefix now: another worker's, if that was first and is of use here."""
        if order.degraded:
            return summary
        try:
            stored = await self._store.keep_summary(order.tenant, order.conversation, order.chain, summary)
        except StoreError as error:
            self._emit(StoreDegraded("keep_summary", error.internal or str(error)))
            return summary
        bound = order.plan.max_summary_tokens
        within = self._counter.count_message(render_summary(stored), order.route.upstream_model) <= bound
        # One that was made for a larger window, or tells other system messages, does not stand for this prefix here.
        return stored if within and set(stored.absorbed) == set(summary.absorbed) else summary

    def _failure(self, order: CompactionOrder, strategy: str, reason: str, started: float) -> SummaryFailed:
        return SummaryFailed(
            conversation=order.conversation,
            model=order.profile.name,
            strategy=strategy,
            reason=reason,
            policy=order.profile.policy.on_failure,
            seconds=self._timer() - started,
        )


async def write_summary(summarizer: Summarizer, task: SummaryTask, covered: int, counter: TokenCounter) -> str:
    """A text whose rendered message stands for ``covered`` messages within ``task.max_tokens``.

    The bound is enforced, not hoped for: what the strategy wrote beyond it is cut.

    :param task: its ``max_tokens`` bounds the whole message; the strategy is given what the frame leaves
    :raises SummaryRejected: the strategy gave nothing that could stand for the messages
    """
    bound, model = task.max_tokens, task.model
    frame = counter.count_message(render_text("", covered), model)
    text = (await summarizer.summarize(replace(task, max_tokens=max(bound - frame, 1)))).strip()
    room = bound
    while text and (over := counter.count_message(render_text(text, covered), model) - bound) > 0:
        room = min(room, counter.count_text(text, model)) - over
        text = counter.cut_text(text, model, room).rstrip() if room > 0 else ""
    if not text:
        message = f"the {summarizer.recipe.strategy} summarizer gave an empty text"
        raise SummaryRejected(message)
    return text


_Key = tuple[bytes, str, str, int, tuple[bytes, ...]]


def _key(order: CompactionOrder, summarizer: Summarizer) -> _Key:
    """What makes two orders equal: prefix, recipe, tokenizer, bound, and the system messages to be told."""
    plan, recipe = order.plan, summarizer.recipe
    prefix = order.chain.at(plan.covered)
    return (prefix, recipe.key, order.route.upstream_model, plan.max_summary_tokens, plan.absorbed)


class _Flight:
    """A compaction under way and how many wait for it."""

    def __init__(self, task: asyncio.Task[CompactionResult]) -> None:
        self.task = task
        self.waiting = 0
