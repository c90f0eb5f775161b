"""Plugs in the log of requests: ``/tidemark/requests``, and the console's page.

The endpoint lists the newest requests, refused and failed ones too, for the operator and auditors: it has no text.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.events import Listener
from tidemark.features.conversations.paging import page_of
from tidemark.features.feature import Feature
from tidemark.features.request_log.facts import facts_json
from tidemark.features.request_log.reader import RequestConditions, RequestLogReader
from tidemark.features.request_log.store import RedisRequestLog
from tidemark.features.request_log.writer import RequestLogWriter
from tidemark.server.responses import to_json, with_error_envelope
from tidemark.worker.worker import Worker

FILTERS = ("model", "tenant", "kind", "status", "conversation")
"""The conditions that are texts, by their names in an address."""


class RequestLogFeature(Feature):
    """Notes each request, and shows them."""

    def __init__(self, worker: Worker) -> None:
        most = worker.settings.request_log.entries
        store = RedisRequestLog(worker.store.ask, worker.codec, most, worker.lifetimes.longest)
        self._operator = worker.operator
        self._writer = RequestLogWriter(store, most, time.time) if most else None
        self.reader = RequestLogReader(store, self._settle)

    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/tidemark/requests", with_error_envelope(self._list), methods=["GET"])]

    def listeners(self) -> Sequence[Listener]:
        """Return what notes the requests; nothing if none are to be stored."""
        return (self._writer.on_event,) if self._writer is not None else ()

    async def aclose(self) -> None:
        if self._writer is not None:
            await self._writer.aclose()

    async def _settle(self) -> None:
        if self._writer is not None:
            await self._writer.settle()

    async def _list(self, request: Request) -> Response:
        self._operator.require_reader(request)
        wanted, query = page_of(request), request.query_params
        page = await self.reader.page(wanted.limit, wanted.cursor, conditions_of(query))
        data: list[JsonValue] = [dict(facts_json(entry.id, entry.owner, entry.facts)) for entry in page.requests]
        return to_json({"object": "list", "data": data, "next_cursor": page.next_cursor})


def conditions_of(query: Mapping[str, str]) -> RequestConditions:
    """Return the conditions that an address states."""
    texts = {name: query.get(name, "").strip() for name in FILTERS}
    return RequestConditions(**texts, warnings=query.get("warnings") == "true")
