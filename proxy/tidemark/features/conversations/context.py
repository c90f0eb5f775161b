"""Show what a model sees of a stored conversation, and what it saw at any message.

The pipeline plans the stored messages as a request of theirs, and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.records import ConversationRecord, MessageRecord
from tidemark.core.conversation.request import Dialect
from tidemark.core.errors import ConversationNotFound, InvalidRequest, RecordUnreadable
from tidemark.core.frozen import frozen
from tidemark.core.planning.assemble import assemble
from tidemark.core.planning.situation import NoCompaction, ReuseSummary
from tidemark.core.ports import NO_CREDENTIAL, Caller
from tidemark.features.conversations.access import ArchiveAccess
from tidemark.features.conversations.pages import ContextSnapshot, RequestForms
from tidemark.features.conversations.standing_summaries import StandingSummaries
from tidemark.pipeline.commands import at_rest
from tidemark.pipeline.fit import BudgetFitter
from tidemark.pipeline.history_reader import HistoryReader, chain_of_stored
from tidemark.pipeline.steps import Pipeline
from tidemark.pipeline.values import Controls, ConversationPlace, Refused
from tidemark.store.conversations import RedisStore
from tidemark.store.request_heads import RedisRequestHeads


@frozen(kw_only=True)
class ContextView:
    """Shows contexts; holds no state of its own."""

    access: ArchiveAccess
    store: RedisStore
    heads: RedisRequestHeads
    summaries: StandingSummaries
    pipeline: Pipeline
    fitter: BudgetFitter
    dialect: Dialect
    reader: HistoryReader

    async def context(self, conversation: str, caller: Caller | None, at: int | None) -> ContextSnapshot:
        """Return what the model would see now, or what it saw when it was asked at a message.

        :param at: a message of a question or an answer, counted from 1; None for now
        """
        record = await self.access.record(conversation, caller)
        messages = await self.reader.messages(record)
        if at is not None:
            return (await self._context_at(record, messages, at)).forwarded
        heads = await self.heads.leading_system_messages(record.id)
        request = await self.reader.request(self.dialect, record.model, heads, messages)
        place = ConversationPlace(record.tenant, chain_of_stored(record.id, messages))
        context = await self.pipeline.identify(request, caller or NO_CREDENTIAL, Controls(), place=place)
        fitted = await self.fitter.fit(at_rest(context))
        if isinstance(fitted, Refused):
            raise fitted.error
        report = fitted.report
        return ContextSnapshot(
            conversation=record.id,
            at=record.message_count,
            exact=isinstance(self.fitter.plan(context), NoCompaction | ReuseSummary),
            model=record.model,
            messages=tuple(self.dialect.raws_of(fitted.messages)),
            summarized_messages=report.summarized,
            tokens=report.tokens_after,
            limit=report.limit,
        )

    async def forms(self, conversation: str, caller: Caller | None, at: int, newest: bytes) -> RequestForms | None:
        """Return both forms of a request, made of what is stored; None if that is another request by now.

        :param at: the position of its newest message
        :param newest: the beginning of that message's id
        :raises ConversationNotFound: it does not exist, or the caller does not own it
        """
        record = await self.access.record(conversation, caller)
        try:
            stored = await self.reader.messages(record)
            if not 0 < at <= len(stored) or not bytes.fromhex(stored[at - 1].message_id).startswith(newest):
                return None
            return await self._context_at(record, stored, at)
        except (ConversationNotFound, RecordUnreadable, InvalidRequest):  # some have expired, or are of no turn
            return None

    async def _context_at(self, record: ConversationRecord, stored: Sequence[MessageRecord], at: int) -> RequestForms:
        turns = [turn for turn in await self.store.all_turns(record.id) if turn.last <= record.message_count]
        turn = next((turn for turn in turns if turn.first <= at <= turn.last), None)
        if turn is None:
            raise InvalidRequest(f"'at' must be a message of a turn, from 1 to {record.message_count}.", param="at")
        last_question, is_answered = turn.last, turn.complete and not turn.beyond
        (last,) = self.reader.formats.read([stored[turn.last - 1].raw])
        if is_answered and turn.last > 1 and last.role == "assistant":
            last_question -= 1
        # Of a turn that the parent shares, the answer may be missing, and nothing else.
        is_whole = turn.beyond <= turn.complete
        texts = await self.store.system_messages(record.id)
        heads = [texts[digest] for place, digest in turn.systems if place == 0 and digest in texts]
        request = await self.reader.request(self.dialect, record.model, heads, stored[:last_question])
        messages: Sequence[Message] = request.messages
        client_messages = self.dialect.raws_of(messages)
        prefix = stored[turn.summarized - 1].message_id if turn.summarized else ""
        replaced = [
            version for version in await self.store.summary_versions(record.id) if version.prefix.hex() == prefix
        ]
        summaries = sorted(
            (
                summary
                for summary in (*replaced, *await self.summaries.of(record))
                if summary.covered == turn.summarized and summary.created_at <= turn.created_at
            ),
            key=lambda summary: summary.created_at,
        )
        if summaries:
            messages = assemble(messages, summaries[-1], replace_middle=self.dialect.replace_middle)
        has_inner_systems = any(place for earlier in turns if earlier.last <= turn.last for place, _ in earlier.systems)
        snapshot = ContextSnapshot(
            conversation=record.id,
            at=at,
            exact=is_whole and bool(summaries or not turn.summarized) and not has_inner_systems,
            model=turn.model,
            messages=tuple(self.dialect.raws_of(messages)),
            summarized_messages=summaries[-1].summarized if summaries else 0,
        )
        return RequestForms(tuple(client_messages), snapshot)
