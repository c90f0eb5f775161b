"""Make a summary that a request waits for: one for each prefix, however many requests need it.

``pipeline/fit.py`` comes here when the plan needs a summary that is neither stored nor prepared. Equal orders of one
process share a task, and processes share a lease. ``compactor.py`` makes the summary.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace

from tidemark.compaction.compactor import CompactionRun, Compactor
from tidemark.compaction.leases import LEASE_SECONDS, keep_lease, wait_for_summary
from tidemark.compaction.lost_summaries import IN_VAIN
from tidemark.compaction.order import CompactionOrder, CompactionResult, NotSummarized, Summarized, Trigger
from tidemark.compaction.writer import SummaryWriter
from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import digest_of
from tidemark.core.conversation.summary import MaskedResults, PrefixSummary
from tidemark.core.errors import StoreError
from tidemark.core.events import Listener, StoreDegraded
from tidemark.core.frozen import frozen
from tidemark.core.ports import ConversationStore, Lease, LeaseStore, Summarizer

MOST_TURNS = 8
"""How often a request waits for another worker's summary, or makes its own, before it makes one without the lease. A
bound, since each summary may cost a call of a model."""
MAX_ABANDONED = 256
"""Abandoned orders that a process remembers."""


class ImmediateCompaction:
    """Makes summaries that requests wait for.

    The mutable state is the table of this process's running compactions. Equal orders share one task, and the task is
    cancelled when no request waits for it any more. A task that was cancelled once before runs to its end: its client
    is less patient than its summarizer, and would otherwise never get a summary.
    """

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
        self._running: dict[_Key, _Flight] = {}
        self._abandoned: BoundedCache[_Key, bool] = BoundedCache(MAX_ABANDONED)

    async def compact(self, order: CompactionOrder, *, wait_seconds: float | None = None) -> CompactionResult:
        """Make the summary that ``order`` asks for, or wait for an equal order's summary.

        :param wait_seconds: what is left of the policy's ``wait_seconds``, if some of it is used up
        """
        key = _key(order, self._writer.summarizer_for(order))
        flight = self._running.get(key)
        if flight is None:
            seconds = order.profile.policy.wait_seconds if wait_seconds is None else wait_seconds
            task = asyncio.create_task(self._perform(order, _lease_name(key), seconds))
            flight = self._running[key] = _Flight(task)
            task.add_done_callback(lambda _: self._remove(key, flight))
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if flight.waiting == 0 and not flight.task.done() and key not in self._abandoned:
                self._abandoned.put(key, value=True)
                # At once, not when the task has ended: the next order must not wait for a cancelled task.
                self._remove(key, flight)
                flight.task.cancel()

    async def adopt(self, order: CompactionOrder, summary: PrefixSummary) -> Summarized:
        """Put a prepared summary into use."""
        return await self._compactor.adopt(order, summary)

    async def mask(self, order: CompactionOrder, masked: MaskedResults) -> Summarized:
        """Put lines into use that stand for results of tools."""
        return await self._compactor.mask(order, masked)

    def _remove(self, key: _Key, flight: _Flight) -> None:
        if self._running.get(key) is flight:
            del self._running[key]
        if flight.task.done() and not flight.task.cancelled():
            self._abandoned.pop(key, None)

    async def _perform(self, order: CompactionOrder, name: str, seconds: float) -> CompactionResult:
        is_in_vain = self._writer.is_in_vain(order)
        run = self._compactor.begin(order, Trigger.REQUEST, deterministic=is_in_vain)
        result = await self._stored_or_made(_Attempt(run, name, asyncio.get_running_loop().time() + seconds))
        if is_in_vain and isinstance(result, Summarized):
            return replace(result, warning=result.warning or IN_VAIN)
        return result

    async def _stored_or_made(self, attempt: _Attempt) -> CompactionResult:
        try:
            for _ in range(0 if attempt.run.order.degraded else MOST_TURNS):
                result = await self._take_turn(attempt)
                if result is not None:
                    return result
        except StoreError as error:
            # A summary that cannot be stored is not worth a model's time: every request would make it anew.
            self._emit(StoreDegraded("take_lease", error.internal or str(error)))
            attempt = replace(attempt, run=self._compactor.degrade(attempt.run))
        result = await self._make(attempt, None)
        if isinstance(result, Summarized):
            return replace(result, degraded=attempt.run.order.degraded)
        return result or NotSummarized("the summary found no place")

    async def _take_turn(self, attempt: _Attempt) -> CompactionResult | None:
        """Make the summary under the lease, or wait for the worker that has the lease.

        :returns: None if that worker made no summary
        """
        order, recipe = attempt.run.order, attempt.run.recipe
        chain, covered, absorbed = order.chain, order.plan.covered, order.plan.absorbed
        lease = await self._leases.take(attempt.lease_name, chain, covered, recipe, LEASE_SECONDS, absorbed=absorbed)
        if lease is not None:
            async with keep_lease(self._leases, lease):
                summary = await self._store.summary(chain, covered, recipe, absorbed=absorbed)
                if summary is not None and self._compactor.is_usable(order, summary):
                    return Summarized(summary, self._compactor.tokens(order, summary))
                return await self._make(attempt, lease)
        try:
            async with asyncio.timeout(max(attempt.seconds_left(), 0.0)):
                summary = await wait_for_summary(
                    self._store,
                    self._leases,
                    chain,
                    covered,
                    recipe,
                    name=attempt.lease_name,
                    waiting=False,
                    absorbed=absorbed,
                    is_usable=lambda summary: self._compactor.is_usable(order, summary),
                )
        except TimeoutError:
            late = NotSummarized("the summary was not ready in time")
            return await self._compactor.make(attempt.run, failure=late)
        return None if summary is None else Summarized(summary, self._compactor.tokens(order, summary))

    async def _make(self, attempt: _Attempt, lease: Lease | None) -> CompactionResult | None:
        """Make the summary in the time that the client still waits; a deterministic one always gets its time."""
        run, failure, seconds = attempt.run, None, None
        if run.summarizer.recipe.strategy != self._writer.fallback.recipe.strategy:
            seconds = attempt.seconds_left()
            failure = NotSummarized("there was no time to wait for a summary") if seconds <= 0 else None
        return await self._compactor.make(run, lease=lease, seconds=seconds, failure=failure)


_Key = tuple[bytes, str, str, int, tuple[bytes, ...], str]


def _key(order: CompactionOrder, summarizer: Summarizer) -> _Key:
    """Return what makes two orders equal: prefix, recipe, tokenizer, bound, absorbed messages and the summary in use.

    A person may replace the summary in use, and a request after that must not get what is being made upon the old one.
    """
    plan, recipe = order.plan, summarizer.recipe
    prefix, version = order.chain.at(plan.covered), order.in_use.version if order.in_use else ""
    return (prefix, recipe.key, order.route.upstream_model, plan.max_summary_tokens, plan.absorbed, version)


def _lease_name(key: _Key) -> str:
    """Return the name of an order's lease, which is equal in all processes."""
    prefix, recipe, model, bound, absorbed, version = key
    return digest_of(prefix, recipe.encode(), model.encode(), str(bound).encode(), version.encode(), *absorbed).hex()


@frozen
class _Attempt:
    """A compaction in this process, and how long its client waits."""

    run: CompactionRun
    lease_name: str
    deadline: float
    """Seconds by the event loop's clock."""

    def seconds_left(self) -> float:
        return self.deadline - asyncio.get_running_loop().time()


class _Flight:
    """A running compaction, and how many requests wait for it."""

    def __init__(self, task: asyncio.Task[CompactionResult]) -> None:
        self.task = task
        self.waiting = 0
