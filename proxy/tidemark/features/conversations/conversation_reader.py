"""List, show, search and delete stored conversations.

``features/conversations/feature.py`` calls this. Every method first asks ``ArchiveAccess`` for the record.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import accumulate

from tidemark.core.bill import BillFigures
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import owner_of
from tidemark.core.conversation.records import ConversationRecord, MessageRecord
from tidemark.core.conversation.request import Dialect
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.cursors import cursor_of, place_of
from tidemark.core.errors import ConversationNotFound, EncryptionKeyLost, MessageNotFound, RecordUnreadable
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller, Clock, DeletionHook
from tidemark.core.recall.passage import message_with
from tidemark.core.recall.quotation import text_with_calls
from tidemark.core.recall.search_function import NO_TEXT
from tidemark.dialects.message_formats import MessageFormats
from tidemark.features.conversations.access import ArchiveAccess
from tidemark.features.conversations.finding import searchable_text
from tidemark.features.conversations.pages import (
    ConversationList,
    ConversationPage,
    HistoryPage,
    MessageEntry,
    MessageState,
    Page,
    ProviderCount,
    SearchHit,
    SearchPage,
    SummaryEntry,
    SummaryPage,
    SummaryTexts,
    UsageTotal,
    cursor_after,
)
from tidemark.features.conversations.search_index import MessageSearch, Searchable
from tidemark.features.conversations.standing_summaries import StandingSummaries
from tidemark.pipeline.history_reader import offloaded
from tidemark.store.bills import RedisBills
from tidemark.store.codec import TurnEntry
from tidemark.store.conversations import RedisStore

MAX_MESSAGE_IDS = 100_000
"""Message ids on a page of summaries, 3.5 MB of JSON: each summary names all messages that it stands for."""
_MAX_TOKENS = 2**53
"""A larger number of tokens is no count."""


@frozen(kw_only=True)
class ConversationReader:
    """Reads and deletes stored conversations; holds no state of its own.

    :param deletion_hooks: delete what is kept of a conversation outside the store
    """

    access: ArchiveAccess
    store: RedisStore
    bills: RedisBills
    standing: StandingSummaries
    index: MessageSearch
    deletion_hooks: Sequence[DeletionHook]
    dialect: Dialect
    formats: MessageFormats
    clock: Clock

    async def conversations(self, caller: Caller | None, page: Page) -> ConversationList:
        """Return a page of the caller's conversations, last used first.

        Conversations that have expired are removed from the list on the way. A record that cannot be read is skipped,
        and its id is returned apart.

        :param caller: None for the operator, who sees the conversations of all owners
        """
        owner = None if caller is None else owner_of(caller.fingerprint)
        before: tuple[float, str] | None = None
        if page.cursor is not None:
            used_at, last_id = place_of(page.cursor, (float, str))
            before = (used_at, last_id) if isinstance(used_at, float) and isinstance(last_id, str) else None
        records: list[ConversationRecord] = []
        unreadable: list[str] = []
        cursor = page.cursor
        while True:
            entries = await self.store.listing.newest(owner, page.limit + 1 - len(records), before)
            for used_at, conversation in entries:
                if len(records) == page.limit:
                    return ConversationList(tuple(records), tuple(unreadable), cursor)
                before, cursor = (used_at, conversation), cursor_of(used_at, conversation)
                try:
                    record = await self.store.conversation(conversation)
                except RecordUnreadable:
                    unreadable.append(conversation)
                    continue
                if record is not None and record.id == conversation and record.message_count:
                    records.append(record)
                else:
                    await self.store.listing.drop(owner, conversation, "", used_at)
            if not entries:
                return ConversationList(tuple(records), tuple(unreadable), None)

    async def conversation(self, conversation: str, caller: Caller | None, page: Page) -> ConversationPage:
        """Return a conversation and a page of its messages, each with whether the model still sees it.

        Both carry what providers counted, for monitoring (FR-4.1.1).
        """
        record = await self.access.record(conversation, caller)
        start = page.start()
        messages = await self.store.messages(record.id, start=start, stop=min(start + page.limit, record.message_count))
        covered = await self._covered(record)
        turns = await self.store.all_turns(record.id)
        counts = {turn.last: _provider_count(turn) for turn in turns if turn.complete and not turn.beyond}
        shown = messages[: page.limit]
        originals = await self.store.originals(record.id)
        return ConversationPage(
            record,
            covered,
            _usage_total(turns),
            tuple(
                self._entry(message, covered, counts.get(message.position), originals.get(message.position))
                for message in shown
            ),
            cursor_after(start, shown, more=len(messages) > page.limit),
            await self.bill(record.id),
        )

    async def records(self, conversations: Iterable[str], caller: Caller | None) -> Sequence[ConversationRecord]:
        """Return the records of conversations; those that are not there for the caller are left out."""
        records: list[ConversationRecord] = []

        async def read(conversation: str) -> None:
            with suppress(ConversationNotFound, RecordUnreadable, EncryptionKeyLost):
                records.append(await self.access.record(conversation, caller))

        await asyncio.gather(*map(read, {*conversations}))
        return records

    async def bill(self, conversation: str) -> BillFigures | None:
        """Return what a conversation's turns cost since it came near its limit; None if it did not."""
        figures = (await self.bills.read(conversation)).figures
        return figures if figures.requests else None

    async def history(self, conversation: str, caller: Caller | None, page: Page) -> HistoryPage:
        """Return a conversation and a page of its messages, without what providers counted: its turns are not read."""
        record = await self.access.record(conversation, caller)
        start = page.start()
        stop = min(start + page.limit, record.message_count)
        messages = await self.store.messages(record.id, start=start, stop=stop) if page.limit else []
        covered = await self._covered(record)
        shown = messages[: page.limit]
        entries = tuple(self._entry(message, covered, None, None) for message in shown)
        return HistoryPage(record, covered, entries, cursor_after(start, shown, more=len(messages) > page.limit))

    async def summaries(self, conversation: str, caller: Caller | None, page: Page) -> SummaryPage:
        """Return the chain of summaries, oldest first: which one each continues, and what it stands for."""
        record = await self.access.record(conversation, caller)
        summaries = await self.standing.of(record)
        start = page.start()
        shown = _within_ids(summaries[start - 1 : start - 1 + page.limit])
        ids = await self.store.message_ids(record.id, max((summary.covered for summary in shown), default=0))
        in_use = await self.standing.in_use(record)
        in_use_key = None if in_use is None else _key(in_use)
        replaced = await self.store.summary_versions(record.id)
        entries = tuple(
            SummaryEntry(
                summary,
                tuple(ids[: summary.summarized]) if len(ids) >= summary.covered else None,
                in_use=_key(summary) == in_use_key,
                versions=tuple(version for version in replaced if _key(version) == _key(summary)),
            )
            for summary in shown
        )
        more = start - 1 + len(shown) < len(summaries)
        return SummaryPage(record.id, entries, cursor_after(start, shown, more=more))

    async def summary_texts(self, conversation: str, caller: Caller | None, limit: int) -> SummaryTexts:
        """Return the summary in use and the newest of the earlier texts, replaced versions too."""
        record = await self.access.record(conversation, caller)
        standing = await self.standing.of(record)
        present = await self.standing.in_use(record)
        keys = {_key(summary) for summary in standing}
        replaced = [version for version in await self.store.summary_versions(record.id) if _key(version) in keys]
        earlier = [
            summary for summary in (*standing, *replaced) if present is None or summary.version != present.version
        ]
        earlier.sort(key=lambda summary: summary.created_at, reverse=True)
        return SummaryTexts(present, tuple(earlier[:limit]), len(earlier))

    async def original(self, conversation: str, caller: Caller | None, handle: str) -> str:
        """Return the text of a message as it was, with its calls.

        :param handle: as a model's search shows it, or the message's id
        :raises MessageNotFound: no stored message has it, or its message has no text
        """
        record = await self.access.record(conversation, caller)
        stored = await self.store.messages(record.id, stop=record.message_count)
        readable = [message for message in stored if not message.unreadable]
        by_id = [message.raw for message in readable if message.message_id == handle]
        raws = by_id or [message.raw for message in readable]

        def find() -> Message | None:
            messages = self.formats.read(raws)
            return messages[-1] if by_id else message_with(handle, messages)

        message = await offloaded(find, raws)
        if message is None:
            raise MessageNotFound(f"The conversation has no message with the handle {handle[:40]!r}.")
        text = text_with_calls(message)
        if not text:
            raise MessageNotFound(NO_TEXT)
        return text

    async def search(self, conversation: str, caller: Caller | None, query: str, page: Page) -> SearchPage:
        """Return the messages that have all words of a query, best match first, summarized ones too."""
        record = await self.access.record(conversation, caller)
        start = page.start()
        indexed, last_id = self.index.indexed(record.id)
        messages = await self.store.messages(record.id, start=max(indexed, 1), stop=record.message_count)
        is_other = not messages or messages[0].message_id != last_id
        # Another conversation has this id by now, or the index was dropped while the messages were read.
        if indexed and (is_other or self.index.indexed(record.id)[0] < indexed):
            indexed, last_id = 0, ""
            messages = await self.store.messages(record.id, stop=record.message_count)
        is_whole = bool(messages) and messages[0].position == 1
        readable = [message for message in messages if not message.unreadable]
        raws = [message.raw for message in readable]

        def searchable() -> list[Searchable]:
            return [
                Searchable(stored.position, stored.message_id, searchable_text(message))
                for stored, message in zip(readable, self.formats.read(raws), strict=True)
                if stored.position > indexed or is_whole
            ]

        fresh = await offloaded(searchable, raws)
        matches = await self.index.find(record.id, fresh, query, limit=page.limit + 1, offset=start - 1, after=indexed)
        covered = await self._covered(record)
        hits: list[SearchHit] = []
        for match in matches[: page.limit]:
            stored = await self.store.messages(record.id, start=match.position, stop=match.position)
            hits += [SearchHit(self._entry(message, covered), match.snippet, match.score) for message in stored]
        return SearchPage(record.id, tuple(hits), cursor_after(start, hits, more=len(matches) > page.limit))

    async def delete(self, conversation: str, caller: Caller | None) -> str:
        """Delete a conversation wherever something of it is kept, and return its id.

        What forks of it share stays, because it is theirs.
        """
        record = await self.access.record(conversation, caller)
        for hook in self.deletion_hooks:
            await hook(record.tenant, record.id)
        await self.store.forget(record.id, record.owner or record.tenant, record.name, self.clock())
        self.index.drop(record.id)
        return record.id

    async def _covered(self, record: ConversationRecord) -> int:
        """Return how many messages the summary in use stands for."""
        summary = await self.standing.in_use(record)
        return summary.summarized if summary else 0

    def _entry(
        self,
        message: MessageRecord,
        covered: int,
        count: ProviderCount | None = None,
        original: MessageRecord | None = None,
    ) -> MessageEntry:
        """Return a message as it is shown, whichever dialect it came in.

        :param covered: how many messages the summary in use stands for
        :param original: the message as it came first, if the client repeats it in other words since
        """
        if message.unreadable:
            return MessageEntry(message, "unreadable", b"")
        state: MessageState = "summarized" if message.position <= covered else "in_context"
        answered = self._shown(original) if original is not None and not original.unreadable else b""
        return MessageEntry(message, state, self._shown(message), count, answered)

    def _shown(self, message: MessageRecord) -> bytes:
        """Return a message's own bytes, or those of the chat dialect if it came in another one."""
        raw = message.raw
        return raw if self.formats.is_native(raw, self.dialect) else self.dialect.write(*self.formats.read([raw]))


def _provider_count(turn: TurnEntry) -> ProviderCount | None:
    """Return the tokens of a turn by its provider's count; None if the provider sent no usable number."""
    numbers = [turn.usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
    tokens = [number if type(number) is int and 0 <= number <= _MAX_TOKENS else None for number in numbers]
    return None if tokens == [None, None] else ProviderCount(tokens[0] or 0, tokens[1] or 0)


def _usage_total(turns: Sequence[TurnEntry]) -> UsageTotal:
    counts = [count for turn in turns if (count := _provider_count(turn)) is not None]
    return UsageTotal(
        answers=len(counts),
        input_tokens=sum(count.input_tokens for count in counts),
        output_tokens=sum(count.output_tokens for count in counts),
    )


def _within_ids(summaries: Sequence[PrefixSummary]) -> Sequence[PrefixSummary]:
    """Return the first summaries, as many as a page can name all messages of; one at least."""
    sizes = accumulate(summary.covered for summary in summaries)
    return summaries[: max(sum(size <= MAX_MESSAGE_IDS for size in sizes), 1)]


def _key(summary: PrefixSummary) -> tuple[bytes, str, tuple[bytes, ...]]:
    return (summary.prefix, summary.recipe.key, summary.absorbed)
