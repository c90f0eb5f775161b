"""Plugs in stored conversations: ``/tidemark/conversations``.

Stored conversations are listed, shown, searched, exported, imported and deleted. A tenant reaches its own with its
credential; the admin token reaches all (docs/history.md).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from tidemark.core.errors import InvalidRequest
from tidemark.dialects.members import check_names, checked_model, missing, wrong_type
from tidemark.dialects.raw_json import decode_value, read_members
from tidemark.features.conversations.access import ArchiveAccess
from tidemark.features.conversations.context import ContextView
from tidemark.features.conversations.conversation_json import (
    context_snapshot,
    conversation_list,
    conversation_page,
    deleted_conversation,
    found_conversations,
    imported_conversation,
    search_page,
    summary_page,
)
from tidemark.features.conversations.conversation_reader import ConversationReader
from tidemark.features.conversations.finding import ConversationFilter, ConversationFinder
from tidemark.features.conversations.pages import ConversationList
from tidemark.features.conversations.paging import number_of, page_of
from tidemark.features.conversations.search_index import MessageSearch
from tidemark.features.conversations.standing_summaries import StandingSummaries
from tidemark.features.conversations.transfer import Transfer
from tidemark.features.feature import Feature
from tidemark.pipeline.history_reader import HistoryReader
from tidemark.server.access import OPERATORS
from tidemark.server.encodings import read_plain_body
from tidemark.server.headers import conversation_name
from tidemark.server.names import NamedRoute
from tidemark.server.responses import to_json, with_error_envelope
from tidemark.store.bills import RedisBills
from tidemark.worker.worker import Worker

MAX_QUERY_CHARACTERS = 1000
"""The longest text that a search takes."""
JSON_LINES = "application/jsonl"
MAX_SEARCH_BYTES = 65_536
"""The largest body of ``POST /tidemark/conversations/search``."""
SEARCH_MEMBERS = ("query", "model", "state", "client", "dialect")
"""Members that the body of ``POST /tidemark/conversations/search`` may have."""


class ConversationsFeature(Feature):
    """Lists, finds, shows, exports, imports and deletes stored conversations.

    ``{id}`` is Tidemark's id or the client's own name; a conversation whose name has a slash is reached by its id.
    """

    def __init__(self, worker: Worker) -> None:
        store, heads, formats, dialect = worker.store, worker.request_heads, worker.formats, worker.chat
        rights, summaries = ArchiveAccess(store, worker.upstream), standing_summaries(worker)
        self.reading = ConversationReader(
            access=rights,
            store=store,
            bills=RedisBills(store.ask),
            standing=summaries,
            index=MessageSearch(),
            deletion_hooks=worker.deletion_hooks,
            dialect=dialect,
            formats=formats,
            clock=time.time,
        )
        self.finding = ConversationFinder(store, summaries, formats)
        self.transfer = Transfer(
            access=rights,
            store=store,
            heads=heads,
            upstream=worker.upstream,
            leases=worker.leases,
            counter=worker.counter,
            dialect=dialect,
            formats=formats,
            clock=time.time,
            quota=store.usage,
        )
        self._worker = worker
        self._rights = rights
        self._summaries = summaries

    @cached_property
    def contexts(self) -> ContextView:
        """What models saw; made late, since it needs the whole pipeline."""
        worker = self._worker
        return ContextView(
            access=self._rights,
            store=worker.store,
            heads=worker.request_heads,
            summaries=self._summaries,
            pipeline=worker.pipeline,
            fitter=worker.fitter,
            dialect=worker.chat,
            reader=HistoryReader(worker.store, worker.formats),
        )

    def routes(self) -> Sequence[BaseRoute]:
        conversations, conversation = "/tidemark/conversations", "/tidemark/conversations/{id}"
        return [
            Route(conversations, with_error_envelope(self._list), methods=["GET"]),
            Route(f"{conversations}/import", with_error_envelope(self._import), methods=["POST"]),
            Route(f"{conversations}/search", with_error_envelope(self._find), methods=["POST"]),
            NamedRoute(conversation, with_error_envelope(self._describe), methods=["GET"]),
            NamedRoute(conversation, with_error_envelope(self._delete), methods=["DELETE"]),
            NamedRoute(f"{conversation}/context", with_error_envelope(self._context), methods=["GET"]),
            NamedRoute(f"{conversation}/summaries", with_error_envelope(self._list_summaries), methods=["GET"]),
            NamedRoute(f"{conversation}/search", with_error_envelope(self._search), methods=["GET"]),
            NamedRoute(f"{conversation}/results/{{handle}}", with_error_envelope(self._original), methods=["GET"]),
            NamedRoute(f"{conversation}/export", with_error_envelope(self._export), methods=["GET"]),
        ]

    async def _list(self, request: Request) -> Response:
        """Return a page; with a filter it may be empty though older conversations were not looked at yet."""
        caller, part = self._worker.access.caller(request), page_of(request)
        client, dialect = (request.query_params.get(name, "") for name in ("client", "dialect"))
        if not client and not dialect:
            return to_json(conversation_list(await self.reading.conversations(caller, part)))
        page = await self.finding.find(caller, part, ConversationFilter(client=client, dialect=dialect))
        records = tuple(row.record for row in page.conversations)
        return to_json(conversation_list(ConversationList(records, page.unreadable, page.older_cursor)))

    async def _find(self, request: Request) -> Response:
        body = await read_plain_body(request, MAX_SEARCH_BYTES)
        conditions, caller = (
            _conditions(read_members(body) if body.strip() else {}),
            self._worker.access.caller(request),
        )
        return to_json(found_conversations(await self.finding.find(caller, page_of(request), conditions)))

    async def _describe(self, request: Request) -> Response:
        caller = self._worker.access.caller(request)
        return to_json(
            conversation_page(await self.reading.conversation(request.path_params["id"], caller, page_of(request)))
        )

    async def _context(self, request: Request) -> Response:
        at = number_of(request, "at", least=1, most=10**9)
        caller = self._worker.access.caller(request)
        return to_json(context_snapshot(await self.contexts.context(request.path_params["id"], caller, at)))

    async def _list_summaries(self, request: Request) -> Response:
        caller = self._worker.access.caller(request)
        return to_json(summary_page(await self.reading.summaries(request.path_params["id"], caller, page_of(request))))

    async def _search(self, request: Request) -> Response:
        query = request.query_params.get("q", "").strip()
        if not query or len(query) > MAX_QUERY_CHARACTERS:
            raise InvalidRequest(f"'q' must be 1 to {MAX_QUERY_CHARACTERS} characters to search for.", param="q")
        caller = self._worker.access.caller(request)
        return to_json(
            search_page(await self.reading.search(request.path_params["id"], caller, query, page_of(request)))
        )

    async def _original(self, request: Request) -> Response:
        caller, handle = self._worker.access.caller(request), request.path_params["handle"]
        text = await self.reading.original(request.path_params["id"], caller, handle)
        return Response(text.encode(), media_type="text/plain; charset=utf-8")

    async def _export(self, request: Request) -> Response:
        lines = await self.transfer.export_lines(request.path_params["id"], self._worker.access.caller(request))
        return StreamingResponse(lines, media_type=JSON_LINES)

    async def _import(self, request: Request) -> Response:
        caller = self._worker.access.caller(request)
        model, name = request.query_params.get("model", ""), request.query_params.get("name")
        if not model:
            raise missing("model")
        checked_model(model)
        body = await read_plain_body(request, self._worker.max_body_bytes)
        imported = await self.transfer.import_lines(
            body, caller or OPERATORS, model, conversation_name(name), trusted=caller is None
        )
        return to_json(imported_conversation(imported), 201)

    async def _delete(self, request: Request) -> Response:
        caller = self._worker.access.caller(request)
        return to_json(deleted_conversation(await self.reading.delete(request.path_params["id"], caller)))


def standing_summaries(worker: Worker) -> StandingSummaries:
    """Return what finds the summaries that conversations use."""
    return StandingSummaries(
        store=worker.store, upstream=worker.upstream, catalog=worker.catalog, choose=worker.summarizers.of
    )


def _conditions(fields: Mapping[str, bytes]) -> ConversationFilter:
    """Read the body of ``POST /tidemark/conversations/search``.

    :raises InvalidRequest: a member is unknown, of another type or too long
    """
    check_names(fields, SEARCH_MEMBERS)
    texts: dict[str, str] = {}
    for name, raw in fields.items():
        value = decode_value(raw, name)
        if not isinstance(value, str):
            raise wrong_type(name, "a string")
        if len(value) > MAX_QUERY_CHARACTERS:
            raise InvalidRequest(f"'{name}' must be at most {MAX_QUERY_CHARACTERS} characters.", param=name)
        texts[name] = value.strip()
    return ConversationFilter(words=texts.pop("query", ""), **texts)
