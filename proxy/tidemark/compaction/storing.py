"""Storing a new summary, and flushing what leaves the context for it.

The last step of ``Compactor.make`` before the event. How a summary is stored depends on its trigger: a request uses
it at once, a preparation only stores it, and a compaction by hand replaces what is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, assert_never

from tidemark.compaction.order import CompactionOrder, Trigger
from tidemark.compaction.record import flush_of
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.errors import StoreError, SummaryOutdated
from tidemark.core.events import Listener, StoreDegraded
from tidemark.core.frozen import frozen
from tidemark.core.ports import ConversationStore, Lease, MemoryFlush


class ReplaceStored(Protocol):
    """``RedisSummaryReplacement.replace``, without its expectation of what stands there."""

    def __call__(self, tenant: str, conversation: str, summary: PrefixSummary, *, owner: str = "") -> Awaitable[None]:
        """Store a summary in place of any other one."""
        ...


@frozen
class SummaryOutcome:
    """The summary that counts for its prefix from now on."""

    summary: PrefixSummary
    stored: bool
    """Whether the store has it, so that the next request finds it."""
    outdated: bool = False
    """Whether it is not stored because a person replaced the summary that it was made upon."""


@frozen(kw_only=True)
class SummaryStorage:
    """Stores summaries and flushes what leaves the context; holds no state.

    :param replace_stored: ``RedisSummaryReplacement.replace``, which only a compaction by hand needs
    :param flushes: receive what leaves the context; a feature may add itself to the list later
    """

    store: ConversationStore
    replace_stored: ReplaceStored
    emit: Listener
    flushes: Sequence[MemoryFlush] = ()

    async def keep(
        self,
        order: CompactionOrder,
        trigger: Trigger,
        summary: PrefixSummary,
        lease: Lease | None,
        is_usable: Callable[[PrefixSummary], bool],
        *,
        begun_at: float,
    ) -> SummaryOutcome | None:
        """Store a summary as its trigger requires.

        :param is_usable: whether the order can use a summary that is stored for the same prefix
        :param begun_at: when the compaction began, as Unix time in seconds
        :returns: None if another worker has the lease by now, so that its summary counts
        :raises SummaryOutdated: a person replaced the summary that a preparation was made upon, or deleted the
            conversation
        :raises StoreError: a preparation or a compaction by hand could not store it
        """
        match trigger:
            case Trigger.REQUEST:
                return await self._put_into_use(order, summary, lease, is_usable, begun_at=begun_at)
            case Trigger.PREPARATION:
                await self._keeping(order, summary, lease, begun_at)(waiting=True)
                return SummaryOutcome(summary, stored=True)
            case Trigger.MANUAL:
                for flush in self.flushes if order.keep == "all" else ():
                    await flush.intend(flush_of(order, summary))
                await self.replace_stored(order.tenant, order.conversation, summary, owner=order.owner)
                return self._flushed(order, summary, stored=True)
            case Trigger.OFFLINE:
                return SummaryOutcome(summary, stored=False)
            case _:
                assert_never(trigger)

    def _keeping(
        self, order: CompactionOrder, summary: PrefixSummary, lease: Lease | None, begun_at: float
    ) -> Callable[..., Awaitable[PrefixSummary | None]]:
        """Return what stores a summary."""
        return partial(
            self.store.keep_summary,
            order.tenant,
            order.conversation,
            order.chain,
            summary,
            lease=lease,
            upon=order.in_use,
            begun_at=begun_at,
            owner=order.owner,
            model=order.model,
        )

    async def _put_into_use(
        self,
        order: CompactionOrder,
        summary: PrefixSummary,
        lease: Lease | None,
        is_usable: Callable[[PrefixSummary], bool],
        *,
        begun_at: float,
    ) -> SummaryOutcome | None:
        """Store a summary that a request uses now.

        If another worker was first, and the order can use its summary, that one counts.
        """
        if order.degraded:
            return self._flushed(order, summary, stored=False)
        keep = self._keeping(order, summary, lease, begun_at)
        try:
            keeping = keep()
            if not self.flushes or order.keep != "all":
                stored = await keeping
            else:  # all at once, so that the client waits for one round trip only
                leaving = flush_of(order, summary)
                stored, *_ = await asyncio.gather(keeping, *[flush.intend(leaving) for flush in self.flushes])
            if stored is not None and not is_usable(stored):
                # The window got smaller since, or other system messages must be absorbed.
                stored = await keep(replacing=True)
        except SummaryOutdated:  # this request began before a person replaced the text or deleted the conversation
            return replace(self._flushed(order, summary, stored=False), outdated=True)
        except StoreError as error:
            self.emit(StoreDegraded("keep_summary", error.internal or str(error)))
            return self._flushed(order, summary, stored=False)
        return None if stored is None else self._flushed(order, stored, stored=True)

    def _flushed(self, order: CompactionOrder, summary: PrefixSummary, *, stored: bool) -> SummaryOutcome:
        """Hand over what leaves the context for a summary."""
        for flush in self.flushes if order.keep == "all" else ():
            flush.put(flush_of(order, summary, stored=stored))
        return SummaryOutcome(summary, stored)
