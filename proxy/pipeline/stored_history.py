"""Stored history: the client sends its new messages only, and the store supplies the rest.

Before the road of a request, and before commands: a request becomes the one that a client would send which keeps all
messages itself, so all that follows is the same. One turn of a conversation is under way at a time: it is held by a
lease from before anything is forwarded to the write at the end, so no two answers come in between each other. What
the write does where a lease was lost meanwhile is in ``store/lua/record.lua``: the turn is kept, as a fork.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from proxy.compaction.leases import LEASE_SECONDS, LeaseKeeper
from proxy.core.conversation.alignment import Alignment, align
from proxy.core.conversation.messages import Message, ModelRequest, render_body
from proxy.core.conversation.prefix import chain_of, is_id, owner_of, split_id
from proxy.core.conversation.records import StoredConversation
from proxy.core.errors import ConversationConflict, ConversationNotFound, StoreFull
from proxy.core.ports import (
    Caller,
    ConversationStore,
    Lease,
    LeaseStore,
    RequestHeads,
    StartedTurn,
    TurnStore,
    Upstream,
    UpstreamReply,
)
from proxy.core.report import Report
from proxy.pipeline.commands import CommandAnswer
from proxy.pipeline.fit import Compacting
from proxy.pipeline.identify import FULL, tenant_of
from proxy.pipeline.pipeline import Announce
from proxy.pipeline.stored_conversation import StoredConversationReader, missing, under_way
from proxy.pipeline.values import Controls, Exchange, Refused

OnConflict = Literal["reject", "wait"]
_FIRST_LOOK_SECONDS = 0.02
_LOOK_SECONDS = 0.5
Parse = Callable[[bytes], Awaitable[ModelRequest]]
"""A body, of any number of messages."""


class Road(Protocol):
    """What a request is brought to when it is whole."""

    async def run(
        self,
        request: ModelRequest,
        caller: Caller,
        controls: Controls,
        *,
        prepared: Announce,
        compacting: Compacting = ...,
    ) -> Exchange | Refused | CommandAnswer:
        """Bring a request to its upstream, or answer it."""
        ...


@dataclass(frozen=True, slots=True)
class TurnRules:
    """What is done where two turns of one conversation meet."""

    on_conflict: OnConflict = "reject"
    wait_seconds: float = 20.0
    """How long a turn waits for its predecessor, where it waits."""


class StoredHistory:
    """Takes ports only; holds no state of its own."""

    def __init__(
        self,
        *,
        road: Road,
        upstream: Upstream,
        store: ConversationStore,
        turns: TurnStore,
        heads: RequestHeads,
        leases: LeaseStore,
        parse: Parse,
        rules: TurnRules,
        full: Collection[str] = (),
    ) -> None:
        """Nothing is under way.

        :param full: for whom nothing more is stored, by owner; looked at with each request
        """
        self._full = full
        self._road = road
        self._upstream = upstream
        self._readback = StoredConversationReader(store)
        self._turns = turns
        self._heads = heads
        self._leases = leases
        self._parse = parse
        self._rules = rules

    def run(
        self,
        request: ModelRequest,
        caller: Caller,
        controls: Controls,
        *,
        prepared: Announce = lambda _: None,
        compacting: Compacting = lambda _, __: None,
    ) -> Coroutine[Any, Any, Exchange | Refused | CommandAnswer]:
        """Bring a request on its way, with the conversation's earlier messages where the store has them.

        :raises ConversationNotFound: there is no conversation with the id that was given
        :raises ConversationConflict: another turn of it is under way, or it has gone on from where the client stands
        :raises StoreFull: the turn could not be stored
        :raises StoreUnavailable: the store did not answer, so nobody knows the earlier messages
        """
        name = controls.conversation
        if controls.history == "client" or name is None:
            return self._road.run(request, caller, controls, prepared=prepared, compacting=compacting)
        return self._supplied(request, caller, controls, name, prepared=prepared, compacting=compacting)

    async def _supplied(
        self,
        request: ModelRequest,
        caller: Caller,
        controls: Controls,
        name: str,
        *,
        prepared: Announce,
        compacting: Compacting,
    ) -> Exchange | Refused | CommandAnswer:
        """Bring a request on its way as one turn of the conversation ``name``."""
        if owner_of(caller.fingerprint) in self._full:
            raise StoreFull(FULL)
        tenant = tenant_of(caller, await self._upstream.resolve(request.model))
        begun, lease = await self._begun(tenant, name)
        holder = LeaseKeeper(self._leases, lease, LEASE_SECONDS)
        try:
            whole, asked, gap = await self._whole(request, tenant, controls, begun)

            def told(report: Report) -> None:
                prepared(replace(report, gap=gap))

            done = await self._road.run(whole, caller, asked, prepared=told, compacting=compacting)
        except BaseException:  # a client that leaves, too: the turn is the next one's at once
            await holder.end()
            raise
        done = replace(done, report=replace(done.report, gap=gap))
        if not isinstance(done, Exchange):
            await holder.end()
            return done
        record = replace(done.turn.record, head=begun.head, lease=lease.name, held=lease.value)
        if record.chain.family != lease.family:  # what cannot be read began it, so this is another conversation
            await holder.end()
            record = replace(record, head="", lease="", held=b"")
        turn = replace(done.turn, record=record, unstored=self._turns.give_up)
        return replace(done, reply=_HeldReply(done.reply, holder), turn=turn)

    async def _begun(self, tenant: str, name: str) -> tuple[StartedTurn, Lease]:
        """The conversation's turn, at once or, where that is the rule, when its predecessor has ended."""
        family, own = chain_of(tenant, (), conversation=name).family, ""
        if is_id(name):
            family, own = split_id(name)
        loop = asyncio.get_running_loop()
        until, pause = loop.time() + self._rules.wait_seconds, _FIRST_LOOK_SECONDS
        while True:
            begun = await self._turns.start_turn(family, own, tenant, LEASE_SECONDS)
            if begun is None:
                raise missing(name)
            if begun.lease is not None:
                return begun, begun.lease
            if self._rules.on_conflict == "reject" or loop.time() + pause > until:
                raise under_way()
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LOOK_SECONDS)

    async def _whole(
        self, request: ModelRequest, tenant: str, controls: Controls, begun: StartedTurn
    ) -> tuple[ModelRequest, Controls, str]:
        """The request with all its messages, the controls that it goes on with, and what is not known to both."""
        record = begun.record
        if record is None:
            return request, controls, ""
        kept = await self._readback.sendable(record)
        unreadable = record.message_count - len(kept)
        stored = await self._parsed(request, kept) if kept else ()
        said = [message for message in request.messages if not message.is_system]
        found = align(stored, said, unheard=record.unheard == record.message_count and not unreadable)
        if found.standing == "conflicts":
            raise ConversationConflict(
                "The newest message was answered already, and the conversation has gone on since. Send what is new."
            )
        raws = _joined(request.messages, kept, found)
        if not request.messages[0].is_system:
            raws = [*await self._heads.head(record.id), *raws]
        whole = await self._parse(render_body(request.fields, {"messages": b"[%b]" % b",".join(raws)}))
        asked = replace(controls, conversation=_name_of(tenant, record, stored, gaps=unreadable > 0))
        gap = f"unreadable={unreadable}" if unreadable else ""
        return whole, asked, ", ".join(one for one in (gap, found.gap) if one)

    async def _parsed(self, request: ModelRequest, raws: Sequence[bytes]) -> Sequence[Message]:
        body = render_body({"model": request.fields["model"]}, {"messages": b"[%b]" % b",".join(raws)})
        return (await self._parse(body)).messages


class _HeldReply:
    """An answer on its way, whose end is the turn's: what is recorded gives the lease back."""

    def __init__(self, reply: UpstreamReply, holder: LeaseKeeper) -> None:
        self._reply = reply
        self._holder = holder
        self.status = reply.status
        self.headers = reply.headers

    def body(self) -> AsyncIterator[bytes]:
        """The reply's own."""
        return self._reply.body()

    async def close(self) -> None:
        """Close the reply. A refusal is not recorded; of all else the write may come a moment later."""
        try:
            await self._reply.close()
        finally:
            if self.status >= 400:
                await self._holder.end()
            else:
                self._holder.leave()


def _joined(sent: Sequence[Message], kept: Sequence[bytes], found: Alignment) -> list[bytes]:
    """The request's system messages at the beginning, the stored messages, and what is new, byte by byte."""
    first = next((place for place, message in enumerate(sent) if not message.is_system), len(sent))
    raws = [message.raw for message in sent[:first]]
    raws += kept[: found.base]
    said = 0
    for message in sent[first:]:
        if message.is_system or said >= found.new:
            raws.append(message.raw)
        said += not message.is_system
    return raws


def _name_of(tenant: str, record: StoredConversation, stored: Sequence[Message], *, gaps: bool) -> str | None:
    """By what name a conversation's chain is made: its client's, none, or that of a beginning without one.

    Where the first message of one without a name cannot be read, what is left is another conversation.
    """
    for given in (record.name or None, None, ""):
        if chain_of(tenant, stored[:1], conversation=given).family == split_id(record.id)[0]:
            return given
    if gaps:
        return record.name or None
    raise ConversationNotFound(f"The conversation {record.id!r} cannot be gone on with.")
