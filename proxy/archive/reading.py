"""Reading, searching and forgetting stored conversations."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from proxy.archive.locate import ConversationLocator
from proxy.archive.pages import (
    Page,
    Told,
    paged,
    provider_count,
    told_conversation,
    told_message,
    told_summary,
    told_usage,
)
from proxy.compaction.writer import Clock
from proxy.core.conversation.messages import JsonValue, Message
from proxy.core.conversation.prefix import owner_of
from proxy.core.conversation.summary import PrefixSummary
from proxy.core.cursors import cursor_of, place_of
from proxy.core.errors import RecordUnreadable
from proxy.core.ports import Caller, DeletionHook, Searchable, Searches
from proxy.pipeline.stored_conversation import beside

MOST_IDS = 100_000
"""Of messages on a page of summaries, 3.5 MB of JSON; each summary names all that it stands for."""


class ConversationReader:
    """Takes ports only; holds no state of its own.

    :param forgets: who else keeps something of a conversation
    """

    def __init__(
        self, finding: ConversationLocator, search: Searches, forgets: Sequence[DeletionHook], clock: Clock
    ) -> None:
        self._finding = finding
        self._search = search
        self._forgets = forgets
        self._clock = clock

    async def listed(self, caller: Caller | None, page: Page) -> Told:
        """The caller's conversations, last used first. Those that have expired are taken off the list on the way.

        A record that cannot be read is passed over, and its id is told under ``unreadable``.
        """
        owner = None if caller is None else owner_of(caller.fingerprint)
        before: tuple[float, str] | None = None
        if page.cursor is not None:
            at, one = place_of(page.cursor, (float, str))
            before = (at, one) if isinstance(at, float) and isinstance(one, str) else None
        data: list[JsonValue] = []
        unreadable: list[JsonValue] = []
        cursor = page.cursor
        while True:
            entries = await self._finding.store.listing.newest(owner, page.limit + 1 - len(data), before)
            for used_at, conversation in entries:
                if len(data) == page.limit:
                    return _list(data, unreadable, cursor)
                before, cursor = (used_at, conversation), cursor_of(used_at, conversation)
                try:
                    record = await self._finding.store.conversation(conversation)
                except RecordUnreadable:
                    unreadable.append(conversation)
                    continue
                if record is not None and record.id == conversation and record.message_count:
                    data.append(told_conversation(record))
                else:
                    await self._finding.store.listing.drop(owner or "", conversation, "")
            if not entries:
                return _list(data, unreadable, None)

    async def described(self, conversation: str, caller: Caller | None, page: Page) -> Told:
        """A conversation and a page of its messages, each with whether the model still sees it.

        With both goes what providers counted, for monitoring (FR-4.1.1).
        """
        record = await self._finding.record(conversation, caller)
        start = page.start()
        kept = await self._finding.store.messages(
            record.id, start=start, stop=min(start + page.limit, record.message_count)
        )
        summary = await self._finding.in_use(record)
        covered = summary.covered if summary else 0
        turns = await self._finding.store.all_turns(record.id)
        counts = {turn.last: provider_count(turn) for turn in turns if turn.complete and not turn.beyond}
        told = {"summarized_messages": covered, "usage": told_usage(turns)}
        return (
            told_conversation(record)
            | told
            | paged(
                [told_message(one, covered, counts.get(one.position)) for one in kept[: page.limit]],
                start,
                more=len(kept) > page.limit,
            )
        )

    async def summaries(self, conversation: str, caller: Caller | None, page: Page) -> Told:
        """The chain of summaries, oldest first: which each took in, and what it stands for (S0-3, FR-4.2.1)."""
        record = await self._finding.record(conversation, caller)
        made = await self._finding.summaries(record)
        start = page.start()
        shown = _within_ids(made[start - 1 : start - 1 + page.limit])
        ids = await self._finding.store.message_ids(record.id, max((one.covered for one in shown), default=0))
        summary = await self._finding.in_use(record)
        used = None if summary is None else _key(summary)
        data = [{**told_summary(one, ids), "in_use": _key(one) == used} for one in shown]
        return {"object": "list", "conversation": record.id} | paged(
            data, start, more=start - 1 + len(shown) < len(made)
        )

    async def search(self, conversation: str, caller: Caller | None, query: str, page: Page) -> Told:
        """The messages in which all words stand, the best first, summarized ones too."""
        record = await self._finding.record(conversation, caller)
        start = page.start()
        count, last = self._search.indexed(record.id)
        kept = await self._finding.store.messages(record.id, start=max(count, 1), stop=record.message_count)
        other = not kept or kept[0].message_id != last
        if count and (other or self._search.indexed(record.id)[0] < count):  # another one by now, or its index is gone
            count, last = 0, ""
            kept = await self._finding.store.messages(record.id, stop=record.message_count)
        anew = bool(kept) and kept[0].position == 1
        readable = [one for one in kept if not one.unreadable]
        raws = [one.raw for one in readable]

        def searchable() -> list[Searchable]:
            return [
                Searchable(one.position, one.message_id, _searched(message))
                for one, message in zip(readable, self._finding.read(raws), strict=True)
                if one.position > count or anew
            ]

        fresh = await beside(searchable, raws)
        hits = await self._search.find(record.id, fresh, query, limit=page.limit + 1, offset=start - 1, after=count)
        summary = await self._finding.in_use(record)
        covered = summary.covered if summary else 0
        data: list[JsonValue] = []
        for hit in hits[: page.limit]:
            found = await self._finding.store.messages(record.id, start=hit.position, stop=hit.position)
            data += [{**told_message(one, covered), "snippet": hit.snippet, "score": hit.score} for one in found]
        return {"object": "list", "conversation": record.id} | paged(data, start, more=len(hits) > page.limit)

    async def forget(self, conversation: str, caller: Caller | None) -> Told:
        """Delete a conversation, wherever something of it is kept. What other forks rest on stays theirs."""
        record = await self._finding.record(conversation, caller)
        for one in self._forgets:
            await one.forget(record.tenant, record.id)
        await self._finding.store.forget(record.id, record.owner or record.tenant, record.name, self._clock())
        self._search.drop(record.id)
        return {"object": "conversation.deleted", "id": record.id, "deleted": True}


def _list(data: list[JsonValue], unreadable: list[JsonValue], cursor: str | None) -> Told:
    listed: Told = {"object": "list", "data": data, "has_more": cursor is not None, "next_cursor": cursor}
    return {**listed, "unreadable": unreadable} if unreadable else listed


def _within_ids(made: Sequence[PrefixSummary]) -> Sequence[PrefixSummary]:
    """The first summaries, as many as a page can tell all messages of; one at least."""
    sizes = accumulate(one.covered for one in made)
    return made[: max(sum(size <= MOST_IDS for size in sizes), 1)]


def _key(one: PrefixSummary) -> tuple[bytes, str, tuple[bytes, ...]]:
    return (one.prefix, one.recipe.key, one.absorbed)


def _searched(message: Message) -> str:
    """What of a message is found: its text, and the names and arguments of what it calls."""
    return "\n".join([message.text, *(f"{call.name} {call.arguments}" for call in message.calls)]).strip()
