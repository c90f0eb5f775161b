"""Stored conversations as they are read, searched, taken out, brought in and forgotten: beside the road of requests.

Above the pipeline, which understands a stored conversation as the request that it would be; what is decided there is
shown here, and nothing is done to it. Whose a conversation is, is asked once, by ``readback.py``.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from proxy.commands import at_rest
from proxy.core.assemble import assemble
from proxy.core.calibration import owner_of
from proxy.core.conversation import StoredConversation, StoredMessage, TurnRecord
from proxy.core.cursors import cursor_of, place_of
from proxy.core.errors import ConversationConflict, InvalidRequest, ModelNotFound
from proxy.core.importing import read_lines
from proxy.core.messages import ChatRequest, JsonValue, Message
from proxy.core.ports import (
    BegunTurn,
    Caller,
    ConversationStore,
    Forgets,
    LeaseStore,
    Searchable,
    Searches,
    TokenCounter,
    Upstream,
)
from proxy.core.prefix import chain_of, conversation_id
from proxy.core.summary import RunningSummary, SummaryRecipe
from proxy.exchange import Controls, Refused
from proxy.fit import Fitting
from proxy.identity import Place, tenant_of
from proxy.leasing import LEASE_SECONDS
from proxy.pipeline import ChatPipeline
from proxy.readback import Readback, chain_of_stored, missing
from proxy.writing import ChooseSummarizer, Clock

NOBODY = Caller(b"", ())
"""In whose name the operator looks: the admin token goes to no upstream."""
Told = dict[str, JsonValue]
EXPORT_PAGE = 500
"""Messages read at a time."""
_ID = re.compile(r"[0-9a-f]{48}")


class Turn(Protocol):
    """What is stored of one turn, as far as it is needed here."""

    @property
    def created_at(self) -> float: ...
    @property
    def first(self) -> int: ...
    @property
    def last(self) -> int: ...
    @property
    def systems(self) -> Sequence[tuple[int, bytes]]: ...
    @property
    def model(self) -> str: ...
    @property
    def action(self) -> str: ...
    @property
    def summarized(self) -> int: ...
    @property
    def complete(self) -> bool: ...


class Lists(Protocol):
    """The lists of conversations."""

    async def newest(
        self, owner: str | None, limit: int, before: tuple[float, str] | None = None
    ) -> Sequence[tuple[float, str]]:
        """When they were used last, and the ids, the newest first; None for everybody's."""
        ...

    async def drop(self, owner: str, conversation: str, name: str) -> None:
        """Take a conversation off the lists."""
        ...


class ArchiveStore(ConversationStore, Protocol):
    """What this needs of the store beside ``ConversationStore``. Raises ``StoreUnavailable``."""

    @property
    def listing(self) -> Lists:
        """The lists."""
        ...

    async def all_turns(self, conversation: str) -> Sequence[Turn]:
        """What was done in each turn, oldest first."""
        ...

    async def system_messages(self, conversation: str) -> Mapping[bytes, bytes]:
        """Every system message that was ever sent in a conversation: digest to the client's bytes."""
        ...

    async def named(self, owner: str, name: str) -> str | None:
        """The id of the conversation that a credential's client calls by a name."""
        ...

    async def begin_turn(self, family: str, own: str, tenant: str, seconds: float) -> BegunTurn | None:
        """Take the turn of a conversation."""
        ...

    async def forget(self, conversation: str, owner: str, name: str, now: float) -> bool:
        """Delete all that is stored of a conversation; whether there was one."""
        ...


class Heads(Protocol):
    """The system messages of last requests."""

    async def head(self, conversation: str) -> Sequence[bytes]:
        """Those that began the conversation's last request, in the client's bytes."""
        ...


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list is wanted."""

    limit: int
    cursor: str | None = None

    def start(self) -> int:
        """Of a list that is counted from 1."""
        if self.cursor is None:
            return 1
        (start,) = place_of(self.cursor, (int,))
        if not isinstance(start, int) or start < 1:
            raise InvalidRequest("'cursor' must be the 'next_cursor' of the page before, as it came.", param="cursor")
        return start


class Archive:
    """Takes ports only; holds no state of its own."""

    def __init__(
        self,
        *,
        store: ArchiveStore,
        heads: Heads,
        leases: LeaseStore,
        road: ChatPipeline,
        fitting: Fitting,
        upstream: Upstream,
        counter: TokenCounter,
        choose: ChooseSummarizer,
        search: Searches,
        forgets: Sequence[Forgets],
        parse: Callable[[bytes], ChatRequest],
        clock: Clock,
    ) -> None:
        self._store = store
        self._heads = heads
        self._leases = leases
        self._road = road
        self._fitting = fitting
        self._upstream = upstream
        self._counter = counter
        self._choose = choose
        self._search = search
        self._forgets = forgets
        self._parse = parse
        self._clock = clock
        self._readback = Readback(store, upstream)

    async def listed(self, caller: Caller | None, page: Page) -> Told:
        """The caller's conversations, last used first. Those that have expired are taken off the list on the way."""
        owner = None if caller is None else owner_of(caller.fingerprint)
        before: tuple[float, str] | None = None
        if page.cursor is not None:
            at, one = place_of(page.cursor, (float, str))
            before = (at, one) if isinstance(at, float) and isinstance(one, str) else None
        data: list[JsonValue] = []
        while True:
            entries = await self._store.listing.newest(owner, page.limit + 1 - len(data), before)
            for used_at, conversation in entries:
                if len(data) == page.limit:
                    assert before is not None  # noqa: S101 - a full page has a last entry
                    return {"object": "list", "data": data, "has_more": True, "next_cursor": cursor_of(*before)}
                before = (used_at, conversation)
                record = await self._store.conversation(conversation)
                if record is not None and record.id == conversation and record.message_count:
                    data.append(_described(record))
                elif owner is not None:
                    await self._store.listing.drop(owner, conversation, "")
            if not entries:
                return {"object": "list", "data": data, "has_more": False, "next_cursor": None}

    async def described(self, conversation: str, caller: Caller | None, page: Page) -> Told:
        """A conversation and a page of its messages, each with whether the model still sees it."""
        record = await self._record(conversation, caller)
        start = page.start()
        kept = await self._store.messages(record.id, start=start, stop=min(start + page.limit, record.message_count))
        summary = await self._in_use(record)
        covered = summary.covered if summary else 0
        return {**_described(record), "summarized_messages": covered} | _paged(
            [_message(one, covered) for one in kept[: page.limit]], start, more=len(kept) > page.limit
        )

    async def context(self, conversation: str, caller: Caller | None, at: int | None) -> Told:
        """What the model would see, were it asked now; or what it saw when it was asked at a message.

        :param at: a message that was asked with or answered, counted from 1
        """
        record = await self._record(conversation, caller)
        kept = await self._readback.messages(record)
        if at is not None:
            return await self._context_at(record, kept, at)
        heads = await self._heads.head(record.id)
        request = self._request(record.model, [*heads, *(one.raw for one in kept)])
        place = Place(record.tenant, chain_of_stored(record.id, kept))
        case = await self._road.understand(request, caller or NOBODY, Controls(), stored=place)
        fitted = await self._fitting.fit(at_rest(case), lambda _, __: None)
        if isinstance(fitted, Refused):
            raise fitted.error
        report = fitted.report
        return {
            "object": "conversation.context",
            "conversation": record.id,
            "at": record.message_count,
            "exact": True,
            "model": record.model,
            "messages": [json.loads(message.raw) for message in fitted.messages],
            "summarized_messages": report.summarized,
            "tokens": report.tokens_after,
            "limit": report.limit,
        }

    async def _context_at(self, record: StoredConversation, kept: Sequence[StoredMessage], at: int) -> Told:
        turns = [turn for turn in await self._store.all_turns(record.id) if turn.last <= record.message_count]
        turn = next((one for one in turns if one.first <= at <= one.last), None)
        if turn is None:
            raise InvalidRequest(f"'at' must be a message of a turn, from 1 to {record.message_count}.", param="at")
        asked = turn.last
        if turn.complete and turn.last > turn.first and json.loads(kept[turn.last - 1].raw).get("role") == "assistant":
            asked -= 1
        texts = await self._store.system_messages(record.id)
        heads = [texts[digest] for place, digest in turn.systems if place == 0 and digest in texts]
        request = self._request(record.model, [*heads, *(one.raw for one in kept[:asked])])
        messages: Sequence[Message] = request.messages
        made = [
            one
            for one in await self._store.summaries(record.id)
            if one.covered == turn.summarized and one.created_at <= turn.created_at
        ]
        if made:
            messages = assemble(messages, made[-1])
        inner = any(place for earlier in turns if earlier.last <= turn.last for place, _ in earlier.systems)
        return {
            "object": "conversation.context",
            "conversation": record.id,
            "at": at,
            "exact": bool(made or not turn.summarized) and not inner,
            "model": turn.model,
            "messages": [json.loads(message.raw) for message in messages],
            "summarized_messages": made[-1].covered if made else 0,
        }

    async def summaries(self, conversation: str, caller: Caller | None, page: Page) -> Told:
        """The chain of summaries, oldest first: which each took in, and how many messages it stands for."""
        record = await self._record(conversation, caller)
        made = await self._store.summaries(record.id)
        start = page.start()
        shown = made[start - 1 : start - 1 + page.limit]
        summary = await self._in_use(record)
        data = [{**_summary(one), "in_use": summary is not None and _key(one) == _key(summary)} for one in shown]
        return {"object": "list", "conversation": record.id} | _paged(
            data, start, more=start - 1 + page.limit < len(made)
        )

    async def search(self, conversation: str, caller: Caller | None, query: str, page: Page) -> Told:
        """The messages in which all words stand, the best first, summarized ones too."""
        record = await self._record(conversation, caller)
        start = page.start()
        count, last = self._search.indexed(record.id)
        kept = await self._store.messages(record.id, start=max(count, 1), stop=record.message_count)
        if count and (not kept or kept[0].message_id != last):  # another one by now
            kept = await self._store.messages(record.id, stop=record.message_count)
        read = self._request(record.model, [one.raw for one in kept]).messages if kept else ()
        fresh = [
            Searchable(one.position, one.message_id, _searched(message))
            for one, message in zip(kept, read, strict=True)
            if one.position > count or kept[0].position == 1
        ]
        hits = await self._search.find(record.id, fresh, query, limit=page.limit + 1, offset=start - 1)
        summary = await self._in_use(record)
        covered = summary.covered if summary else 0
        data: list[JsonValue] = []
        for hit in hits[: page.limit]:
            found = await self._store.messages(record.id, start=hit.position, stop=hit.position)
            data += [{**_message(one, covered), "snippet": hit.snippet, "score": hit.score} for one in found]
        return {"object": "list", "conversation": record.id} | _paged(data, start, more=len(hits) > page.limit)

    async def export(self, conversation: str, caller: Caller | None) -> AsyncIterator[bytes]:
        """A conversation as lines of JSON: the last request's system messages, then all messages, as they were sent."""
        record = await self._record(conversation, caller)
        heads = await self._heads.head(record.id)

        async def lines() -> AsyncIterator[bytes]:
            yield b"".join(map(_line, heads))
            for start in range(1, record.message_count + 1, EXPORT_PAGE):
                stop = min(start + EXPORT_PAGE - 1, record.message_count)
                kept = await self._store.messages(record.id, start=start, stop=stop)
                yield b"".join(_line(one.raw) for one in kept)

        return lines()

    async def bring_in(self, data: bytes, caller: Caller, model: str, name: str | None) -> Told:
        """Store a conversation that was led elsewhere.

        :param model: whose conversation it is; it says which upstream, and so which tenant
        :param name: what its client calls it
        :raises BadImport: the lines are no conversation, or tool calls and results have come apart
        :raises ConversationConflict: there is a conversation of that name
        """
        lines = read_lines(data)
        route = await self._upstream.resolve(model)
        tenant = tenant_of(caller, route)
        request = self._request(model, [line.message.raw for line in lines])
        count = await self._counter.count(request, route.upstream_model)
        chain = chain_of(tenant, request.messages, conversation=name)
        turn = TurnRecord(
            tenant=tenant,
            conversation=conversation_id(chain, 0),
            chain=chain,
            known=0,
            messages=request.messages,
            tokens=count.messages,
            complete=True,
            model=model,
            action="none",
            tokens_before=count.total,
            tokens_after=count.total,
            summarized=0,
            created_at=self._clock(),
            scheme=count.scheme,
            owner=owner_of(caller.fingerprint),
            name=name or "",
        )
        if name is not None:
            begun = await self._store.begin_turn(chain.family, "", tenant, LEASE_SECONDS)
            if begun is not None and begun.lease is not None and begun.record is None:
                turn = replace(turn, lease=begun.lease.name, held=begun.lease.value)
            else:
                if begun is not None and begun.lease is not None:
                    await self._leases.release(begun.lease)
                raise ConversationConflict(
                    f"There is a conversation {name[:80]!r} already. Import under another name, or forget that one."
                )
        stored = await self._store.record(turn)
        record = await self._store.conversation(stored)
        return _described(record) if record is not None else {"id": stored}

    async def forget(self, conversation: str, caller: Caller | None) -> Told:
        """Delete a conversation, wherever something of it is kept. What other forks rest on stays theirs."""
        record = await self._record(conversation, caller)
        for one in self._forgets:
            await one.forget(record.tenant, record.id)
        await self._store.forget(record.id, record.owner or record.tenant, record.name, self._clock())
        self._search.drop(record.id)
        return {"object": "conversation.deleted", "id": record.id, "deleted": True}

    async def _record(self, conversation: str, caller: Caller | None) -> StoredConversation:
        """By id, or by what the caller's client calls it."""
        found: str | None = conversation
        if not _ID.fullmatch(conversation):
            found = None if caller is None else await self._store.named(owner_of(caller.fingerprint), conversation)
        if found is None:
            raise missing(conversation)
        return await self._readback.record(found, caller)

    async def _in_use(self, record: StoredConversation) -> RunningSummary | None:
        """The summary that the next request would use; of a model that is not served, the longest there is."""
        made = [one for one in await self._store.summaries(record.id) if one.covered < record.message_count]
        recipe: SummaryRecipe | None = None
        try:
            route = await self._upstream.resolve(record.model)
            request = self._request(record.model, [b'{"role":"user","content":""}'])
            recipe = self._choose(await self._road.profile(request, NOBODY), route).recipe
        except ModelNotFound:
            pass
        usable = [one for one in made if recipe is None or one.recipe == recipe]
        return max(usable, key=lambda one: (one.covered, one.created_at), default=None)

    def _request(self, model: str, raws: Sequence[bytes]) -> ChatRequest:
        return self._parse(b'{"model":%b,"messages":[%b]}' % (json.dumps(model).encode(), b",".join(raws)))


def _described(record: StoredConversation) -> Told:
    return {
        "object": "conversation",
        "id": record.id,
        "name": record.name or None,
        "model": record.model,
        "messages": record.message_count,
        "tokens": record.total_tokens,
        "turns": record.turn_count,
        "summaries": record.summary_count,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "parent": record.parent,
        "parent_messages": record.parent_messages,
    }


def _message(one: StoredMessage, covered: int) -> Told:
    return {
        "position": one.position,
        "id": one.message_id,
        "state": "summarized" if one.position <= covered else "in_context",
        "tokens": one.tokens,
        "created_at": one.created_at,
        "message": json.loads(one.raw),
    }


def _summary(one: RunningSummary) -> Told:
    return {
        "prefix": one.prefix.hex(),
        "previous": one.previous.hex() if one.previous else None,
        "summarized_messages": one.covered,
        "text": one.text,
        "tokens": one.tokens,
        "strategy": one.made_by,
        "recipe": one.recipe.key,
        "cause": one.cause,
        "created_at": one.created_at,
    }


def _key(one: RunningSummary) -> tuple[bytes, str]:
    return (one.prefix, one.recipe.key)


def _paged(data: Sequence[JsonValue], start: int, *, more: bool) -> Told:
    return {"data": list(data), "has_more": more, "next_cursor": cursor_of(start + len(data)) if more else None}


def _searched(message: Message) -> str:
    """What of a message is found: its text, and the names and arguments of what it calls."""
    return "\n".join([message.text, *(f"{call.name} {call.arguments}" for call in message.calls)]).strip()


def _line(raw: bytes) -> bytes:
    """A message as one line: a line's end within JSON is white space, since none can stand in a string."""
    return raw.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n"
