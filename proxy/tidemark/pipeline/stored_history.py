"""The step ``history``: if the client sends its new messages only, the store supplies the earlier ones.

It is the first step. It turns the request into the one that a client with all messages would send, so the later steps
are the same for both. One turn of a conversation is in progress at a time: a lease protects it from before anything is
forwarded until the write at the end, so no two replies interleave. If a lease is lost meanwhile, the write keeps the
turn as a fork (``store/lua/record.lua``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import replace
from typing import Literal

from tidemark.compaction.leases import LEASE_SECONDS, LeaseKeeper
from tidemark.core.conversation.alignment import Alignment, align, align_newest
from tidemark.core.conversation.echoes import with_stored_answers
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import chain_of, is_id, owner_of, split_id
from tidemark.core.conversation.records import ConversationRecord, TurnRecord
from tidemark.core.conversation.request import Dialect, ModelRequest
from tidemark.core.errors import ConversationConflict, HistoryLost, RedactionFailed, StoreFull
from tidemark.core.frozen import frozen
from tidemark.core.ports import (
    Caller,
    ConversationStore,
    Lease,
    LeaseStore,
    Redactor,
    RequestHeads,
    StartedTurn,
    TurnStore,
    Upstream,
    UpstreamReply,
)
from tidemark.core.report import Report
from tidemark.dialects.bodies import encode_json
from tidemark.dialects.message_formats import MessageFormats
from tidemark.pipeline.history_reader import HistoryReader, missing, under_way
from tidemark.pipeline.identify import tenant_of
from tidemark.pipeline.lost_histories import LOST, LostHistories
from tidemark.pipeline.unsummarized_messages import UnsummarizedMessages, UnsummarizedReader, has_its_calls
from tidemark.pipeline.values import STORE_FULL, Controls, Exchange, GiveUp, Progress, Result
from tidemark.pipeline.whole_request import WholeRequest, joined, name_of, place_of

OnConflict = Literal["reject", "wait"]
_FIRST_RETRY_SECONDS = 0.02
_LONGEST_RETRY_SECONDS = 0.5


@frozen
class TurnRules:
    """What happens when two turns of one conversation meet."""

    on_conflict: OnConflict = "reject"
    wait_seconds: float = 20.0
    """How long a turn waits for its predecessor, if it waits."""


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
        lost: LostHistories,
        may_be_answered: bool = False,
    ) -> None:
        self.complete_with(whole)
        self.tenant = tenant
        self.may_be_answered = may_be_answered
        """Whether another worker may have answered this very turn while this one waited."""
        self.started = started
        self._lease = lease
        self._keeper = keeper
        self._give_up = give_up
        self._lost = lost

    def complete_with(self, whole: WholeRequest) -> None:
        """Take the client's request with its earlier messages."""
        self.request = whole.request
        """With all messages, but for those that ``place`` says were left out."""
        self.controls = whole.controls
        """The client's controls, with the name that the conversation's chain is made by."""
        self.gap = whole.gap
        """What client and store do not both know, for the report."""
        self.place = whole.place
        """Present if the chain is that of the store: messages came in another dialect, or were left out."""
        self._heads = whole.heads
        self._is_lossy = whole.is_lossy

    def reporting_to(self, progress: Progress) -> Progress:
        """Return a listener that adds the gap to every report."""
        return _WithGap(progress, self._add_gap)

    async def abandon(self) -> None:
        """Give the lease back, so that the next turn can start."""
        await self._keeper.end()

    async def settle(self, result: Result) -> Result:
        """Make the lease end with the reply, and the record name the turn that it belongs to."""
        result = replace(result, report=self._add_gap(result.report))
        if not isinstance(result, Exchange):
            await self._keeper.end()
            return result
        if result.reply.status < 400:
            self._lost.note(self._lease.family)
        record = await self._record_of(result.turn.record)
        turn = replace(result.turn, record=record, give_up=self._give_up)
        return replace(result, reply=_LeasedReply(result.reply, self._keeper), turn=turn)

    def _add_gap(self, report: Report) -> Report:
        """Return a report with the gap, and with a warning if the store has lost something."""
        warning = report.warning
        if self._is_lossy:
            warning = f"{LOST}; {warning}" if warning else LOST
        return replace(report, gap=self.gap, warning=warning)

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
    """Starts turns of stored conversations. It has no state of its own.

    :param full: owners for whom nothing more is stored; read with each request
    :param redactor: what stored messages were changed by; None changes nothing
    """

    def __init__(
        self,
        *,
        upstream: Upstream,
        store: ConversationStore,
        turns: TurnStore,
        heads: RequestHeads,
        unsummarized: UnsummarizedReader,
        leases: LeaseStore,
        formats: MessageFormats,
        rules: TurnRules,
        lost: LostHistories,
        full: Collection[str] = (),
        redactor: Redactor | None = None,
    ) -> None:
        self._upstream = upstream
        self._reader = HistoryReader(store, formats)
        self._unsummarized = unsummarized
        self._turns = turns
        self._heads = heads
        self._leases = leases
        self._rules = rules
        self._lost = lost
        self.wait_seconds = rules.wait_seconds
        """How long a turn waits for another one, if it waits."""
        self._full = full
        self._redactor = redactor

    async def start_turn(self, request: ModelRequest, caller: Caller, controls: Controls) -> HistoryTurn:
        """Take the conversation's turn, and add its earlier messages to the request.

        :raises ConversationNotFound: no conversation has the id that the client gave
        :raises ConversationConflict: another turn is in progress, or the conversation has gone on since
        :raises HistoryLost: the store has fewer messages than the client knows to be stored
        :raises StoreFull: the turn could not be stored
        :raises StoreUnavailable: the store did not answer, so nobody knows the earlier messages
        """
        if owner_of(caller.fingerprint) in self._full:
            raise StoreFull(STORE_FULL)
        tenant = tenant_of(caller, await self._upstream.resolve(request.model))
        started, lease, waited = await self._take(tenant, controls.conversation or "")
        keeper = LeaseKeeper(self._leases, lease, LEASE_SECONDS)
        try:
            _check_known(controls, started.record)
            is_answered = _is_answered(request, started.record, waited)
            if is_answered and started.record is not None:
                whole = await self._complete_whole(request, tenant, controls, started.record, reply_lost=True)
            else:
                whole = await self._complete(request, tenant, controls, started.record)
            if started.record is None:
                family, owner = lease.family, owner_of(caller.fingerprint)
                lost = await self._lost.count(started, family, owner, controls.conversation or "")
                if lost:
                    whole = replace(whole, gap=f"lost={lost}", is_lossy=True)
        except BaseException:  # also a client that leaves: the turn is free at once
            await keeper.end()
            raise
        return HistoryTurn(
            whole,
            tenant=tenant,
            started=started,
            lease=lease,
            keeper=keeper,
            give_up=self._turns.give_up,
            lost=self._lost,
            may_be_answered=is_answered,
        )

    async def complete(self, turn: HistoryTurn, request: ModelRequest, controls: Controls) -> None:
        """Add the messages that were left out of a turn, because they are needed after all.

        :param request: what the client sent
        :raises ConversationConflict, ConversationNotFound, StoreUnavailable: as ``start_turn``
        """
        record = turn.started.record
        if record is not None:
            turn.complete_with(await self._complete_whole(request, turn.tenant, controls, record))

    async def _take(self, tenant: str, name: str) -> tuple[StartedTurn, Lease, int | None]:
        """Take the turn at once or, if the rules say so, when the turn before it has ended.

        :returns: also how many messages were stored when it began to wait; None if it did not
        """
        family, own = chain_of(tenant, (), conversation=name).family, ""
        if is_id(name):
            family, own = split_id(name)
        loop = asyncio.get_running_loop()
        deadline, pause = loop.time() + self._rules.wait_seconds, _FIRST_RETRY_SECONDS
        waited: int | None = None
        while True:
            started = await self._turns.start_turn(family, own, tenant, LEASE_SECONDS)
            if started is None:
                raise missing(name)
            if started.lease is not None:
                return started, started.lease, waited
            if waited is None:
                waited = started.record.message_count if started.record is not None else 0
            if self._rules.on_conflict == "reject" or loop.time() + pause > deadline:
                raise under_way()
            await asyncio.sleep(pause)
            pause = min(pause * 1.5, _LONGEST_RETRY_SECONDS)

    async def _complete(
        self, request: ModelRequest, tenant: str, controls: Controls, record: ConversationRecord | None
    ) -> WholeRequest:
        """Add a conversation's earlier messages to a request; those that a summary stands for only if needed."""
        if record is None:
            return WholeRequest(request, controls)
        unsummarized = await self._unsummarized.read(record, request, controls)
        completed = (
            None
            if unsummarized is None
            else await self._complete_unsummarized(request, tenant, controls, record, unsummarized)
        )
        return completed or await self._complete_whole(request, tenant, controls, record)

    async def _complete_unsummarized(
        self,
        request: ModelRequest,
        tenant: str,
        controls: Controls,
        record: ConversationRecord,
        unsummarized: UnsummarizedMessages,
    ) -> WholeRequest | None:
        """Add the messages that follow the summary; None if what comes before them decides what is new."""
        others = [message for message in request.messages if not message.is_system]
        alignment = align_newest(unsummarized.messages, await self._as_stored(others))
        if alignment is None:
            return None
        whole, heads, lost = await self._joined(request, record, unsummarized.raws, alignment)
        new = others[alignment.new :]
        place = place_of(tenant, record, unsummarized.hashes, whole, new, left_out=unsummarized.left_out)
        if place is None or not has_its_calls(whole.messages):
            return None
        name = name_of(tenant, record, unsummarized.hashes[:1], gaps=False)
        controls = replace(controls, conversation=name)
        return WholeRequest(whole, controls, lost, place=place, heads=heads, is_lossy=bool(lost))

    async def _complete_whole(
        self,
        request: ModelRequest,
        tenant: str,
        controls: Controls,
        record: ConversationRecord,
        *,
        reply_lost: bool = False,
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
            with_stored_answers(stored, await self._as_stored(others)),
            reply_lost=(reply_lost or record.lost_reply_position == record.message_count) and not unreadable,
        )
        if alignment.standing == "conflicts":
            raise ConversationConflict(
                "The newest message was answered already, and the conversation has gone on since. Send what is new."
            )
        whole, heads, lost = await self._joined(request, record, raws, alignment)
        name = name_of(tenant, record, history.hashes[:1], gaps=unreadable > 0)
        place = None
        if history.messages is not None and not unreadable:
            place = place_of(tenant, record, history.hashes[: alignment.base], whole, others[alignment.new :])
        gaps = [f"unreadable={unreadable}" if unreadable else "", lost, alignment.gap]
        controls, gap = replace(controls, conversation=name), ", ".join(filter(None, gaps))
        return WholeRequest(whole, controls, gap, place, heads, is_lossy=bool(lost))

    async def _as_stored(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return a client's messages as they would be stored, so that those that are can be found among them."""
        if self._redactor is None:
            return messages
        try:
            return await self._redactor.messages(messages)
        except RedactionFailed:  # the turn will not be stored either
            return messages

    async def _joined(
        self, request: ModelRequest, record: ConversationRecord, stored: Sequence[bytes], alignment: Alignment
    ) -> tuple[ModelRequest, Sequence[Message], str]:
        """Return the request with stored messages and system messages before its new ones.

        :returns: also the system messages whose text stands beside the messages, and the gap if some are lost
        """
        dialect, raws = request.dialect, joined(request.messages, stored, alignment)
        heads: Sequence[Message] = ()
        missing = ""
        if not request.messages[0].is_system and dialect.system_member not in request.fields:
            raws_of_heads, heads, missing = await self._heads_of(record, dialect)
            raws = [*raws_of_heads, *raws]
            if heads:
                system = encode_json("\n\n".join([head.text for head in heads]))
                request = replace(request, fields={**request.fields, dialect.system_member: system})
        whole = await dialect.parse(dialect.body_with_raw(request, raws), bounded=False)
        return whole, heads, f"system={missing}" if missing else ""

    async def _heads_of(
        self, record: ConversationRecord, dialect: Dialect
    ) -> tuple[Sequence[bytes], Sequence[Message], str]:
        """Return the system messages that began the last request.

        :returns: as messages of the dialect, or if it has none, those whose text belongs beside its messages; and
            how many are lost
        """
        formats = self._reader.formats
        heads, missing = await self._heads.with_missing(record.id)
        raws = formats.sendable(heads, dialect)
        if all(raws):
            return raws, (), missing
        return (), [head for head in formats.read(heads) if head.text], missing


def _is_answered(request: ModelRequest, record: ConversationRecord | None, waited: int | None) -> bool:
    """Return whether the turn that a request waited for may be its own, which another worker has answered.

    :param waited: how many messages were stored before that turn; None if it did not wait
    """
    if record is None or waited is None:
        return False
    others = sum([not message.is_system for message in request.messages])
    return record.message_count == waited + others + 1


def _check_known(controls: Controls, record: ConversationRecord | None) -> None:
    """Refuse a turn whose client knows of more messages than there are."""
    stored = record.message_count if record is not None else 0
    if controls.known_count is not None and stored < controls.known_count:
        raise HistoryLost(controls.known_count, stored)


class _WithGap:
    """``Progress`` that adds a gap to every report."""

    def __init__(self, progress: Progress, add_gap: Callable[[Report], Report]) -> None:
        self._progress = progress
        self._add_gap = add_gap
        self.on_summarizing = progress.on_summarizing

    def on_planned(self, report: Report) -> None:
        """Pass the report on, with the gap."""
        self._progress.on_planned(self._add_gap(report))


class _LeasedReply:
    """A reply whose end is the turn's: the write of the turn gives the lease back."""

    def __init__(self, reply: UpstreamReply, keeper: LeaseKeeper) -> None:
        self._reply = reply
        self._keeper = keeper
        self.status = reply.status
        self.headers = reply.headers

    def body(self) -> AsyncIterator[bytes]:
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
