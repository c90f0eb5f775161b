"""``/v1/conversations``: OpenAI's Conversations API, from Tidemark's own store if the upstream has none.

A request for another conversation is carried to the upstream that may have made it. Source: OpenAI API reference,
"Conversations".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from tidemark.core.conversation.kept import KeptConversation, KeptItem, is_kept_here
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import ConversationNotFound, InvalidRequest, ItemNotFound
from tidemark.core.frozen import frozen
from tidemark.core.ports import Authenticator, Caller
from tidemark.dialects.raw_json import decode_value, read_elements, read_members
from tidemark.features.responses.endpoints import carried_reply, page_of, path_with_query
from tidemark.features.responses.kept_conversations import CONVERSATIONS, ConversationsApi
from tidemark.features.responses.response_json import input_item_list, shown_item
from tidemark.server.encodings import read_plain_body
from tidemark.server.responses import to_json, with_error_envelope

MOST_ITEMS = 20
"""That one request adds."""
MOST_PAIRS, MOST_NAME_CHARACTERS, MOST_VALUE_CHARACTERS = 16, 64, 512
"""Bounds of ``metadata``."""
Handler = Callable[[Request, Caller], Awaitable[Response]]


@frozen
class KeptConversationEndpoints:
    """Serves conversations to the credential that made them.

    :param carry: carries a request to an upstream
    """

    api: ConversationsApi
    carry: ASGIApp
    auth: Authenticator
    max_body_bytes: int

    def routes(self) -> list[BaseRoute]:
        path = f"/v1{CONVERSATIONS}/{{id}}"
        item = path + "/items/{item}"
        return [
            Route(f"/v1{CONVERSATIONS}", with_error_envelope(self._create), methods=["POST"]),
            *(
                Route(at, with_error_envelope(self._kept_or_carried(handler)), methods=[method])
                for at, method, handler in (
                    (path, "GET", self._show),
                    (path, "POST", self._change),
                    (path, "DELETE", self._forget),
                    (f"{path}/items", "GET", self._list),
                    (f"{path}/items", "POST", self._add),
                    (item, "GET", self._show_item),
                    (item, "DELETE", self._remove),
                )
            ),
        ]

    def _kept_or_carried(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler for conversations of Tidemark's own; all others are the upstream's."""

        async def answer(request: Request) -> Response:
            caller = self.auth.caller(request.headers.raw)
            if is_kept_here(request.path_params["id"]):
                return await handler(request, caller)
            if await self.api.may_be_at_upstream(request.query_params.get("model", ""), caller):
                return cast("Response", self.carry)  # a response is an ASGI application
            raise ConversationNotFound(
                f"Conversation with id {request.path_params['id'][:120]!r} not found: Tidemark did not make it, and no "
                "one upstream may have. One that an upstream keeps is found by '?model=' with a model of that upstream."
            )

        return answer

    async def _create(self, request: Request) -> Response:
        caller, body = self.auth.caller(request.headers.raw), await self._body(request)
        model = request.query_params.get("model", "")
        reply = await self.api.made_by_upstream(path_with_query(request), body, model, caller)
        if reply is not None:
            return await carried_reply(reply)
        members = read_members(body) if body.strip() else {}
        items = _items(members["items"]) if members.get("items", b"null") != b"null" else []
        return to_json(_shown(await self.api.create(_metadata(members.get("metadata", b"null")), items, caller)))

    async def _show(self, request: Request, caller: Caller) -> Response:
        return to_json(_shown((await self.api.find(_id(request), caller)).conversation))

    async def _change(self, request: Request, caller: Caller) -> Response:
        members = read_members(await self._body(request))
        if "metadata" not in members:
            raise InvalidRequest("'metadata' is missing.", param="metadata", code="missing_required_parameter")
        return to_json(_shown(await self.api.change(_id(request), _metadata(members["metadata"]), caller)))

    async def _forget(self, request: Request, caller: Caller) -> Response:
        await self.api.forget(_id(request), caller)
        return to_json({"id": _id(request), "object": "conversation.deleted", "deleted": True})

    async def _list(self, request: Request, caller: Caller) -> Response:
        items, has_more = page_of(request, (await self.api.find(_id(request), caller)).items, lambda item: item.id)
        return to_json(_page(items, has_more=has_more))

    async def _add(self, request: Request, caller: Caller) -> Response:
        members = read_members(await self._body(request))
        if "items" not in members:
            raise InvalidRequest("'items' is missing.", param="items", code="missing_required_parameter")
        return to_json(_page(await self.api.add(_id(request), _items(members["items"]), caller), has_more=False))

    async def _show_item(self, request: Request, caller: Caller) -> Response:
        wanted = request.path_params["item"]
        for item in (await self.api.find(_id(request), caller)).items:
            if item.id == wanted:
                return to_json(shown_item(item.raw, item.id))
        raise _no_item(wanted)

    async def _remove(self, request: Request, caller: Caller) -> Response:
        conversation = await self.api.remove(_id(request), request.path_params["item"], caller)
        if conversation is None:
            raise _no_item(request.path_params["item"])
        return to_json(_shown(conversation))

    async def _body(self, request: Request) -> bytes:
        return await read_plain_body(request, self.max_body_bytes)


def _id(request: Request) -> str:
    identifier: str = request.path_params["id"]
    return identifier


def _no_item(identifier: str) -> ItemNotFound:
    return ItemNotFound(f"Item with id {identifier[:120]!r} not found in this conversation.", param="item_id")


def _shown(conversation: KeptConversation) -> dict[str, JsonValue]:
    """Return a conversation as OpenAI shows one."""
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created_at),
        "metadata": decode_value(conversation.metadata, "metadata"),
    }


def _page(items: Sequence[KeptItem], *, has_more: bool) -> dict[str, JsonValue]:
    return input_item_list([shown_item(item.raw, item.id) for item in items], has_more=has_more)


def _items(raw: bytes) -> list[bytes]:
    """Read the items that a request adds.

    :raises InvalidRequest: they are no list, or too many
    """
    try:
        items = read_elements(raw)
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("'items' must be a list.", param="items", code="invalid_type") from error
    if len(items) > MOST_ITEMS:
        raise InvalidRequest(
            f"'items' has {len(items)} entries, and one request adds at most {MOST_ITEMS}. Send them in several.",
            param="items",
            code="array_above_max_length",
        )
    return items


def _metadata(raw: bytes) -> bytes:
    """Check ``metadata``, and return it; an empty object for null.

    :raises InvalidRequest: it is no object of a few short texts
    """
    value = decode_value(raw, "metadata")
    if value is None:
        return b"{}"
    fits = isinstance(value, dict) and len(value) <= MOST_PAIRS
    if not fits or not all(_is_pair(name, text) for name, text in cast("dict[str, JsonValue]", value).items()):
        raise InvalidRequest(
            f"'metadata' must be an object of at most {MOST_PAIRS} texts of up to {MOST_VALUE_CHARACTERS} characters, "
            f"with names of up to {MOST_NAME_CHARACTERS}.",
            param="metadata",
        )
    return raw


def _is_pair(name: str, text: JsonValue) -> bool:
    return len(name) <= MOST_NAME_CHARACTERS and isinstance(text, str) and len(text) <= MOST_VALUE_CHARACTERS
