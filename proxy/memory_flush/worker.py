"""The worker: delivers what is in the queue, in one process of all that share a store.

Inside ``serve`` or by itself (``tidemark flush work``). Who leads holds a lease; the others look whether it is free.
Only who leads is given entries, so that those of one conversation stay in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Sequence

from proxy.core.errors import StoreError
from proxy.core.events import FlushLost, FlushWaiting, Listener, StoreDegraded
from proxy.core.ports import FlushQueue
from proxy.memory_flush.courier import Courier
from proxy.memory_flush.recovery import Recovery

POLL_SECONDS = 1.0
"""Between two looks at the queue. What this process queues itself is delivered at once."""
LEASE_SECONDS = 10.0
"""A worker that dies gives way within it."""
_RENEWALS = 3
"""In the time of one lease, so that two may fail."""
SWEEP_SECONDS = 30.0
CLAIM_SECONDS = 600.0
"""An entry that was given to somebody so long ago and is held by nobody is taken over, whoever it was."""
WATCH_SECONDS = 5.0
"""Between two readings of the queue's state, for the metrics."""


class FlushWorker:
    """Delivers. The mutable state is whether it leads, until when that is sure, and when things were last done.

    One task holds the lease; the work is another, which is there while the lease is held. However long a step of it
    takes, the lease is renewed meanwhile; and where it is lost all the same, the work ends in the middle of its step.

    :param reader: its name among all workers
    """

    def __init__(
        self,
        queue: FlushQueue,
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
        self._sure = self._claimed = self._swept = -math.inf
        self._nudged = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._work: asyncio.Task[None] | None = None
        self.leads = False

    def start(self) -> None:
        """Work from now on, in the running loop."""
        self._task = asyncio.create_task(self._hold())

    def nudge(self) -> None:
        """There is something new in the queue."""
        self._nudged.set()

    async def aclose(self) -> None:
        """Give way to another worker. What is under way is offered again by that one."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._stop()
        for courier in self._couriers:
            await courier.consumer.aclose()
        if self.leads:
            with contextlib.suppress(StoreError):
                await self._queue.lead(self._reader, 0)

    async def _hold(self) -> None:
        """Take the lease or keep it, and work as long as it is held."""
        pause = self._lease / _RENEWALS
        while True:
            asked = asyncio.get_running_loop().time()
            try:
                self.leads = await self._queue.lead(self._reader, self._lease)
            except Exception as error:  # noqa: BLE001 - whatever it is, the next time may succeed
                self._tell(error)
                await asyncio.sleep(min(pause, self._poll))
                continue
            if not self.leads:
                self._sure = -math.inf
                await self._stop()
            else:
                if asked >= self._sure:
                    self._claimed = -math.inf  # whoever led meanwhile may have left something
                self._sure = asked + self._lease
                if self._work is None:
                    self._work = asyncio.create_task(self._run())
            await asyncio.sleep(pause)

    async def _stop(self) -> None:
        """Let go of everything; what is under way is offered again by who leads then."""
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
                self._tell(error)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._nudged.wait(), self._poll)
            self._nudged.clear()

    async def _round(self, now: float) -> None:
        """What is due now; ``now`` is the loop's clock. What is another leader's by now is not asked for."""
        if now - self._claimed >= CLAIM_SECONDS:
            idle = CLAIM_SECONDS if self._claimed > -math.inf else 0.0  # at first all that the leader before held
            for courier in self._couriers:
                if not self._is_sure():
                    return
                await courier.claim(idle)
            self._claimed = now
        if now - self._swept >= SWEEP_SECONDS:
            self._swept = now
            await self._recovery.sweep()
        for courier in self._couriers:
            if self._is_sure() and await courier.look():
                self._nudged.set()

    def _is_sure(self) -> bool:
        """Whether a renewal came through within the lease's time: else somebody else may lead."""
        return asyncio.get_running_loop().time() < self._sure

    def _tell(self, error: Exception) -> None:
        told = error.internal if isinstance(error, StoreError) else type(error).__name__
        self._emit(StoreDegraded("flush", told))


class Watch:
    """Tells every few seconds how full the queue is; the mutable state is what was told lost before."""

    def __init__(self, queue: FlushQueue, emit: Listener, seconds: float = WATCH_SECONDS) -> None:
        self._queue = queue
        self._emit = emit
        self._seconds = seconds
        self._lost: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watch from now on, in the running loop."""
        self._task = asyncio.create_task(self._run())

    async def aclose(self) -> None:
        """Watch no longer."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def tell(self) -> None:
        """Read the state and tell it.

        :raises StoreUnavailable: the store did not answer in time
        """
        state = await self._queue.state()
        for one in state.consumers:
            age = max(0.0, state.now - one.oldest_at) if one.oldest_at is not None else 0.0
            self._emit(FlushWaiting(one.name, max(one.waiting, 0) + one.pending, age, one.lost, state.dead))
            if one.lost > self._lost.setdefault(one.name, one.lost):
                self._lost[one.name] = one.lost
                self._emit(FlushLost(one.name, one.lost))

    async def _run(self) -> None:
        while True:
            with contextlib.suppress(StoreError):
                await self.tell()
            await asyncio.sleep(self._seconds)
