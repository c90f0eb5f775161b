"""``/tidemark/conversations``: stored conversations listed, shown, searched, taken out, brought in and forgotten.

Reached with the tenant's own credential, or with the admin token, which reaches all (docs/history.md).
"""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from proxy.archive import ContextView, ConversationReader, Page, Transfer
from proxy.core.errors import InvalidRequest
from proxy.dialects.chat.request import checked_model
from proxy.server.access import ConversationAccess
from proxy.server.asgi import read_body
from proxy.server.encodings import decoded_body
from proxy.server.endpoints.ops import as_json, told
from proxy.server.headers import conversation_name

PER_PAGE = 50
MOST_PER_PAGE = 200
MOST_CHARACTERS = 1000
"""Of a search."""
JSON_LINES = "application/jsonl"


@dataclass(frozen=True, slots=True)
class ConversationEndpoints:
    """The endpoints. ``{id}`` is Tidemark's id or the client's own name; a name with a slash is reached by its id."""

    reading: ConversationReader
    contexts: ContextView
    transfer: Transfer
    access: ConversationAccess
    max_body_bytes: int

    def routes(self) -> list[BaseRoute]:
        """One path for each thing to do."""
        all_, one = "/tidemark/conversations", "/tidemark/conversations/{id}"
        return [
            Route(all_, told(self._list), methods=["GET"]),
            Route(f"{all_}/import", told(self._import), methods=["POST"]),
            Route(one, told(self._one), methods=["GET"]),
            Route(one, told(self._forget), methods=["DELETE"]),
            Route(f"{one}/context", told(self._context), methods=["GET"]),
            Route(f"{one}/summaries", told(self._summaries), methods=["GET"]),
            Route(f"{one}/search", told(self._search), methods=["GET"]),
            Route(f"{one}/export", told(self._export), methods=["GET"]),
        ]

    async def _list(self, request: Request) -> Response:
        return as_json(await self.reading.listed(self.access.caller(request), _page(request)))

    async def _one(self, request: Request) -> Response:
        caller = self.access.caller(request)
        return as_json(await self.reading.described(request.path_params["id"], caller, _page(request)))

    async def _context(self, request: Request) -> Response:
        at = _number(request, "at", least=1, most=10**9)
        return as_json(await self.contexts.context(request.path_params["id"], self.access.caller(request), at))

    async def _summaries(self, request: Request) -> Response:
        caller = self.access.caller(request)
        return as_json(await self.reading.summaries(request.path_params["id"], caller, _page(request)))

    async def _search(self, request: Request) -> Response:
        query = request.query_params.get("q", "").strip()
        if not query or len(query) > MOST_CHARACTERS:
            raise InvalidRequest(f"'q' must be 1 to {MOST_CHARACTERS} characters to search for.", param="q")
        found = await self.reading.search(request.path_params["id"], self.access.caller(request), query, _page(request))
        return as_json(found)

    async def _export(self, request: Request) -> Response:
        lines = await self.transfer.export(request.path_params["id"], self.access.caller(request))
        return StreamingResponse(lines, media_type=JSON_LINES)

    async def _import(self, request: Request) -> Response:
        caller = self.access.tenant(request)
        model, name = request.query_params.get("model", ""), request.query_params.get("name")
        if not model:
            raise InvalidRequest(
                "Missing required parameter: 'model'.", param="model", code="missing_required_parameter"
            )
        checked_model(model)
        body = await read_body(request.receive, request.headers.raw, self.max_body_bytes)
        body = await decoded_body(body, request.headers.raw, self.max_body_bytes)
        trusted = self.access.is_operator(request)
        brought = await self.transfer.bring_in(body, caller, model, conversation_name(name), trusted=trusted)
        return as_json(brought, 201)

    async def _forget(self, request: Request) -> Response:
        return as_json(await self.reading.forget(request.path_params["id"], self.access.caller(request)))


def _page(request: Request) -> Page:
    limit = _number(request, "limit", least=1, most=MOST_PER_PAGE)
    return Page(limit or PER_PAGE, request.query_params.get("cursor"))


def _number(request: Request, name: str, *, least: int, most: int) -> int | None:
    said = request.query_params.get(name)
    if said is None:
        return None
    if not (said.isascii() and said.isdigit() and len(said) < 12 and least <= int(said) <= most):
        raise InvalidRequest(f"'{name}' must be a whole number from {least} to {most}.", param=name)
    return int(said)
