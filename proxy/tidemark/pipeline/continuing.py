"""The step ``continue``: resolves what a request refers to by ids, so that later steps see all its messages.

It stands beside stored history (``stored_history.py``), before the commands. A request may name an earlier response and
refer to earlier items. If the upstream has them itself and nothing has to change, the client's own body goes out.
What its answer teaches is in ``continued_answers.py``. There is no lease: several requests that go on from one response
are forks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeVar

from tidemark.compaction.sealing import TenantSeal
from tidemark.core.conversation.kept import KeptConversation, is_kept_here
from tidemark.core.conversation.prefix import owner_of
from tidemark.core.conversation.request import ContinuedRequest, Dialect, KeptTurn, ModelRequest
from tidemark.core.conversation.responses import InputReference, ResponseFormat, ResponseRecord
from tidemark.core.errors import (
    EarlierResponseElsewhere,
    EarlierResponseUnknown,
    EarlierResponseUnreachable,
    InvalidRequest,
    ItemNotFound,
    ObjectNotFound,
    RecordUnreadable,
    StoreError,
)
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller, ConversationStore, ResponseStore, Route, Upstream
from tidemark.dialects.message_formats import MessageFormats
from tidemark.pipeline.continued_answers import ContinuedAnswers
from tidemark.pipeline.earlier_messages import EarlierMessages
from tidemark.pipeline.identify import tenant_of
from tidemark.pipeline.kept_conversations import KeptConversations
from tidemark.pipeline.sealed_items import SealedItems
from tidemark.pipeline.shared_accounts import SharedAccounts
from tidemark.pipeline.unsummarized_messages import UnsummarizedReader
from tidemark.pipeline.unsummarized_resolver import UnsummarizedResolver
from tidemark.pipeline.values import Controls, ConversationPlace

MAX_REFERENCES = 2_000
"""Items that one request refers to, each of which the store is asked for. A long session of an agent has hundreds."""
READS_AT_ONCE = 100
"""Reads of the store that are begun together; the event loop runs between them."""
Place = TypeVar("Place")
Read = TypeVar("Read")


@frozen
class _Asker:
    """Who asks, and where the request goes."""

    owner: str
    tenant: str
    keeps: bool | None
    """Whether the upstream keeps responses itself; None if nobody knows."""
    caller: Caller
    route: Route


class ContinuedRequests:
    """Resolves references. It takes ports and other steps only, and has no state.

    :param responses: what is stored of responses
    :param store: their conversations
    :param conversations: those of the Conversations API that Tidemark keeps
    :param seal: opens summaries that clients carry
    :param answers: knows which upstreams keep responses, and looks at what they answer
    :param accounts: knows who made what the upstream has
    """

    def __init__(
        self,
        *,
        upstream: Upstream,
        responses: ResponseStore,
        store: ConversationStore,
        unsummarized: UnsummarizedReader,
        formats: MessageFormats,
        seal: TenantSeal,
        answers: ContinuedAnswers,
        conversations: KeptConversations,
        accounts: SharedAccounts,
    ) -> None:
        self._upstream = upstream
        self._responses = responses
        self._sealed = SealedItems(seal)
        self._conversations = conversations
        self._accounts = accounts
        self._earlier = EarlierMessages(store, responses, formats)
        self._unsummarized = UnsummarizedResolver(store, responses, unsummarized)
        self.answers = answers

    async def resolve(self, request: ModelRequest, caller: Caller) -> ModelRequest:
        """Return the request with all its messages, as a client that keeps them would send it.

        :raises InvalidRequest: the earlier response is unknown to everybody, or a sealed summary is not this tenant's
        :raises ItemNotFound: an item is unknown to everybody
        :raises EarlierResponseUnreachable, ObjectNotFound: the upstream has the earlier response or the conversation in
            an account that tenants share, and it is not this caller's
        :raises StoreUnavailable: the store did not answer, so nobody knows the earlier messages
        """
        responses = request.dialect.responses
        if responses is None:
            return request
        sealed, references = responses.sealed_summaries(request.fields), responses.references(request.fields)
        conversation = responses.conversation_at_upstream(request.fields)
        if not (request.continues or sealed or references or conversation):
            return request
        if request.continues and conversation:
            raise InvalidRequest(
                "'previous_response_id' and 'conversation' are mutually exclusive: both say what came before. Send one "
                "of them.",
                param="previous_response_id",
                code="mutually_exclusive_parameters",
            )
        asker = await self._asker(request, caller)
        request = await self._sealed.opened(request, responses, sealed, asker.tenant)
        if is_kept_here(conversation):
            return await self._resolved(request, responses, references, asker, conversation)
        if conversation:
            if await self._unreachable([conversation], asker):
                raise ObjectNotFound(conversation, is_open=self._accounts.is_open, param="conversation")
            request = replace(request, continuation=ContinuedRequest(upstream_has=conversation))
        if not (request.continues or references):
            return request
        return await self._resolved(request, responses, references, asker)

    async def resolve_unsummarized(
        self, request: ModelRequest, caller: Caller, controls: Controls
    ) -> tuple[ModelRequest, ConversationPlace] | None:
        """Return the request with what follows the summary of its conversation (FR-4.3.1), and its place.

        :returns: None if all messages must be read, by ``resolve``
        """
        responses, fields = request.dialect.responses, request.fields
        if not request.continues or responses is None or controls.history == "stored":
            return None
        if any(
            (
                responses.sealed_summaries(fields),
                responses.references(fields),
                responses.conversation_at_upstream(fields),
            )
        ):
            return None
        asker = await self._asker(request, caller)
        if asker.keeps:
            return None
        try:
            return await self._unsummarized.resolve(
                request, responses, controls, owner=asker.owner, tenant=asker.tenant
            )
        except (StoreError, RecordUnreadable):
            return None

    async def _asker(self, request: ModelRequest, caller: Caller) -> _Asker:
        route = await self._upstream.resolve(request.model)
        return _Asker(
            owner_of(caller.fingerprint), tenant_of(caller, route), self.answers.keeps(route, caller), caller, route
        )

    async def _unreachable(self, identifiers: Sequence[str], asker: _Asker) -> Sequence[str]:
        """Return the ids that the upstream must not be asked for, because only Tidemark can tell its tenants apart."""
        if asker.keeps is False or not identifiers:
            return ()
        return await self._accounts.unreachable(asker.route, asker.caller, identifiers)

    async def _resolved(
        self,
        request: ModelRequest,
        responses: ResponseFormat,
        references: Sequence[InputReference],
        asker: _Asker,
        conversation: str = "",
    ) -> ModelRequest:
        """Put the earlier messages before the request's own, and stored items in place of references."""
        items, earlier = await asyncio.gather(
            self._items(request, responses, references, asker),
            self._kept_of(request, responses, asker, conversation)
            if conversation
            else self._earlier_of(request, asker),
        )
        upstream_has = request.continuation.upstream_has if request.continuation else ""
        if request.continues and earlier is None:
            if asker.keeps is False:
                raise EarlierResponseUnknown(request.continues)
            upstream_has = request.continues
        if not items and earlier is None:
            return replace(request, continuation=ContinuedRequest(upstream_has=upstream_has))
        raws = None if earlier is None else earlier.raws
        whole = await request.dialect.parse(responses.rewritten(request.fields, items, raws), bounded=False)
        if earlier is not None and earlier.conversation is not None:
            return replace(
                whole, continuation=_kept_turn(request, whole, earlier.raws, earlier.conversation, responses)
            )
        continuation = ContinuedRequest(
            received=request if asker.keeps and not (earlier and earlier.only_here) else None,
            earlier_count=earlier.others if earlier else 0,
            earlier_systems=len(earlier.raws) - earlier.others if earlier else 0,
            resolved=request.continues or "" if earlier else "",
            upstream_has=upstream_has,
        )
        return replace(whole, continuation=continuation)

    async def _earlier_of(self, request: ModelRequest, asker: _Asker) -> _Earlier | None:
        """Return the messages of the response that a request goes on from; None if only the upstream may know."""
        if not request.continues:
            return None
        record = await self._find(request.continues, asker)
        if record is None or not record.may_be_sent_for(asker.tenant):
            if await self._unreachable([request.continues], asker):
                raise EarlierResponseUnreachable(request.continues)
            return None
        if record.upstream_has and asker.keeps is False:
            raise EarlierResponseElsewhere(request.continues)
        if record.upstream_has or record.background:
            return None
        try:
            places = await self._earlier.of(record, request.dialect)
        except StoreError:
            if asker.keeps:
                return None
            raise
        return None if places is None else self._since_summary(_Earlier(*places), request, asker)

    def _since_summary(self, earlier: _Earlier, request: ModelRequest, asker: _Asker) -> _Earlier:
        """Return earlier messages from the last sealed summary on, which stands for all before it."""
        responses = request.dialect.responses
        if responses is None:
            return earlier
        since = self._sealed.since_summary(earlier.raws, request.dialect, responses, asker.tenant)
        if since is None:
            return earlier
        return replace(earlier, raws=since.raws, others=since.others, only_here=since.is_own)

    async def _kept_of(
        self, request: ModelRequest, responses: ResponseFormat, asker: _Asker, identifier: str
    ) -> _Earlier:
        """Return the items of the conversation that a request names."""
        history = await self._conversations.history_for(asker.owner, asker.tenant, identifier, request)
        raws = responses.sendable_items([item.raw for item in history.items])
        return self._since_summary(_Earlier(raws, 0, history.conversation), request, asker)

    async def _find(self, identifier: str, asker: _Asker) -> ResponseRecord | None:
        """Return a stored response; if the upstream has it too, the store may be away."""
        try:
            return await self._responses.find(asker.owner, identifier)
        except StoreError:
            if asker.keeps:
                return None
            raise

    async def _items(
        self, request: ModelRequest, responses: ResponseFormat, references: Sequence[InputReference], asker: _Asker
    ) -> Mapping[int, Sequence[bytes]]:
        """Return the stored items by the places of their references.

        Consecutive references are rewritten together, because a call goes out with the reasoning before it.
        """
        names = list(dict.fromkeys(reference.text for reference in references))
        if len(names) > MAX_REFERENCES:
            raise _too_many_references(len(names), request.dialect.messages_member)
        records = await _read_each(names, lambda name: self._find(name, asker))
        stored = await self._stored_items(request.dialect, dict(zip(names, records, strict=True)), asker)
        missing = [reference for reference in references if reference.text not in stored]
        unreachable = await self._unreachable([reference.text for reference in missing], asker) if asker.keeps else ()
        for reference in missing:
            if reference.text in unreachable:
                raise _unknown_item(reference, request.dialect.messages_member)
        groups: list[list[tuple[int, bytes]]] = []
        for reference in references:
            raw = stored.get(reference.text)
            if raw is None:
                if not asker.keeps:
                    raise _unknown_item(reference, request.dialect.messages_member)
                continue
            if not groups or groups[-1][-1][0] != reference.place - 1:
                groups.append([])
            groups[-1].append((reference.place, raw))
        replaced: dict[int, Sequence[bytes]] = {}
        for group in groups:
            replaced.update({place: () for place, _ in group})
            raw = request.dialect.as_sent(b",".join([raw for _, raw in group]))
            replaced[group[0][0]] = [
                self._sealed.opened_element(item, responses, asker.tenant) for _, item in responses.items_of(raw)
            ]
        return replaced

    async def _stored_items(
        self, dialect: Dialect, records: Mapping[str, ResponseRecord | None], asker: _Asker
    ) -> Mapping[str, bytes]:
        """Return the bytes of stored items by their ids."""
        reachable = {
            record.id: record
            for record in records.values()
            if record is not None and record.may_be_sent_for(asker.tenant)
        }
        outputs = await _read_each(list(reachable.values()), lambda record: self._earlier.output(record, dialect))
        items: dict[str, bytes] = {}
        for record, output in zip(reachable.values(), outputs, strict=True):
            if output and dialect.responses is not None:
                items.update(_items_by_id(record, dialect.responses, output))
        return items


@frozen
class _Earlier:
    """The messages before a request's own."""

    raws: Sequence[bytes]
    others: int
    """How many of them are no system messages."""
    conversation: KeptConversation | None = None
    """The conversation whose items they are; ``others`` is not known then."""
    only_here: bool = False
    """Whether the upstream does not have them, because they begin with a summary of Tidemark's."""


def _kept_turn(
    request: ModelRequest,
    whole: ModelRequest,
    earlier: Sequence[bytes],
    conversation: KeptConversation,
    responses: ResponseFormat,
) -> ContinuedRequest:
    """Return how a request goes on in a conversation that Tidemark keeps.

    :param request: with its own items only
    :param whole: with all of them
    """
    systems = _count_systems(whole) - _count_systems(request)
    return ContinuedRequest(
        earlier_count=len(whole.messages) - len(request.messages) - systems,
        earlier_systems=systems,
        kept_turn=KeptTurn(conversation, responses.input_items(whole.fields)[len(earlier) :]),
    )


def _count_systems(request: ModelRequest) -> int:
    return sum(message.is_system for message in request.messages)


def _items_by_id(record: ResponseRecord, responses: ResponseFormat, output: bytes) -> Mapping[str, bytes]:
    """Return the items of a response by the ids that its client knows."""
    return {item.id: raw for item, raw in responses.items_of(responses.output_of(output, record.items))}


async def _read_each(places: Sequence[Place], read: Callable[[Place], Awaitable[Read]]) -> list[Read]:
    """Return what ``read`` finds at each place, some of them at once."""
    items: list[Read] = []
    for start in range(0, len(places), READS_AT_ONCE):
        items += await asyncio.gather(*[read(place) for place in places[start : start + READS_AT_ONCE]])
    return items


def _too_many_references(count: int, member: str) -> InvalidRequest:
    return InvalidRequest(
        f"'{member}' refers to {count:,} items, and {MAX_REFERENCES:,} are the most. Send the items themselves, or go "
        "on from a response with 'previous_response_id'.",
        param=member,
        code="array_above_max_length",
    )


def _unknown_item(reference: InputReference, member: str) -> ItemNotFound:
    return ItemNotFound(
        f"Item with id {reference.text[:120]!r} not found: it is unknown here, or has expired. Send the item itself in "
        "place of the reference.",
        param=f"{member}[{reference.place}]",
    )
