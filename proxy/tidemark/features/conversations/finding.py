"""Find stored conversations: a page of the list, by model and state, or by words of names, ids and messages.

The console's list and ``GET /tidemark/conversations`` show what it returns. The store has the list's order, so a page
without filters reads only its own entries. Filters and words look through a bounded number of entries at a time; the
cursor of the next page goes on where that ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import owner_of
from tidemark.core.conversation.records import ConversationRecord, MessageRecord
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.cursors import cursor_of, place_of
from tidemark.core.errors import ConversationNotFound, InvalidRequest, RecordUnreadable
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller
from tidemark.dialects.message_formats import MessageFormats
from tidemark.features.conversations.openings import OPENING_BYTES, OPENING_MESSAGES, opening_of
from tidemark.features.conversations.pages import Page
from tidemark.features.conversations.standing_summaries import StandingSummaries
from tidemark.pipeline.history_reader import offloaded
from tidemark.store.codec import TurnEntry
from tidemark.store.conversations import RedisStore

FILTERED, WEIGHED = 500, 250
"""Conversations that one page looks through for a model, and for a state, which more has to be read for."""
SEARCHED = 500
"""Conversations whose messages one page of a search reads."""
SEARCHED_MESSAGES = 20_000
"""Messages that one page of a search reads before it stops."""
WARNING_PERCENT, CRITICAL_PERCENT = 80, 95
"""From which share of the limit a context is nearly full, and full (FR-6.1.1)."""
FULL_PERCENT = 100
_TOGETHER = 25
"""Conversations that are read at a time."""
_ID_DIGITS = 8
"""The shortest beginning of an id that is looked for in the whole list."""
Level = Literal["ok", "warning", "critical"]
Entry = tuple[float, str]
"""The time of a conversation's last use, and its id."""
STATES = ("summarized", "whole", "warning", "critical")
"""States by which conversations are filtered: with a summary in use, without one, nearly full, full."""


@frozen
class ContextUsage:
    """How full a context is."""

    percent: int
    """Of the limit; above 100 if the next request has to be compacted."""

    @property
    def is_over(self) -> bool:
        """Whether the next request would not fit as it is."""
        return self.percent > FULL_PERCENT

    @property
    def level(self) -> Level:
        """How near the limit it is."""
        if self.percent >= CRITICAL_PERCENT:
            return "critical"
        return "warning" if self.percent >= WARNING_PERCENT else "ok"


@frozen
class ConversationFilter:
    """What conversations have to be to be listed; an empty field allows all."""

    model: str = ""
    state: str = ""
    words: str = ""
    owner: str = ""
    """Of the operator's list: whose conversations are listed."""
    client: str = ""
    """The beginning of the name of the newest request's program, in any case."""
    dialect: str = ""
    """The dialect of the newest request."""

    @property
    def is_all(self) -> bool:
        return not (self.words or self.state or self.has_facts)

    @property
    def has_facts(self) -> bool:
        """Whether anything is asked that the record itself says."""
        return bool(self.model or self.client or self.dialect)

    def takes(self, record: ConversationRecord) -> bool:
        """Return whether the record says all that is asked of it."""
        return (
            self.model in ("", record.model)
            and self.dialect in ("", record.dialect)
            and record.client.casefold().startswith(self.client.casefold())
        )


@frozen
class ListedConversation:
    """A conversation as a list shows it."""

    record: ConversationRecord
    summarized_messages: int
    """Messages that the summary in use stands for (FR-6.1.2)."""
    usage: ContextUsage | None
    """How full its context is after the last turn; None if nobody can tell."""
    tokens_before: int = 0
    """Tokens of its last request and of what was added since, with nothing summarized; 0 if nobody can tell."""
    tokens_after: int = 0
    """The same with the summary in use."""


@frozen
class FoundConversations:
    """A page of conversations, last used first."""

    conversations: tuple[ListedConversation, ...]
    unreadable: tuple[str, ...]
    newer_cursor: str | None
    older_cursor: str | None
    searched: int
    """How many conversations were looked through."""
    is_partial: bool
    """Whether older ones were left for the next page, though this one is not full."""


class _Search:
    """One search for a page: what it has found and read so far."""

    def __init__(self) -> None:
        self.matches: list[tuple[Entry, ConversationRecord]] = []
        self.unreadable: list[str] = []
        self.entries: list[Entry] = []
        self.message_count = 0
        self.is_at_end = False


class ConversationFinder:
    """Finds conversations; holds no state of its own."""

    def __init__(self, store: RedisStore, summaries: StandingSummaries, formats: MessageFormats) -> None:
        self._store = store
        self._summaries = summaries
        self._formats = formats
        self.dialects = formats.names

    async def find(
        self, caller: Caller | None, page: Page, conditions: ConversationFilter, *, newer: bool = False
    ) -> FoundConversations:
        """Return a page of the conversations that a caller may see.

        :param caller: None for the operator
        :param page: with a cursor, the entries after that place; before it with ``newer``
        :param newer: return the page before the cursor; the first page if that would not be a whole one
        :raises InvalidRequest: the cursor belongs to no such list, or there is no such state or dialect
        """
        for name, value, values in (
            ("state", conditions.state, STATES),
            ("dialect", conditions.dialect, self.dialects),
        ):
            if value not in ("", *values):
                raise InvalidRequest(f"'{name}' must be one of {', '.join(values)}.", param=name)
        owner = (conditions.owner or None) if caller is None else owner_of(caller.fingerprint)
        start = None if page.cursor is None else _place(page.cursor)
        search = await self._searched(owner, page.limit, start, conditions, newer=newer and start is not None)
        if newer and start is not None and search.is_at_end and len(search.matches) <= page.limit:
            start, newer = None, False
            search = await self._searched(owner, page.limit, None, conditions, newer=False)
        more = len(search.matches) > page.limit or not search.is_at_end
        shown = search.matches[: page.limit]
        near = search.entries[0] if search.entries else start
        far = shown[-1][0] if len(search.matches) > page.limit else search.entries[-1] if search.entries else start
        if newer:
            near, far, shown = far, near, shown[::-1]
        rows = await asyncio.gather(*(self.listed(record) for _, record in shown))
        return FoundConversations(
            tuple(rows),
            tuple(search.unreadable),
            newer_cursor=cursor_of(*near) if near and start is not None else None,
            older_cursor=cursor_of(*far) if far and (newer or more) else None,
            searched=len(search.entries),
            is_partial=not search.is_at_end and len(search.matches) <= page.limit,
        )

    async def openings(self, records: Sequence[ConversationRecord]) -> Mapping[str, str]:
        """Return the first words of conversations by their ids; empty if there are none, or nobody can read them."""
        words = await asyncio.gather(*(self._opening(record) for record in records))
        return {record.id: opening for record, opening in zip(records, words, strict=True)}

    async def _opening(self, record: ConversationRecord) -> str:
        messages = await self._store.first_messages(record.id, OPENING_MESSAGES, OPENING_BYTES)
        raws = [message.raw for message in messages]
        return await offloaded(lambda: opening_of(self._formats.read(raws)), raws)

    async def listed(self, record: ConversationRecord) -> ListedConversation:
        """Return a conversation with how full its context is, and how much of it is summarized.

        The tokens are those of its last request and of what was added since, so that no history has to be read. The
        limit is that of a request that asks for as long a reply as the last one.
        """
        summary = await self._summaries.in_use(record) if record.summary_count else None
        covered = summary.summarized if summary else 0
        turn = await self._store.latest_turn(record.id)
        limit = await self._summaries.limit_of(record.model, (turn.max_output_tokens or None) if turn else None)
        if not limit or (turn is None and summary is None):
            return ListedConversation(record, covered, None)
        before, after = await self._tokens(record, turn, summary)
        return ListedConversation(record, covered, ContextUsage(round(100 * after / limit)), before, after)

    async def _tokens(
        self, record: ConversationRecord, turn: TurnEntry | None, summary: PrefixSummary | None
    ) -> tuple[int, int]:
        """Return the tokens without the summary in use, and with it."""
        covered = summary.covered if summary else 0
        is_newer = summary is not None and (turn is None or summary.created_at > turn.created_at)
        if turn is not None and covered == turn.summarized and not is_newer:
            rest = await self._rest(record, turn.last if turn.complete else turn.last + 1)
            return turn.tokens_before + rest, turn.tokens_after + rest
        rest = await self._rest(record, covered + 1)  # a summary was made since
        return record.total_tokens, rest + (summary.tokens if summary else 0)

    async def _rest(self, record: ConversationRecord, first: int) -> int:
        rest = await self._store.messages(record.id, start=first, stop=record.message_count)
        return sum(message.tokens for message in rest)

    async def _searched(
        self, owner: str | None, limit: int, start: Entry | None, conditions: ConversationFilter, *, newer: bool
    ) -> _Search:
        search, place = _Search(), start
        digits = conditions.words.strip().lower()
        if start is None and len(digits) >= _ID_DIGITS and not set(digits) - set("0123456789abcdef"):
            for entry in (await self._store.listing.ids_beginning(owner, digits))[: limit + 1]:
                search.matches += [(entry, record) for record in await self._records([entry], owner, search)]
            if search.matches:
                search.entries, search.is_at_end = [entry for entry, _ in search.matches[:limit]], True
                return search
        most = SEARCHED if conditions.words else WEIGHED if conditions.state else FILTERED
        while (
            not search.is_at_end and len(search.matches) <= limit and (conditions.is_all or len(search.entries) < most)
        ):
            if search.message_count >= SEARCHED_MESSAGES:
                break
            count = limit + 1 - len(search.matches) if conditions.is_all else _TOGETHER
            entries = await self._entries(owner, count, place, newer=newer)
            search.is_at_end = len(entries) < count
            place = entries[-1] if entries else place
            await self._add(search, entries, owner, conditions, limit)
        return search

    async def _entries(self, owner: str | None, count: int, place: Entry | None, *, newer: bool) -> Sequence[Entry]:
        if newer and place is not None:
            return await self._store.listing.newer(owner, count, place)
        return await self._store.listing.newest(owner, count, place)

    async def _add(
        self, search: _Search, entries: Sequence[Entry], owner: str | None, conditions: ConversationFilter, limit: int
    ) -> None:
        """Add those of a few entries that are wanted, up to one more than the page has."""
        records = {record.id: record for record in await self._records(entries, owner, search)}
        if conditions.has_facts or conditions.state:
            candidates = [record for record in records.values() if conditions.takes(record)]
            fits = await asyncio.gather(*(self._is_in_state(record, conditions.state) for record in candidates))
            records = {record.id: record for record, fit in zip(candidates, fits, strict=True) if fit}
        for entry in entries:
            if len(search.matches) > limit:
                search.is_at_end = False
                return
            search.entries.append(entry)
            record = records.get(entry[1])
            if record is None or (
                conditions.words and not await self._has_words(record, conditions.words.casefold(), search)
            ):
                continue
            search.matches.append((entry, record))

    async def _records(
        self, entries: Sequence[Entry], owner: str | None, search: _Search
    ) -> Sequence[ConversationRecord]:
        """Return the records of entries; those that have expired leave the list."""
        read = await asyncio.gather(
            *(self._store.conversation(conversation) for _, conversation in entries), return_exceptions=True
        )
        records: list[ConversationRecord] = []
        for (used_at, conversation), record in zip(entries, read, strict=True):
            if isinstance(record, RecordUnreadable):
                search.unreadable.append(conversation)
            elif isinstance(record, BaseException):
                raise record
            elif record is not None and record.id == conversation and record.message_count:
                records.append(record)
            else:
                await self._store.listing.drop(owner, conversation, "", used_at)
        return records

    async def _is_in_state(self, record: ConversationRecord, state: str) -> bool:
        """Return whether a conversation is in the state that is wanted; in any if none is."""
        if not state:
            return True
        if state in ("summarized", "whole"):
            is_summarized = record.summary_count > 0 and await self._summaries.in_use(record) is not None
            return is_summarized == (state == "summarized")
        usage = (await self.listed(record)).usage
        return usage is not None and usage.level == state

    async def _has_words(self, record: ConversationRecord, words: str, search: _Search) -> bool:
        """Return whether a conversation's name or id contains a text, or one message contains all its words."""
        if words in record.name.casefold() or words in record.id:
            return True
        last = min(record.message_count, SEARCHED_MESSAGES)
        try:
            messages = await self._store.messages(record.id, start=record.message_count - last + 1)
        except ConversationNotFound:
            return False
        search.message_count += len(messages)
        return await self._contain(messages, words.split())

    async def _contain(self, messages: Sequence[MessageRecord], words: Sequence[str]) -> bool:
        raws = [message.raw for message in messages if not message.unreadable]

        def contain() -> bool:
            return any(all(word in text for word in words) for text in map(_searchable, self._formats.read(raws)))

        return await offloaded(contain, raws)


def _searchable(message: Message) -> str:
    """Return what a search finds of a message, in small letters."""
    return searchable_text(message).casefold()


def searchable_text(message: Message) -> str:
    """Return what a search finds of a message: its text, and the names and arguments of its tool calls."""
    return "\n".join([message.text, *(f"{call.name} {call.arguments}" for call in message.calls)]).strip()


def _place(cursor: str) -> Entry:
    used_at, conversation = place_of(cursor, (float, str))
    if not isinstance(used_at, float) or not isinstance(conversation, str):
        raise InvalidRequest("'cursor' must be the 'next_cursor' of the page before, as it came.", param="cursor")
    return used_at, conversation
