"""Delivers queued entries, in one process of all that share a store.

It runs inside ``serve`` or on its own (``tidemark flush work``). The leading worker has a lease; the others check
whether the lease is free. Only the leader reads entries, so that those of one conversation stay in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Sequence

from tidemark.core.errors import StoreError
from tidemark.core.events import Listener, StoreDegraded
from tidemark.core.flush_events import FlushLost, FlushWaiting
from tidemark.delivery.courier import Courier
from tidemark.delivery.queue import RedisFlushQueue
from tidemark.delivery.recovery import Recovery
from tidemark.store.repetition import RepeatedLook

POLL_SECONDS = 1.0
"""Pause between two reads of the queue. What this process queues itself is delivered at once."""
LEASE_SECONDS = 10.0
"""Another worker leads within this time after the leader died."""
_RENEWALS = 3
"""Renewals within the time of one lease, so that two may fail."""
SWEEP_SECONDS = 30.0
"""Pause between two runs of the recovery."""
CLAIM_SECONDS = 600.0
"""The leader takes over any entry that a reader got so long ago and did not finish."""
WATCH_SECONDS = 5.0
"""Pause between two reads of the queue's state, for the metrics."""


class FlushWorker:
    """Delivers entries while it leads.

    The mutable state is whether it leads, until when that is certain, and when it last claimed and swept. One task
    keeps the lease, and a second one works while the lease is kept. However long a step of the work takes, the first
    task renews the lease; if the lease is lost all the same, the work is cancelled in the middle of its step.

    :param reader: its name among all workers
    """

    def __init__(
        self,
        queue: RedisFlushQueue,
        couriers: Sequence[Courier],
        recovery: Recovery,
        *,
        reader: str,
        emit: Listener,
        lease_seconds: float = LEASE_SECONDS,
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        self._queue = queue
        self._couriers = couriers
        self._recovery = recovery
        self._reader = reader
        self._lease = lease_seconds
        self._poll = poll_seconds
        self._emit = emit
        self._leads_until = self._last_claim = self._last_sweep = -math.inf
        self._has_news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._work: asyncio.Task[None] | None = None
        self.leads = False

    def start(self) -> None:
        self._task = asyncio.create_task(self._keep_leading())

    def nudge(self) -> None:
        """Read the queue at once: it has a new entry."""
        self._has_news.set()

    async def aclose(self) -> None:
        """Stop, and let another worker lead. It offers unfinished entries again."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._stop()
        for courier in self._couriers:
            await courier.consumer.aclose()
        if self.leads:
            with contextlib.suppress(StoreError):
                await self._queue.lead(self._reader, 0)

    async def _keep_leading(self) -> None:
        """Take the lease or renew it, and work as long as it is kept."""
        pause = self._lease / _RENEWALS
        while True:
            now = asyncio.get_running_loop().time()
            try:
                self.leads = await self._queue.lead(self._reader, self._lease)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next try may succeed
                self._report(error)
                await asyncio.sleep(min(pause, self._poll))
                continue
            if not self.leads:
                self._leads_until = -math.inf
                await self._stop()
            else:
                if now >= self._leads_until:
                    self._last_claim = -math.inf  # another leader may have left unfinished entries
                self._leads_until = now + self._lease
                if self._work is None:
                    self._work = asyncio.create_task(self._run())
            await asyncio.sleep(pause)

    async def _stop(self) -> None:
        """Stop working; the next leader offers unfinished entries again."""
        if self._work is not None:
            self._work.cancel()
            await asyncio.gather(self._work, return_exceptions=True)
        for courier in self._couriers:
            await courier.drop()
        self._work = None

    async def _run(self) -> None:
        while True:
            try:
                await self._round(asyncio.get_running_loop().time())
            except Exception as error:  # noqa: BLE001 - whatever it is, the next round may succeed
                self._report(error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._has_news.wait(), self._poll)
            self._has_news.clear()

    async def _round(self, now: float) -> None:
        """Claim, sweep and read, as far as each is due and this worker still leads.

        :param now: seconds by the loop's clock
        """
        if now - self._last_claim >= CLAIM_SECONDS:
            idle = CLAIM_SECONDS if self._last_claim > -math.inf else 0.0  # at first all entries of the leader before
            for courier in self._couriers:
                if not self._certainly_leads():
                    return
                await courier.claim(idle)
            self._last_claim = now
        if now - self._last_sweep >= SWEEP_SECONDS:
            self._last_sweep = now
            await self._recovery.sweep()
        for courier in self._couriers:
            if self._certainly_leads() and await courier.read():
                self._has_news.set()

    def _certainly_leads(self) -> bool:
        """Return whether the lease was renewed within its time; otherwise another worker may lead."""
        return asyncio.get_running_loop().time() < self._leads_until

    def _report(self, error: Exception) -> None:
        detail = error.internal if isinstance(error, StoreError) else type(error).__name__
        self._emit(StoreDegraded("flush", detail))


class QueueWatch:
    """Emits every few seconds how full the queue is. The mutable state is the lost entries that it reported."""

    def __init__(self, queue: RedisFlushQueue, emit: Listener, seconds: float = WATCH_SECONDS) -> None:
        self._queue = queue
        self._emit = emit
        self._lost: dict[str, int] = {}
        self._looks = RepeatedLook(self._look, seconds)
        self.start, self.aclose = self._looks.start, self._looks.aclose

    async def report(self) -> None:
        """Read the queue's state and emit it.

        :raises StoreUnavailable: the store did not answer in time
        """
        state = await self._queue.state()
        for consumer in state.consumers:
            name, lost = consumer.name, consumer.lost
            age = max(0.0, state.now - consumer.oldest_at) if consumer.oldest_at is not None else 0.0
            self._emit(FlushWaiting(name, max(consumer.waiting, 0) + consumer.pending, age, lost, state.dead))
            if lost > self._lost.setdefault(name, lost):
                self._lost[name] = lost
                self._emit(FlushLost(name, lost))

    async def _look(self) -> None:
        with contextlib.suppress(StoreError):
            await self.report()
