"""Reading, searching and forgetting stored conversations."""

from __future__ import annotations

from collections.abc import Sequence

from proxy.archive.locate import Finding
from proxy.archive.pages import Page, Told, paged, told_conversation, told_message, told_summary
from proxy.compaction.writer import Clock
from proxy.core.conversation.messages import JsonValue, Message
from proxy.core.conversation.prefix import owner_of
from proxy.core.conversation.summary import RunningSummary
from proxy.core.cursors import cursor_of, place_of
from proxy.core.ports import Caller, Forgets, Searchable, Searches
from proxy.pipeline.stored_conversation import beside


class Reading:
    """Takes ports only; holds no state of its own.

    :param forgets: who else keeps something of a conversation
    """

    def __init__(self, finding: Finding, search: Searches, forgets: Sequence[Forgets], clock: Clock) -> None:
        self._finding = finding
        self._search = search
        self._forgets = forgets
        self._clock = clock

    async def listed(self, caller: Caller | None, page: Page) -> Told:
        """The caller's conversations, last used first. Those that have expired are taken off the list on the way."""
        owner = None if caller is None else owner_of(caller.fingerprint)
        before: tuple[float, str] | None = None
        if page.cursor is not None:
            at, one = place_of(page.cursor, (float, str))
            before = (at, one) if isinstance(at, float) and isinstance(one, str) else None
        data: list[JsonValue] = []
        cursor = page.cursor
        while True:
            entries = await self._finding.store.listing.newest(owner, page.limit + 1 - len(data), before)
            for used_at, conversation in entries:
                if len(data) == page.limit:
                    return {"object": "list", "data": data, "has_more": True, "next_cursor": cursor}
                before, cursor = (used_at, conversation), cursor_of(used_at, conversation)
                record = await self._finding.store.conversation(conversation)
                if record is not None and record.id == conversation and record.message_count:
                    data.append(told_conversation(record))
                else:
                    await self._finding.store.listing.drop(owner or "", conversation, "")
            if not entries:
                return {"object": "list", "data": data, "has_more": False, "next_cursor": None}

    async def described(self, conversation: str, caller: Caller | None, page: Page) -> Told:
        """A conversation and a page of its messages, each with whether the model still sees it."""
        record = await self._finding.record(conversation, caller)
        start = page.start()
        kept = await self._finding.store.messages(
            record.id, start=start, stop=min(start + page.limit, record.message_count)
        )
        summary = await self._finding.in_use(record)
        covered = summary.covered if summary else 0
        return {**told_conversation(record), "summarized_messages": covered} | paged(
            [told_message(one, covered) for one in kept[: page.limit]], start, more=len(kept) > page.limit
        )

    async def summaries(self, conversation: str, caller: Caller | None, page: Page) -> Told:
        """The chain of summaries, oldest first: which each took in, and how many messages it stands for."""
        record = await self._finding.record(conversation, caller)
        made = await self._finding.summaries(record)
        start = page.start()
        shown = made[start - 1 : start - 1 + page.limit]
        summary = await self._finding.in_use(record)
        data = [{**told_summary(one), "in_use": summary is not None and _key(one) == _key(summary)} for one in shown]
        return {"object": "list", "conversation": record.id} | paged(
            data, start, more=start - 1 + page.limit < len(made)
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
        raws = [one.raw for one in kept]

        def searchable() -> list[Searchable]:
            return [
                Searchable(one.position, one.message_id, _searched(message))
                for one, message in zip(kept, self._finding.read(raws), strict=True)
                if one.position > count or kept[0].position == 1
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


def _key(one: RunningSummary) -> tuple[bytes, str]:
    return (one.prefix, one.recipe.key)


def _searched(message: Message) -> str:
    """What of a message is found: its text, and the names and arguments of what it calls."""
    return "\n".join([message.text, *(f"{call.name} {call.arguments}" for call in message.calls)]).strip()
