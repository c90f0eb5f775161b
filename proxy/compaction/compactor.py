"""Making a summary that a request waits for: one for each prefix, whoever asks; and what is done when it fails.

On the road of a request, between the plan, which says what to summarize, and the assembly, which puts the
summary in its place. Requests of one process share a task, processes share a lease. Where a summary was prepared in
time, nobody comes here.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace

from proxy.compaction.leases import LEASE_SECONDS, awaited, held
from proxy.compaction.writer import CompactionOrder, NotSummarized, SummaryWriter, flush_of
from proxy.core.conversation.messages import digest_of
from proxy.core.conversation.summary import PrefixSummary, Strategy, render_summary
from proxy.core.errors import StoreError
from proxy.core.events import CompactionStarted, ConversationCompacted, Listener, StoreDegraded
from proxy.core.ports import ConversationStore, Lease, LeaseStore, MemoryFlush, Summarizer, TokenCounter


@dataclass(frozen=True, slots=True)
class Summarized:
    """There is a summary, and it is within its bound."""

    summary: PrefixSummary
    tokens: int
    """Of the rendered message, for the order's model."""
    warning: str | None = None
    degraded: bool = False
    """Whether it could not be stored, so that the next request will not find it."""


CompactionResult = Summarized | NotSummarized
OVERDUE_WARNING = "the conversation took too long to read; the summary holds its newest lines only"
GIVEN_UP = 256
"""Orders that are remembered as given up by all who waited."""


class Compactor:
    """Performs compactions.

    The mutable state is the table of compactions under way in this process: equal orders share one task, and
    the task ends when nobody waits for it any more. One that was given up before goes on to its end: its client is
    not as patient as its summarizer is slow, and would else never get through.
    """

    def __init__(
        self,
        *,
        writer: SummaryWriter,
        store: ConversationStore,
        leases: LeaseStore,
        counter: TokenCounter,
        emit: Listener,
        flush: MemoryFlush | None = None,
    ) -> None:
        """:param flush: told of what leaves the context; None where nobody wants to know"""
        self._flush = flush
        self._writer = writer
        self._store = store
        self._leases = leases
        self._counter = counter
        self._emit = emit
        self._under_way: dict[_Key, _Flight] = {}
        self._given_up: dict[_Key, bool] = {}

    async def compact(self, order: CompactionOrder, *, wait_seconds: float | None = None) -> CompactionResult:
        """Make the summary that ``order`` asks for, or wait for the equal one that is being made.

        :param wait_seconds: what is left of the policy's ``wait_seconds``, where some of it is used up
        """
        summarizer = self._writer.summarizer_for(order)
        key = _key(order, summarizer)
        flight = self._under_way.get(key)
        if flight is None:
            seconds = order.profile.policy.wait_seconds if wait_seconds is None else wait_seconds
            task = asyncio.create_task(self._perform(order, summarizer, _name(key), seconds))
            flight = self._under_way[key] = _Flight(task)
            task.add_done_callback(lambda _: self._landed(key, flight))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if flight.waiting == 0 and not flight.task.done() and key not in self._given_up:
                self._given_up[key] = True
                if len(self._given_up) > GIVEN_UP:
                    del self._given_up[next(iter(self._given_up))]
                # At once, and not when the task has ended: who comes next must not wait for one that is dying.
                self._landed(key, flight)
                flight.task.cancel()

    def _landed(self, key: _Key, flight: _Flight) -> None:
        if self._under_way.get(key) is flight:
            del self._under_way[key]
        if flight.task.done() and not flight.task.cancelled():
            self._given_up.pop(key, None)

    async def adopt(self, order: CompactionOrder, summary: PrefixSummary) -> Summarized:
        """Put a prepared summary into use: it is there already, so nobody waits.

        It may have taken in others that were prepared before it and never used: what is stored names the used one.
        """
        summary = replace(summary, previous=order.in_use.prefix if order.in_use else None)
        wish = _Wish(order, self._writer.summarizer_for(order), "", self._writer.timer(), 0.0)
        stored, kept = await self._stored(order, summary, None)
        return self._told(wish, stored or summary, kept=kept)

    async def _perform(
        self, order: CompactionOrder, summarizer: Summarizer, name: str, seconds: float
    ) -> CompactionResult:
        plan, strategy = order.plan, summarizer.recipe.strategy
        self._emit(
            CompactionStarted(order.conversation, order.profile.name, strategy, plan.covered, plan.replaced_tokens)
        )
        wish = _Wish(order, summarizer, name, self._writer.timer(), asyncio.get_running_loop().time() + seconds)
        try:
            while not order.degraded:
                result = await self._in_turn(wish)
                if result is not None:
                    return result
        except StoreError as error:
            # What cannot be stored is not worth a model's time: it would be made anew with every request.
            self._emit(StoreDegraded("take_lease", error.internal or str(error)))
            wish = replace(wish, order=replace(order, degraded=True), summarizer=self._writer.fallback)
        made = await self._made(wish, None)
        if isinstance(made, Summarized):
            return replace(made, degraded=wish.order.degraded)
        return made or NotSummarized("the summary found no place")

    async def _in_turn(self, wish: _Wish) -> CompactionResult | None:
        """Make the summary under the lease, or wait for who holds that; None where the holder came to nothing."""
        order, recipe = wish.order, wish.summarizer.recipe
        chain, covered, absorbed = order.chain, order.plan.covered, order.plan.absorbed
        lease = await self._leases.take(wish.name, chain, covered, recipe, LEASE_SECONDS, absorbed=absorbed)
        if lease is not None:
            async with held(self._leases, lease):
                found = await self._store.summary(chain, covered, recipe, absorbed=absorbed)
                if found is not None and self._usable(order, found):
                    return Summarized(found, self._tokens(order, found))
                return await self._made(wish, lease)
        try:
            async with asyncio.timeout(max(wish.left(), 0.0)):
                found = await awaited(
                    self._store,
                    self._leases,
                    chain,
                    covered,
                    recipe,
                    name=wish.name,
                    waiting=False,
                    absorbed=absorbed,
                    usable=lambda one: self._usable(order, one),
                )
        except TimeoutError:
            return await self._instead(wish, NotSummarized("the summary was not ready in time"), None)
        return None if found is None else Summarized(found, self._tokens(order, found))

    async def _made(self, wish: _Wish, lease: Lease | None) -> CompactionResult | None:
        """Write the summary and keep it; None where somebody else holds the lease by now."""
        strategy, left = wish.summarizer.recipe.strategy, None
        if strategy != self._writer.fallback.recipe.strategy:
            left = wish.left()
            if left <= 0:
                return await self._instead(wish, NotSummarized("there was no time to wait for a summary"), lease)
        text = await self._writer.write(wish.order, wish.summarizer, left)
        if isinstance(text, NotSummarized):
            return await self._instead(wish, text, lease)
        return await self._keep(wish, text, strategy, lease)

    async def _instead(self, wish: _Wish, failure: NotSummarized, lease: Lease | None) -> CompactionResult | None:
        """The failure policy, as far as it is the compactor's: a deterministic summary, or none."""
        strategy, fallback = wish.summarizer.recipe.strategy, self._writer.fallback
        made_by = fallback.recipe.strategy
        if wish.order.profile.policy.on_failure != "deterministic":
            return failure
        warning = f"the {strategy} summarizer failed; the summary is {made_by}"
        text: str | NotSummarized = failure
        if not failure.overdue and strategy != made_by:
            text = await self._writer.write(wish.order, fallback)
        if isinstance(text, NotSummarized) and text.overdue:
            text, warning = await self._writer.write(wish.order, self._writer.plain), OVERDUE_WARNING
        if isinstance(text, NotSummarized):
            return text
        return await self._keep(wish, text, made_by, lease, warning)

    async def _keep(
        self, wish: _Wish, text: str, made_by: Strategy, lease: Lease | None, warning: str | None = None
    ) -> Summarized | None:
        summary = self._writer.summary_of(wish.order, wish.summarizer.recipe, text, made_by)
        stored, kept = await self._stored(wish.order, summary, lease)
        return None if stored is None else self._told(wish, stored, warning, kept=kept)

    async def _stored(
        self, order: CompactionOrder, summary: PrefixSummary, lease: Lease | None
    ) -> tuple[PrefixSummary | None, bool]:
        """The summary that counts for the prefix now, and whether the store keeps it.

        It is another worker's, if that was first and is of use here. None where another worker holds the lease by now,
        so that it is that one's summary that counts.
        """
        if order.degraded:
            return self._left(order, summary, stored=False), False
        keep = self._store.keep_summary
        try:
            keeping = keep(order.tenant, order.conversation, order.chain, summary, lease=lease)
            if self._flush is None:
                stored = await keeping
            else:  # at once, so that nobody waits for the second
                stored, _ = await asyncio.gather(keeping, self._flush.intend(flush_of(order, summary)))
            if stored is not None and not self._usable(order, stored):
                # What stands there is of no use: the window got smaller, or other system messages must be told.
                stored = await keep(order.tenant, order.conversation, order.chain, summary, lease=lease, replacing=True)
        except StoreError as error:
            self._emit(StoreDegraded("keep_summary", error.internal or str(error)))
            return self._left(order, summary, stored=False), False
        return (None if stored is None else self._left(order, stored)), True

    def _left(self, order: CompactionOrder, summary: PrefixSummary, *, stored: bool = True) -> PrefixSummary:
        """The summary, once it is told what leaves the context for it."""
        if self._flush is not None:
            self._flush.put(flush_of(order, summary, stored=stored))
        return summary

    def _usable(self, order: CompactionOrder, stored: PrefixSummary) -> bool:
        """Not one that was made for a larger window, or that tells other system messages."""
        return self._tokens(order, stored) <= order.plan.max_summary_tokens and set(stored.absorbed) == set(
            order.plan.absorbed
        )

    def _tokens(self, order: CompactionOrder, summary: PrefixSummary) -> int:
        return self._counter.count_message(render_summary(summary), order.route.upstream_model)

    def _told(
        self, wish: _Wish, summary: PrefixSummary, warning: str | None = None, *, kept: bool = True
    ) -> Summarized:
        order = wish.order
        tokens = self._tokens(order, summary)
        self._emit(
            ConversationCompacted(
                conversation=order.conversation,
                model=order.profile.name,
                strategy=summary.made_by,
                messages=summary.covered,
                tokens_replaced=order.plan.replaced_tokens,
                summary_tokens=tokens,
                seconds=self._writer.timer() - wish.started,
            )
        )
        return Summarized(summary, tokens, warning, degraded=not kept)


_Key = tuple[bytes, str, str, int, tuple[bytes, ...]]


def _key(order: CompactionOrder, summarizer: Summarizer) -> _Key:
    """What makes two orders equal: prefix, recipe, tokenizer, bound, and the system messages to be told."""
    plan, recipe = order.plan, summarizer.recipe
    prefix = order.chain.at(plan.covered)
    return (prefix, recipe.key, order.route.upstream_model, plan.max_summary_tokens, plan.absorbed)


def _name(key: _Key) -> str:
    """The lease of an order; equal in all processes."""
    prefix, recipe, model, bound, absorbed = key
    return digest_of(prefix, recipe.encode(), model.encode(), str(bound).encode(), *absorbed).hex()


@dataclass(frozen=True, slots=True)
class _Wish:
    """An order on its way through one process."""

    order: CompactionOrder
    summarizer: Summarizer
    name: str
    """Of the lease."""
    started: float
    """By the writer's timer."""
    deadline: float
    """By the event loop's clock: until when the client waits."""

    def left(self) -> float:
        """Seconds until the deadline."""
        return self.deadline - asyncio.get_running_loop().time()


class _Flight:
    """A compaction under way and how many wait for it."""

    def __init__(self, task: asyncio.Task[CompactionResult]) -> None:
        self.task = task
        self.waiting = 0
