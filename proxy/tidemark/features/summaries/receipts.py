"""Compare the summaries of a stored conversation with its messages: what each still has, and what was lost.

``features/summaries/feature.py`` and the console call this. Nothing of it is stored: the history is complete, so the
details of a loss can be found at any time.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.records import ConversationRecord
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.errors import SummaryOverdue
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller
from tidemark.core.receipt import Detail, Receipt, receipt_of
from tidemark.dialects.message_formats import MessageFormats
from tidemark.features.conversations.access import ArchiveAccess
from tidemark.features.conversations.pages import Page, cursor_after
from tidemark.features.conversations.standing_summaries import StandingSummaries
from tidemark.pipeline.history_reader import offloaded
from tidemark.store.conversations import RedisStore
from tidemark.summarizers.receipts import ReceiptWriter

MAX_LOSSES = 200
"""The most lost details that are named of one summary; all are counted."""


@frozen
class SummaryReceipt:
    """What one summary has of all messages that it stands for."""

    summary: PrefixSummary
    receipt: Receipt
    in_use: bool
    losses: tuple[Detail, ...] = ()
    """The first details that are shortened or dropped, by kind."""
    compared: bool = True
    """Whether the messages could be read. If not, the receipt is the one that was stored with the summary."""


@frozen
class ReceiptPage:
    """A page of a conversation's receipts, oldest summary first."""

    conversation: str
    receipts: tuple[SummaryReceipt, ...]
    next_cursor: str | None


@frozen(kw_only=True)
class ReceiptReader:
    """Reads receipts; holds no state of its own."""

    access: ArchiveAccess
    store: RedisStore
    summaries: StandingSummaries
    formats: MessageFormats
    comparison: ReceiptWriter

    async def receipts(self, conversation: str, caller: Caller | None, page: Page) -> ReceiptPage:
        """Return a page of receipts, each of a summary against the conversation's own messages.

        :param caller: None for the operator
        :raises ConversationNotFound: there is none of that id, or it is another tenant's
        """
        record = await self.access.record(conversation, caller)
        summaries = await self.summaries.of(record)
        in_use = await self.summaries.in_use(record)
        start = page.start()
        shown = summaries[start - 1 : start - 1 + page.limit]
        messages = await self._messages(record, max((summary.covered for summary in shown), default=0))
        receipts = [await self._compared(summary, messages, in_use=summary == in_use) for summary in shown]
        more = start - 1 + len(shown) < len(summaries)
        return ReceiptPage(record.id, tuple(receipts), cursor_after(start, shown, more=more))

    async def _messages(self, record: ConversationRecord, stop: int) -> Sequence[Message]:
        """Return the messages up to a position; none if some have expired or cannot be read."""
        stored = await self.store.messages(record.id, start=1, stop=stop) if stop else ()
        if len(stored) != stop or any(message.unreadable for message in stored):
            return ()
        raws = [message.raw for message in stored]
        return await offloaded(lambda: self.formats.read(raws), raws)

    async def _compared(self, summary: PrefixSummary, messages: Sequence[Message], *, in_use: bool) -> SummaryReceipt:
        details: Sequence[Detail] = ()
        if len(messages) >= summary.covered:
            try:
                by_model = summary.made_by != "extractive" and not summary.edited
                covered = messages[: summary.summarized]
                details = await self.comparison.details(covered, "", summary.text, by_model=by_model)
            except SummaryOverdue:
                messages = ()
        if len(messages) < summary.covered:
            return SummaryReceipt(summary, summary.receipt, in_use, compared=False)
        losses = [detail for detail in details if detail.survival in ("shortened", "dropped")]
        # How much of a model's text had to go is known from its making alone.
        shortened = tuple(count for count in summary.receipt if count.kind == "statements")
        return SummaryReceipt(summary, (*receipt_of(details), *shortened), in_use, tuple(losses[:MAX_LOSSES]))
