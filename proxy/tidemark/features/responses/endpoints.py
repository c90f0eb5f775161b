"""``/v1/responses/{id}``: stored responses, shown, deleted, cancelled, and their input items; and compaction.

If Tidemark does not know a response, it asks the upstream that may keep it. Source: OpenAI API reference, "Responses".
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from tidemark.core.conversation.responses import ResponseRecord
from tidemark.core.errors import InvalidRequest, ResponseNotFound
from tidemark.core.frozen import frozen
from tidemark.core.ports import Authenticator, Caller, UpstreamReply
from tidemark.features.responses.response_json import (
    compacted_conversation,
    input_item_list,
    listed_items,
    response_object,
)
from tidemark.features.responses.response_replay import response_stream
from tidemark.features.responses.stored_responses import StoredResponses
from tidemark.pipeline.plain_replies import read_whole
from tidemark.pipeline.sealed_compaction import SealedCompaction, SealedWindow
from tidemark.server.allowed_models import check_body
from tidemark.server.encodings import read_plain_body
from tidemark.server.endpoints.forwarding import path_below
from tidemark.server.headers import returned_lines
from tidemark.server.quotas import Quotas
from tidemark.server.responses import JSON_TYPE, to_json, with_error_envelope

DEFAULT_PAGE_ITEMS = 20
MAX_PAGE_ITEMS = 100
COMPACT_PATH = "/responses/compact"
EVENT_STREAM = "text/event-stream"
FIRST_ERROR = 400
Item = TypeVar("Item")


@frozen
class StoredResponseEndpoints:
    """Serves stored responses, to the credential that they were answered to."""

    stored: StoredResponses
    compaction: SealedCompaction
    auth: Authenticator
    quotas: Quotas
    max_body_bytes: int

    def routes(self) -> list[BaseRoute]:
        response = "/v1/responses/{id}"
        return [
            Route(f"/v1{COMPACT_PATH}", with_error_envelope(self._compact), methods=["POST"]),
            Route(response, with_error_envelope(self._show), methods=["GET"]),
            Route(response, with_error_envelope(self._delete), methods=["DELETE"]),
            Route(f"{response}/cancel", with_error_envelope(self._cancel), methods=["POST"]),
            Route(f"{response}/input_items", with_error_envelope(self._input_items), methods=["GET"]),
        ]

    async def _show(self, request: Request) -> Response:
        after = _starting_after(request)
        caller, record = await self._stored_for(request)
        if record is not None and not record.background:
            members = await self.stored.members(record)
            if members is not None:
                if request.query_params.get("stream") == "true":
                    return Response(response_stream(members, after), media_type=EVENT_STREAM)
                return Response(response_object(members), media_type=JSON_TYPE)
        if record is not None and record.background:
            reply = await self.stored.poll(record, path_with_query(request), caller)
            return await self._carried_or_missing(request, reply)
        return await self._upstreams(request, caller, record)

    async def _delete(self, request: Request) -> Response:
        caller, record = await self._stored_for(request)
        if record is None:
            return await self._upstreams(request, caller, None)
        refusal = await self.stored.forget(record, caller, _path(request))
        if refusal is not None:
            return await carried_reply(refusal)
        return to_json({"id": record.id, "object": "response", "deleted": True})

    async def _cancel(self, request: Request) -> Response:
        caller, record = await self._stored_for(request)
        was_in_background = record is not None and record.head.get("background") == b"true"  # streamed to its end
        if record is not None and not (record.background or was_in_background):
            raise InvalidRequest(
                "Only a response that was created with 'background': true can be cancelled. To stop another one, close "
                "its connection.",
                param="response_id",
                code="response_not_background",
            )
        return await self._upstreams(request, caller, record)

    async def _input_items(self, request: Request) -> Response:
        caller, record = await self._stored_for(request)
        if record is None:
            return await self._upstreams(request, caller, None)
        items = listed_items(await self.stored.input_items(record), record.id)
        page, has_more = page_of(request, items, lambda item: item["id"])
        return to_json(input_item_list(page, has_more=has_more))

    async def _compact(self, request: Request) -> Response:
        caller = self.auth.caller(request.headers.raw)
        body = await read_plain_body(request, self.max_body_bytes)
        check_body(body, caller)
        async with self.quotas.counted(caller):
            compacted = await self.compaction.compact(body, caller, COMPACT_PATH)
        if not isinstance(compacted, SealedWindow):
            return await carried_reply(compacted)
        return to_json(
            compacted_conversation(
                compacted.messages,
                compacted.sealed,
                identifier=uuid.uuid4().hex,
                created_at=time.time(),
                input_tokens=compacted.input_tokens,
                output_tokens=compacted.output_tokens,
            )
        )

    async def _stored_for(self, request: Request) -> tuple[Caller, ResponseRecord | None]:
        caller = self.auth.caller(request.headers.raw)
        return caller, await self.stored.find(request.path_params["id"], caller)

    async def _upstreams(self, request: Request, caller: Caller, record: ResponseRecord | None) -> Response:
        """Answer what the upstream answers; if no upstream may keep the response, it does not exist."""
        model = request.query_params.get("model", "")
        path = path_with_query(request)
        return await self._carried_or_missing(
            request, await self.stored.ask_upstream(record, request.method, path, caller, model)
        )

    @staticmethod
    async def _carried_or_missing(request: Request, reply: UpstreamReply | None) -> Response:
        """Return an upstream's reply; without one, the response does not exist."""
        if reply is None:
            raise ResponseNotFound(
                f"Response with id {request.path_params['id'][:120]!r} not found: it is unknown here, or has expired. "
                "A response to a request with 'store': false is not kept. One that an upstream keeps is found by "
                "'?model=' with a model of that upstream."
            )
        return await carried_reply(reply)


async def carried_reply(reply: UpstreamReply) -> Response:
    """Return an upstream's reply, whose bytes go to the client as they come.

    An error is short and is read first, so that one without an end can give way to Tidemark's own.
    """

    async def pieces() -> AsyncIterator[bytes]:
        try:
            async for piece in reply.body():
                yield piece
        finally:
            await reply.close()

    is_error = reply.status >= FIRST_ERROR
    response = (
        Response(await read_whole(reply), reply.status) if is_error else StreamingResponse(pieces(), reply.status)
    )
    own_length = [line for line in response.raw_headers if line[0] == b"content-length"]
    response.raw_headers[:] = [*returned_lines(reply.headers), *own_length]
    return response


def _path(request: Request) -> str:
    """Return the path below the upstream's base URL, as the client wrote it.

    :raises InvalidRequest: the id would climb to another path (``..``)
    """
    return path_below(request.scope)


def path_with_query(request: Request) -> str:
    """Return the path below the upstream's base URL with the client's query, without what names a model."""
    query = "&".join(pair for pair in request.url.query.split("&") if not pair.startswith("model="))
    return _path(request) + (f"?{query}" if query else "")


def page_of(request: Request, items: Sequence[Item], id_of: Callable[[Item], object]) -> tuple[Sequence[Item], bool]:
    """Return the page of a list that a request asks for, and whether more follow.

    :param items: oldest first
    :raises InvalidRequest: no list has such a page, or this one not the item that it follows
    """
    order, limit, after = _page_order(request), _page_size(request), request.query_params.get("after")
    if order == "desc":
        items = items[::-1]
    if after:
        names = [id_of(item) for item in items]
        if after not in names:
            raise InvalidRequest(f"There is no item {after[:80]!r} in this list.", param="after")
        items = items[names.index(after) + 1 :]
    return items[:limit], len(items) > limit


def _page_order(request: Request) -> str:
    """Return the order that a list is asked for in; raises ``InvalidRequest``."""
    order = request.query_params.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidRequest("'order' must be 'asc' or 'desc'.", param="order")
    return order


def _page_size(request: Request) -> int:
    """Return how many items a page has; raises ``InvalidRequest``."""
    text = request.query_params.get("limit", str(DEFAULT_PAGE_ITEMS))
    if not (text.isascii() and text.isdigit() and len(text) < 6 and 1 <= int(text) <= MAX_PAGE_ITEMS):
        raise InvalidRequest(f"'limit' must be a whole number from 1 to {MAX_PAGE_ITEMS}.", param="limit")
    return int(text)


def _starting_after(request: Request) -> int | None:
    """Return the number of the last event that the client has; None if it names none, or wants no stream."""
    text = request.query_params.get("starting_after")
    if text is None or request.query_params.get("stream") != "true":
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 16):
        raise InvalidRequest("'starting_after' must be the 'sequence_number' of an event.", param="starting_after")
    return int(text)
