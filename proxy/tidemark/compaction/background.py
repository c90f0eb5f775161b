"""Prepare the next summary after the response has gone out, so that no client waits for it (promise 7).

A preparation begins when a turn has ended above the prepare mark, in whichever worker gets the lease. Its summary
waits in the store until a request crosses the high water. A preparation that fails loses nothing: the next turn
begins another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tidemark.compaction.compactor import Compactor
from tidemark.compaction.leases import LEASE_SECONDS, keep_lease, wait_for_summary
from tidemark.compaction.order import CompactionOrder, Trigger
from tidemark.compaction.writer import SummaryWriter
from tidemark.core.conversation.prefix import PrefixChain, split_id
from tidemark.core.conversation.summary import PrefixSummary, SummaryRecipe
from tidemark.core.errors import StoreError
from tidemark.core.events import Listener, StoreDegraded
from tidemark.core.planning.budget import ModelProfile
from tidemark.core.ports import ConversationStore, Lease, LeaseStore, Route

MAX_PREPARATIONS = 64
"""Preparations that a worker runs at once. A further one waits for its conversation's next turn."""
MAX_PER_CREDENTIAL = 8
"""Preparations for one credential, so that its slow summarizer does not delay the others (promise 8)."""


class BackgroundCompaction:
    """Prepares summaries in the background. The mutable state is the running tasks."""

    def __init__(
        self,
        *,
        compactor: Compactor,
        writer: SummaryWriter,
        store: ConversationStore,
        leases: LeaseStore,
        emit: Listener,
    ) -> None:
        self._compactor = compactor
        self._writer = writer
        self._store = store
        self._leases = leases
        self._emit = emit
        self._tasks: dict[asyncio.Task[None], bytes] = {}
        """Each with the fingerprint of its credential."""

    async def begin(self, order: CompactionOrder, conversation: str) -> None:
        """Begin a preparation, unless another worker runs it already; return as soon as the lease is decided.

        :param conversation: the id that the turn was stored under
        """
        own = sum(fingerprint == order.caller.fingerprint for fingerprint in self._tasks.values())
        if len(self._tasks) >= MAX_PREPARATIONS or own >= MAX_PER_CREDENTIAL or not self._writer.admits(order):
            return
        if self._writer.is_in_vain(order):
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
        """Return a summary that is being prepared as soon as it is stored; None if it is late or fails.

        :param name: the lease that it is prepared under
        :param absorbed: digests of the system messages that it takes in
        """
        try:
            async with asyncio.timeout(seconds):
                return await wait_for_summary(
                    self._store, self._leases, chain, covered, recipe, name=name, waiting=True, absorbed=absorbed
                )
        except (TimeoutError, StoreError):
            return None

    def running(self) -> int:
        """Return how many preparations run now."""
        return len(self._tasks)

    async def aclose(self) -> None:
        """Cancel the running preparations and release their leases, so that another worker can begin them."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _prepare(self, order: CompactionOrder, lease: Lease) -> None:
        run = self._compactor.begin(order, Trigger.PREPARATION)
        try:
            async with keep_lease(self._leases, lease):
                await self._compactor.make(run, lease=lease)
        except StoreError as error:
            self._emit(StoreDegraded("keep_summary", error.internal or str(error)))
