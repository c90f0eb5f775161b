"""Preparation: the next summary is made after the response has gone out, so that nobody waits for it (promise 7).

Beside the road of a request: begun when a turn has ended beyond the prepare mark, by whichever worker gets the
lease. What comes of it waits in the store until the high water is crossed. A preparation that fails loses nothing:
the next turn begins another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from proxy.compaction.leases import LEASE_SECONDS, awaited, held
from proxy.compaction.writer import CompactionOrder, NotSummarized, SummaryWriter
from proxy.core.conversation.prefix import PrefixChain, split_id
from proxy.core.conversation.summary import PrefixSummary, SummaryRecipe
from proxy.core.errors import StoreError
from proxy.core.events import CompactionStarted, Listener, StoreDegraded, SummaryPrepared
from proxy.core.planning.budget import ModelProfile
from proxy.core.ports import ConversationStore, Lease, LeaseStore, Route

MOST_AT_ONCE = 64
"""Preparations of one worker. A further one waits for its conversation's next turn."""
MOST_EACH = 8
"""Of these for one credential, so that nobody's slow summarizer keeps the others from theirs (promise 8)."""


class BackgroundCompaction:
    """Prepares summaries in the background. The mutable state is the tasks under way."""

    def __init__(self, *, writer: SummaryWriter, store: ConversationStore, leases: LeaseStore, emit: Listener) -> None:
        self._writer = writer
        self._store = store
        self._leases = leases
        self._emit = emit
        self._tasks: dict[asyncio.Task[None], bytes] = {}
        """With the fingerprint of the credential that each is for."""

    async def begin(self, order: CompactionOrder, conversation: str) -> None:
        """Begin to prepare, unless another worker does; returns as soon as that is settled.

        :param conversation: the id that the turn was stored under
        """
        own = sum(fingerprint == order.caller.fingerprint for fingerprint in self._tasks.values())
        if len(self._tasks) >= MOST_AT_ONCE or own >= MOST_EACH or not self._writer.admits(order):
            return
        order = replace(order, conversation=conversation, cause="prepared")
        recipe = self._writer.summarizer_for(order).recipe
        name = split_id(conversation)[1]  # the conversation's own part, by which ``recall`` finds the lease
        try:
            chain, covered, absorbed = order.chain, order.plan.covered, order.plan.absorbed
            lease = await self._leases.take(name, chain, covered, recipe, LEASE_SECONDS, absorbed=absorbed)
        except StoreError as error:
            self._emit(StoreDegraded("take_lease", error.internal or str(error)))
            return
        if lease is not None:
            task = asyncio.create_task(self._prepare(order, lease))
            self._tasks[task] = order.caller.fingerprint
            task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def recipe_for(self, profile: ModelProfile, route: Route) -> SummaryRecipe:
        """What the summaries of a model depend on."""
        return self._writer.choose(profile, route).recipe

    async def awaited(
        self,
        name: str,
        chain: PrefixChain,
        covered: int,
        recipe: SummaryRecipe,
        seconds: float,
        *,
        absorbed: Sequence[bytes] = (),
    ) -> PrefixSummary | None:
        """The summary that is being prepared, as soon as it is there; None where it comes too late or not at all.

        :param name: of the lease that it is prepared under
        :param absorbed: digests of the system messages that it takes in
        """
        try:
            async with asyncio.timeout(seconds):
                return await awaited(
                    self._store, self._leases, chain, covered, recipe, name=name, waiting=True, absorbed=absorbed
                )
        except (TimeoutError, StoreError):
            return None

    async def aclose(self) -> None:
        """Give up what is under way, and its leases, so that another worker can take over."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _prepare(self, order: CompactionOrder, lease: Lease) -> None:
        started, plan, model = self._writer.timer(), order.plan, order.profile.name
        summarizer = self._writer.summarizer_for(order)
        recipe = summarizer.recipe
        self._emit(CompactionStarted(order.conversation, model, recipe.strategy, plan.covered, plan.replaced_tokens))
        async with held(self._leases, lease):
            text, made_by = await self._writer.write(order, summarizer), recipe.strategy
            if isinstance(text, NotSummarized) and text.overdue and order.profile.policy.on_failure == "deterministic":
                # Else each turn would read all of it in vain.
                text, made_by = await self._writer.write(order, self._writer.plain), self._writer.plain.recipe.strategy
            if isinstance(text, NotSummarized):
                return
            summary = self._writer.summary_of(order, recipe, text, made_by)
            try:
                await self._store.keep_summary(
                    order.tenant, order.conversation, order.chain, summary, waiting=True, lease=lease
                )
            except StoreError as error:
                self._emit(StoreDegraded("keep_summary", error.internal or str(error)))
                return
        taken = self._writer.timer() - started
        self._emit(SummaryPrepared(order.conversation, model, summary.made_by, summary.covered, summary.tokens, taken))
