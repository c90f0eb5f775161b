"""The step ``history``: where the client sends its new messages only, the store supplies the earlier ones.

It is the first step. It turns the request into the one that a client with all messages would send, so the later steps
are the same for both. One turn of a conversation is in progress at a time: a lease protects it from before anything is
forwarded until the write at the end, so no two replies interleave. If a lease is lost meanwhile, the write keeps the
turn as a fork (``store/lua/record.lua``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from proxy.compaction.leases import LEASE_SECONDS, LeaseKeeper
from proxy.core.conversation.alignment import Alignment, align, align_newest
from proxy.core.conversation.echoes import with_stored_answers
from proxy.core.conversation.messages import Message
from proxy.core.conversation.prefix import chain_of, is_id, owner_of, split_id
from proxy.core.conversation.records import StoredConversation, TurnRecord
from proxy.core.conversation.request import Dialect, ModelRequest
from proxy.core.conversation.stored_format import StoredFormat
from proxy.core.errors import ConversationConflict, StoreFull
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
from proxy.dialects.bodies import encode_json
from proxy.pipeline.identify import tenant_of
from proxy.pipeline.stored_conversation import StoredConversationReader, missing, under_way
from proxy.pipeline.stored_tails import StoredTail, StoredTails, has_its_calls
from proxy.pipeline.values import STORE_FULL, Controls, Exchange, GiveUp, Progress, Result
from proxy.pipeline.whole_request import WholeRequest, joined, name_of, place_of

OnConflict = Literal["reject", "wait"]
_FIRST_RETRY_SECONDS = 0.02
_LONGEST_RETRY_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class TurnRules:
    """What happens where two turns of one conversation meet."""

    on_conflict: OnConflict = "reject"
    wait_seconds: float = 20.0
    """How long a turn waits for its predecessor, where it waits."""


class HistoryTurn:
    """One turn of a stored conversation, protected by a lease until its reply has ended."""

    def __init__(
        self,
        whole: WholeRequest,
        *,
        tenant: str,
        started: StartedTurn,
        lease: Lease,
        keeper: LeaseKeeper,
        give_up: GiveUp,
    ) -> None:
        self.complete_with(whole)
        self.tenant = tenant
        self.started = started
        self._lease = lease
        self._keeper = keeper
        self._give_up = give_up

    def complete_with(self, whole: WholeRequest) -> None:
        """Take the client's request with its earlier messages."""
        self.request = whole.request
        """With all messages, but for those that ``place`` says were left out."""
        self.controls = whole.controls
        """The client's controls, with the name that the conversation's chain is made by."""
        self.gap = whole.gap
        """What client and store do not both know, for the report."""
        self.place = whole.place
        """Present where the chain is that of the store: messages came in another dialect, or were left out."""
        self._heads = whole.heads

    def reporting_to(self, progress: Progress) -> Progress:
        """Return a listener that adds the gap to every report."""
        return _WithGap(progress, self.gap)

    async def abandon(self) -> None:
        """Give the lease back, so that the next turn can start."""
        await self._keeper.end()

    async def attach_to(self, result: Result) -> Result:
        """Make the lease end with the reply, and the record name the turn that it belongs to."""
        result = replace(result, report=replace(result.report, gap=self.gap))
        if not isinstance(result, Exchange):
            await self._keeper.end()
            return result
        record = await self._record_of(result.turn.record)
        turn = replace(result.turn, record=record, give_up=self._give_up)
        return replace(result, reply=_LeasedReply(result.reply, self._keeper), turn=turn)

    async def _record_of(self, record: TurnRecord) -> TurnRecord:
        lease = self._lease
        if self._heads:  # the next turn without a system message goes on with them
            messages, tokens = (*self._heads, *record.messages), (*([0] * len(self._heads)), *record.tokens)
            record = replace(record, messages=messages, tokens=tokens)
        if record.chain.family != lease.family:  # the first message is unreadable, so this is another conversation
            await self._keeper.end()
            return replace(record, base_branch="", lease_name="", lease_value=b"")
        return replace(record, base_branch=self.started.branch, lease_name=lease.name, lease_value=lease.value)


class StoredHistory:
    """Starts turns of stored conversations. It takes ports only; its state is a cache of ``StoredTails``.

    :param full: owners for whom nothing more is stored; read with each request
    """

    def __init__(
        self,
        *,
        upstream: Upstream,
        store: ConversationStore,
        turns: TurnStore,
        heads: RequestHeads,
        leases: LeaseStore,
        formats: StoredFormat,
        rules: TurnRules,
        full: Collection[str] = (),
    ) -> None:
        self._upstream = upstream
        self._reader = StoredConversationReader(store, formats)
        self._tails = StoredTails(store, heads, formats)
        self._turns = turns
        self._heads = heads
        self._leases = leases
        self._rules = rules
        self._full = full

    async def start_turn(self, request: ModelRequest, caller: Caller, controls: Controls) -> HistoryTurn:
        """Take the conversation's turn, and add its earlier messages to the request.

        :raises ConversationNotFound: no conversation has the id that the client gave
        :raises ConversationConflict: another turn is in progress, or the conversation has gone on since
        :raises StoreFull: the turn could not be stored
        :raises StoreUnavailable: the store did not answer, so nobody knows the earlier messages
        """
        if owner_of(caller.fingerprint) in self._full:
            raise StoreFull(STORE_FULL)
        tenant = tenant_of(caller, await self._upstream.resolve(request.model))
        started, lease = await self._take(tenant, controls.conversation or "")
        keeper = LeaseKeeper(self._leases, lease, LEASE_SECONDS)
        try:
            whole = await self._complete(request, tenant, controls, started.record)
        except BaseException:  # also a client that leaves: the turn is free at once
            await keeper.end()
            raise
        return HistoryTurn(
            whole, tenant=tenant, started=started, lease=lease, keeper=keeper, give_up=self._turns.give_up
        )

    async def complete(self, turn: HistoryTurn, request: ModelRequest, controls: Controls) -> None:
        """Add the messages that were left out of a turn, because they are needed after all.

        :param request: what the client sent
        :raises ConversationConflict, ConversationNotFound, StoreUnavailable: as ``start_turn``
        """
        record = turn.started.record
        if record is not None:
            turn.complete_with(await self._complete_whole(request, turn.tenant, controls, record))

    async def _take(self, tenant: str, name: str) -> tuple[StartedTurn, Lease]:
        """Take the turn at once or, where the rules say so, when the turn before it has ended."""
        family, own = chain_of(tenant, (), conversation=name).family, ""
        if is_id(name):
            family, own = split_id(name)
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + self._rules.wait_seconds, _FIRST_RETRY_SECONDS
        while True:
            started = await self._turns.start_turn(family, own, tenant, LEASE_SECONDS)
            if started is None:
                raise missing(name)
            if started.lease is not None:
                return started, started.lease
            if self._rules.on_conflict == "reject" or loop.time() + pause > deadline:
                raise under_way()
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_RETRY_SECONDS)

    async def _complete(
        self, request: ModelRequest, tenant: str, controls: Controls, record: StoredConversation | None
    ) -> WholeRequest:
        """Add a conversation's earlier messages to a request; those that a summary stands for only where needed."""
        if record is None:
            return WholeRequest(request, controls)
        tail = await self._tails.read(record, request, controls)
        completed = None if tail is None else await self._complete_with_tail(request, tenant, controls, record, tail)
        return completed or await self._complete_whole(request, tenant, controls, record)

    async def _complete_with_tail(
        self, request: ModelRequest, tenant: str, controls: Controls, record: StoredConversation, tail: StoredTail
    ) -> WholeRequest | None:
        """Add the messages that follow the summary; None where what comes before them decides what is new."""
        others = [message for message in request.messages if not message.is_system]
        alignment = align_newest(tail.messages, others)
        if alignment is None:
            return None
        whole, heads = await self._joined(request, record, tail.raws, alignment)
        new = others[alignment.new :]
        place = place_of(tenant, record, tail.hashes, whole, new, left_out=tail.left_out)
        if place is None or not has_its_calls(whole.messages):
            return None
        name = name_of(tenant, record, tail.hashes[:1], gaps=False)
        return WholeRequest(whole, replace(controls, conversation=name), place=place, heads=heads)

    async def _complete_whole(
        self, request: ModelRequest, tenant: str, controls: Controls, record: StoredConversation
    ) -> WholeRequest:
        """Add all of a conversation's earlier messages to a request."""
        dialect = request.dialect
        history = await self._reader.sendable(record, dialect)
        raws = history.raws
        unreadable = record.message_count - len(raws)
        stored: Sequence[Message] = history.messages or ()
        if raws and history.messages is None:
            stored = (await dialect.parse(dialect.body_with_raw(request, raws), bounded=False)).messages
        others = [message for message in request.messages if not message.is_system]
        alignment = align(
            stored,
            with_stored_answers(stored, others),
            reply_lost=record.lost_reply_position == record.message_count and not unreadable,
        )
        if alignment.standing == "conflicts":
            raise ConversationConflict(
                "The newest message was answered already, and the conversation has gone on since. Send what is new."
            )
        whole, heads = await self._joined(request, record, raws, alignment)
        name = name_of(tenant, record, history.hashes[:1], gaps=unreadable > 0)
        place = None
        if history.messages is not None and not unreadable:
            place = place_of(tenant, record, history.hashes[: alignment.base], whole, others[alignment.new :])
        gaps = [f"unreadable={unreadable}" if unreadable else "", alignment.gap]
        return WholeRequest(whole, replace(controls, conversation=name), ", ".join(filter(None, gaps)), place, heads)

    async def _joined(
        self, request: ModelRequest, record: StoredConversation, stored: Sequence[bytes], alignment: Alignment
    ) -> tuple[ModelRequest, Sequence[Message]]:
        """Return the request with stored messages and system messages before its new ones.

        :returns: also the system messages whose text stands beside the messages
        """
        dialect, raws = request.dialect, joined(request.messages, stored, alignment)
        heads: Sequence[Message] = ()
        if not request.messages[0].is_system and dialect.system_member not in request.fields:
            raws_of_heads, heads = await self._heads_of(record, dialect)
            raws = [*raws_of_heads, *raws]
            if heads:
                system = encode_json("\n\n".join([head.text for head in heads]))
                request = replace(request, fields={**request.fields, dialect.system_member: system})
        return await dialect.parse(dialect.body_with_raw(request, raws), bounded=False), heads

    async def _heads_of(
        self, record: StoredConversation, dialect: Dialect
    ) -> tuple[Sequence[bytes], Sequence[Message]]:
        """Return the system messages that began the last request.

        :returns: as messages of the dialect, or where it has none, those whose text belongs beside its messages
        """
        heads, formats = await self._heads.leading_system_messages(record.id), self._reader.formats
        raws = formats.sendable(heads, dialect)
        if all(raws):
            return raws, ()
        return (), [head for head in formats.read(heads) if head.text]


class _WithGap:
    """``Progress`` that adds a gap to every report."""

    def __init__(self, progress: Progress, gap: str) -> None:
        self._progress = progress
        self._gap = gap
        self.on_summarizing = progress.on_summarizing

    def on_planned(self, report: Report) -> None:
        """Pass the report on, with the gap."""
        self._progress.on_planned(replace(report, gap=self._gap))


class _LeasedReply:
    """A reply whose end is the turn's: the write of the turn gives the lease back."""

    def __init__(self, reply: UpstreamReply, keeper: LeaseKeeper) -> None:
        self._reply = reply
        self._keeper = keeper
        self.status = reply.status
        self.headers = reply.headers

    def body(self) -> AsyncIterator[bytes]:
        """Return the reply's own body."""
        return self._reply.body()

    async def close(self) -> None:
        """Close the reply. A refusal is not recorded; the write of any other turn may come a moment later."""
        try:
            await self._reply.close()
        finally:
            if self.status >= 400:
                await self._keeper.end()
            else:
                self._keeper.leave()
