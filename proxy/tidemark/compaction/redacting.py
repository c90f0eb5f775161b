"""Redacts what a compaction reads, writes, stores and flushes.

The request itself keeps its messages. If a text cannot be redacted, a request that waits gets a summary without a
model, which holds for it alone: nothing of it is stored or flushed.
"""

from __future__ import annotations

from dataclasses import replace

from tidemark.compaction.order import CompactionOrder
from tidemark.core.conversation.summary import MaskedResults, SummaryText
from tidemark.core.errors import RedactionFailed
from tidemark.core.events import Listener, StoreDegraded
from tidemark.core.ports import Redactor


class OrderRedaction:
    """Redacts orders and texts of compactions; it has no state.

    :param redactor: None changes nothing
    """

    def __init__(self, redactor: Redactor | None, emit: Listener) -> None:
        self._redactor = redactor
        self._emit = emit

    async def order(self, order: CompactionOrder) -> CompactionOrder:
        """Return an order whose messages are redacted. The chain is that of the client's own.

        :raises RedactionFailed: some cannot be redacted
        """
        if self._redactor is None:
            return order
        plan, redact = order.plan, self._redactor.messages
        try:
            changed = replace(
                plan, messages=tuple(await redact(plan.messages)), earlier=tuple(await redact(plan.earlier))
            )
            originals = await redact(order.original_messages)
        except RedactionFailed as error:
            self._emit(StoreDegraded("redact", error.internal or str(error)))
            raise
        # A summarizer that continues the request, or the provider itself, would read what the client sent.
        return replace(order, plan=changed, original_messages=originals, request=None, ask_provider=None)

    async def draft(self, draft: SummaryText) -> SummaryText:
        """Return a text in which nothing is that a summary before the redaction, or a model, has brought in."""
        if self._redactor is None:
            return draft
        text, stated = await self._redactor.texts([draft.text, draft.stated])
        return replace(draft, text=text, stated=stated)

    async def masked(self, masked: MaskedResults) -> MaskedResults:
        """Return redacted lines in the place of results."""
        if self._redactor is None:
            return masked
        lines = await self._redactor.texts([line for _, line in masked.lines])
        return replace(masked, lines=tuple((place, line) for (place, _), line in zip(masked.lines, lines, strict=True)))


def is_unstored(order: CompactionOrder) -> bool:
    """Return whether nothing of an order is stored or flushed."""
    return order.degraded and order.keep == "none"


def unstored(order: CompactionOrder) -> CompactionOrder:
    """Return an order of which nothing is stored, flushed or given to a model."""
    return replace(order, degraded=True, keep="none", request=None, ask_provider=None)
