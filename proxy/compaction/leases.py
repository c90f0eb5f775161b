"""Holding a lease while a summary is made: renewed as long as the work goes on, given back when it ends.

Below compactor and preparation, above the ports. One summary per prefix is made however many requests, workers and
replicas want it; a worker that dies gives way within ``LEASE_SECONDS``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from proxy.core.conversation.prefix import PrefixChain
from proxy.core.conversation.summary import PrefixSummary, SummaryRecipe
from proxy.core.errors import StoreError
from proxy.core.ports import ConversationStore, Lease, LeaseStore

LEASE_SECONDS = 10.0
_RENEWALS = 3
"""In the time of one lease, so that two may fail."""
_FIRST_LOOK_SECONDS = 0.02
_LOOK_SECONDS = 0.2
"""Between two looks at the store for a summary that another worker makes."""


@contextlib.asynccontextmanager
async def held(leases: LeaseStore, lease: Lease, seconds: float = LEASE_SECONDS) -> AsyncIterator[None]:
    """Keep a lease while the body runs. Where it is lost meanwhile, the store refuses what comes of it."""
    renewing = asyncio.create_task(_renewed(leases, lease, seconds))
    try:
        yield
    finally:
        renewing.cancel()
        with contextlib.suppress(StoreError):
            await leases.release(lease)


class LeaseKeeper:
    """Holds a lease beyond a block of code, for as long as the task that took it runs."""

    def __init__(self, leases: LeaseStore, lease: Lease, seconds: float) -> None:
        self._leases = leases
        self._lease = lease
        self._renewing = asyncio.create_task(_renewed(leases, lease, seconds))
        task = asyncio.current_task()
        if task is not None:
            task.add_done_callback(lambda _: self.leave())

    def leave(self) -> None:
        """Hold it no longer; somebody else gives it back, or it expires."""
        self._renewing.cancel()

    async def end(self) -> None:
        """Give it back."""
        self.leave()
        with contextlib.suppress(StoreError):
            await self._leases.release(self._lease)


async def _renewed(leases: LeaseStore, lease: Lease, seconds: float) -> None:
    holding = True
    while holding:
        await asyncio.sleep(seconds / _RENEWALS)
        with contextlib.suppress(StoreError):
            holding = await leases.renew(lease, seconds)


async def awaited(
    store: ConversationStore,
    leases: LeaseStore,
    chain: PrefixChain,
    covered: int,
    recipe: SummaryRecipe,
    *,
    name: str,
    waiting: bool,
    absorbed: Sequence[bytes] = (),
    usable: Callable[[PrefixSummary], bool] = lambda _: True,
) -> PrefixSummary | None:
    """The summary that another one is making under the lease ``name``; None once that is over without one.

    The caller bounds it in time.

    :param waiting: whether it is a prepared one
    :param absorbed: digests of exactly the system messages that it tells
    :raises StoreUnavailable: the store did not answer in time
    """
    pause = _FIRST_LOOK_SECONDS
    while True:
        taken = await leases.taken(chain.family, name)  # before the look: it is kept before the lease is given back
        found = await store.summary(chain, covered, recipe, absorbed=absorbed, waiting=waiting)
        if found is not None and usable(found):
            return found
        if not taken:
            return None
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LOOK_SECONDS)
