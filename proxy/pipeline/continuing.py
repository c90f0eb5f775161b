"""The step ``continue``: resolves what a request refers to by ids, so that later steps see all its messages.

It stands beside stored history (``stored_history.py``), before the commands. A request may name an earlier response and
refer to earlier items. Where the upstream has them itself and nothing has to change, the client's own body goes out.
There is no lease: several requests that go on from one response are forks.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from proxy.core.bounded import BoundedCache
from proxy.core.conversation.prefix import owner_of
from proxy.core.conversation.request import ContinuedRequest, Dialect, ModelRequest
from proxy.core.conversation.responses import InputReference, ResponseFormat, ResponseRecord
from proxy.core.conversation.stored_format import StoredFormat
from proxy.core.errors import (
    EarlierResponseElsewhere,
    EarlierResponseUnknown,
    EarlierResponseUnreachable,
    InvalidRequest,
    ItemNotFound,
    ObjectNotFound,
    StoreError,
    UpstreamError,
)
from proxy.core.ports import Caller, ConversationStore, ResponseStore, Route, SummarySeal, Upstream
from proxy.pipeline.earlier_messages import EarlierMessages
from proxy.pipeline.identify import tenant_of
from proxy.pipeline.kept_responses import learning_of_upstream
from proxy.pipeline.plain_replies import decode_whole
from proxy.pipeline.shared_accounts import SharedAccounts
from proxy.pipeline.values import BufferedReply, Exchange, Refused, Result

MAX_UPSTREAMS = 1024
"""Addresses of which it is remembered whether they keep responses."""

_UNSUPPORTED = re.compile(
    rb"support|not permitted|not allowed|unexpected|unknown (?:param|field|arg)|unrecogni", re.IGNORECASE
)
"""Says that an upstream keeps no responses. What it says of one client's id must not be believed for all clients."""

NOT_STORED = "the earlier response is not stored here; the upstream was asked to go on from it"
"""The warning of a request whose earlier messages nobody here knows, and perhaps nobody at all."""


@dataclass(frozen=True, slots=True)
class _Asker:
    """Who asks, and where the request goes."""

    owner: str
    tenant: str
    keeps: bool | None
    """Whether the upstream keeps responses itself; None where nobody knows."""
    caller: Caller
    route: Route


class ContinuedRequests:
    """Resolves references. Its state is which upstreams were seen to keep responses, or not to.

    :param responses: what is stored of responses
    :param store: their conversations
    :param seal: opens summaries that ``POST /v1/responses/compact`` sealed
    :param accounts: knows who made what the upstream has
    """

    def __init__(
        self,
        *,
        upstream: Upstream,
        responses: ResponseStore,
        store: ConversationStore,
        formats: StoredFormat,
        seal: SummarySeal,
        accounts: SharedAccounts,
    ) -> None:
        self._upstream = upstream
        self._responses = responses
        self._seal = seal
        self._accounts = accounts
        self._earlier = EarlierMessages(store, responses, formats)
        self._keeping: BoundedCache[str, bool] = BoundedCache(MAX_UPSTREAMS)
        """By base URL."""

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
        at_upstream = responses.conversation_at_upstream(request.fields)
        if not (request.continues or sealed or references or at_upstream):
            return request
        if request.continues and at_upstream:
            raise InvalidRequest(
                "'previous_response_id' and 'conversation' are mutually exclusive: both say what came before. Send one "
                "of them.",
                param="previous_response_id",
                code="mutually_exclusive_parameters",
            )
        asker = await self._asker(request, caller)
        request = await self._opened(request, responses, sealed, asker)
        if at_upstream:
            if await self._unreachable([at_upstream], asker):
                raise ObjectNotFound(at_upstream, is_open=self._accounts.is_open, param="conversation")
            request = replace(request, continuation=ContinuedRequest(upstream_has=at_upstream))
        if not (request.continues or references):
            return request
        return await self._resolved(request, responses, references, asker)

    async def checked(self, request: ModelRequest, result: Result) -> Result | ModelRequest:
        """Look at what the upstream answered to a request that goes on from an earlier response.

        :returns: the result; where the upstream has lost what it should have kept, the request to send in its place
        """
        continuation, responses = request.continuation, request.dialect.responses
        if continuation is None or responses is None or not isinstance(result, Exchange):
            return result
        route = await self._upstream.resolve(request.model)
        if result.reply.status < 400:
            if continuation.received is not None or not request.continues:
                return result
            return self._handed_on(request.continues, responses, route, result)
        if result.reply.status not in (400, 404):
            return result
        return await self._refused(request, continuation, route.base_url, result)

    def _handed_on(self, earlier: str, responses: ResponseFormat, route: Route, result: Exchange) -> Exchange:
        """Return an exchange whose upstream was asked to go on from a response that Tidemark does not know."""

        def note(repeats: bool) -> None:  # noqa: FBT001 - the one thing that it notes
            if repeats:
                self._keeping.put(route.base_url, value=True)

        turn, report = learning_of_upstream(result.turn, responses, earlier, note), result.report
        if not self._keeps(route) and report.warning is None:
            report = replace(report, warning=NOT_STORED)
        return replace(result, turn=turn, report=report)

    async def _refused(
        self, request: ModelRequest, continuation: ContinuedRequest, base_url: str, result: Exchange
    ) -> Result | ModelRequest:
        """Return what to do where an upstream refuses a request, perhaps because of what it refers to."""
        reply, responses = result.reply, request.dialect.responses
        try:
            body = b"".join([piece async for piece in reply.body()])
        except UpstreamError as error:
            return Refused(error, result.report)
        finally:
            await reply.close()
        result = replace(result, reply=BufferedReply(reply.status, reply.headers, body))
        body = decode_whole(reply.headers, body) or body
        if responses is None or not responses.refuses_continuation(body):
            return result
        if _UNSUPPORTED.search(body.replace((request.continues or "").encode(), b"")):
            self._keeping.put(base_url, value=False)
        if continuation.received is not None:
            return replace(request, continuation=replace(continuation, received=None))
        if not request.continues or b"previous_response_not_found" in body:
            return result
        return Refused(EarlierResponseUnknown(request.continues), result.report)

    async def _asker(self, request: ModelRequest, caller: Caller) -> _Asker:
        route = await self._upstream.resolve(request.model)
        return _Asker(owner_of(caller.fingerprint), tenant_of(caller, route), self._keeps(route), caller, route)

    async def _unreachable(self, identifiers: Sequence[str], asker: _Asker) -> Sequence[str]:
        """Return which ids the upstream must not be asked for, as nobody but Tidemark can tell its tenants apart."""
        if asker.keeps is False or not identifiers:
            return ()
        return await self._accounts.unreachable(asker.route, asker.caller, identifiers)

    def _keeps(self, route: Route) -> bool | None:
        """Return whether a route's upstream keeps responses, as far as known."""
        keeps = self._upstream.keeps_responses(route)
        return self._keeping.get(route.base_url) if keeps is None else keeps

    async def _opened(
        self, request: ModelRequest, responses: ResponseFormat, sealed: Sequence[InputReference], asker: _Asker
    ) -> ModelRequest:
        """Put the texts of Tidemark's own sealed summaries in their places; a provider's stay as they are."""
        opened: dict[int, Sequence[bytes]] = {}
        for reference in sealed:
            try:
                text = self._seal.open(asker.tenant, reference.text)
            except InvalidRequest as error:
                param = f"{request.dialect.messages_member}[{reference.place}]"
                raise InvalidRequest(f"{param}: {error}", param=param, code=error.code) from error
            if text is not None:
                opened[reference.place] = [responses.summary_element(text)]
        if not opened:
            return request
        return await request.dialect.parse(responses.rewritten(request.fields, opened, None))

    async def _resolved(
        self, request: ModelRequest, responses: ResponseFormat, references: Sequence[InputReference], asker: _Asker
    ) -> ModelRequest:
        """Put the earlier messages before the request's own, and stored items in place of references."""
        items, earlier = await asyncio.gather(
            self._items(request, responses, references, asker), self._earlier_of(request, asker)
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
        continuation = ContinuedRequest(
            received=request if asker.keeps else None,
            earlier_count=earlier.others if earlier else 0,
            earlier_systems=len(earlier.raws) - earlier.others if earlier else 0,
            upstream_has=upstream_has,
        )
        return replace(whole, continuation=continuation)

    async def _earlier_of(self, request: ModelRequest, asker: _Asker) -> _Earlier | None:
        """Return the messages of the response that a request goes on from; None where only the upstream may know."""
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
        return None if places is None else _Earlier(*places)

    async def _find(self, identifier: str, asker: _Asker) -> ResponseRecord | None:
        """Return a stored response; where the upstream has it too, the store may be away."""
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
        records = await asyncio.gather(*[self._find(name, asker) for name in names])
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
            replaced[group[0][0]] = [item for _, item in responses.items_of(raw)]
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
        outputs = await asyncio.gather(*[self._earlier.output(record, dialect) for record in reachable.values()])
        items: dict[str, bytes] = {}
        for record, output in zip(reachable.values(), outputs, strict=True):
            if output and dialect.responses is not None:
                items.update(_items_by_id(record, dialect.responses, output))
        return items


@dataclass(frozen=True, slots=True)
class _Earlier:
    """The messages before a request's own."""

    raws: Sequence[bytes]
    others: int
    """How many of them are no system messages."""


def _items_by_id(record: ResponseRecord, responses: ResponseFormat, output: bytes) -> Mapping[str, bytes]:
    """Return the items of a response by the ids that its client knows."""
    return {item.id: raw for item, raw in responses.items_of(responses.output_of(output, record.items))}


def _unknown_item(reference: InputReference, member: str) -> ItemNotFound:
    return ItemNotFound(
        f"Item with id {reference.text[:120]!r} not found: it is unknown here, or has expired. Send the item itself in "
        "place of the reference.",
        param=f"{member}[{reference.place}]",
    )
