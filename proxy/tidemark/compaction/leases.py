"""Keep a lease while a summary is made. Renew it as long as the work goes on, and release it at the end.

``immediate.py``, ``background.py`` and the turns of stored history use this above the ports. However many requests
and workers need a summary, one worker makes it; a lease of a worker that dies expires within ``LEASE_SECONDS``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Sequence

from tidemark.core.conversation.prefix import PrefixChain
from tidemark.core.conversation.summary import PrefixSummary, SummaryRecipe
from tidemark.core.errors import StoreError
from tidemark.core.ports import ConversationStore, Lease, LeaseStore

LEASE_SECONDS = 10.0
_RENEWALS = 3
"""Renewals within the time of one lease, so that two may fail."""
_FIRST_LOOK_SECONDS = 0.02
_LOOK_SECONDS = 0.2
"""Longest pause between two looks at the store for another worker's summary."""


@contextlib.asynccontextmanager
async def keep_lease(leases: LeaseStore, lease: Lease, seconds: float = LEASE_SECONDS) -> AsyncIterator[None]:
    """Keep a lease while the body runs. If the lease is lost meanwhile, the store refuses the body's result."""
    renewal = asyncio.create_task(_renew(leases, lease, seconds))
    try:
        yield
    finally:
        renewal.cancel()
        with contextlib.suppress(StoreError):
            await leases.release(lease)


class LeaseKeeper:
    """Keeps a lease beyond a block of code, for as long as the task that took it runs."""

    def __init__(self, leases: LeaseStore, lease: Lease, seconds: float) -> None:
        self._leases = leases
        self._lease = lease
        self._renewal = asyncio.create_task(_renew(leases, lease, seconds))
        task = asyncio.current_task()
        if task is not None:
            task.add_done_callback(lambda _: self.leave())

    def leave(self) -> None:
        """Stop renewing the lease; it is released elsewhere, or expires."""
        self._renewal.cancel()

    async def end(self) -> None:
        """Release the lease."""
        self.leave()
        with contextlib.suppress(StoreError):
            await self._leases.release(self._lease)


async def _renew(leases: LeaseStore, lease: Lease, seconds: float) -> None:
    owned = True
    while owned:
        await asyncio.sleep(seconds / _RENEWALS)
        with contextlib.suppress(StoreError):
            owned = await leases.renew(lease, seconds)


async def wait_for_summary(
    store: ConversationStore,
    leases: LeaseStore,
    chain: PrefixChain,
    covered: int,
    recipe: SummaryRecipe,
    *,
    name: str,
    waiting: bool,
    absorbed: Sequence[bytes] = (),
    is_usable: Callable[[PrefixSummary], bool] = lambda _: True,
) -> PrefixSummary | None:
    """Return the summary that another worker makes under the lease ``name``; None if it made none.

    The caller sets the timeout.

    :param waiting: whether the summary is a prepared one
    :param absorbed: digests of exactly the system messages that the summary takes in
    :raises StoreUnavailable: the store did not answer in time
    """
    pause = _FIRST_LOOK_SECONDS
    while True:
        # Read the lease first: the other worker stores the summary before it releases the lease.
        is_running = await leases.is_taken(chain.family, name)
        summary = await store.summary(chain, covered, recipe, absorbed=absorbed, waiting=waiting)
        if summary is not None and is_usable(summary):
            return summary
        if not is_running:
            return None
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LOOK_SECONDS)
