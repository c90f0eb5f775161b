"""Plugs in the keys of the application: ``/tidemark/keys`` for the operator, and the table that requests go by."""

from __future__ import annotations

import time
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidemark.core.conversation.messages import JsonValue
from tidemark.dialects.raw_json import decode_value, read_members
from tidemark.features.feature import Feature
from tidemark.features.keys.fields import read_fields, read_grace
from tidemark.features.keys.service import ApplicationKeys, Described
from tidemark.features.keys.store import RedisKeys
from tidemark.server.encodings import read_plain_body
from tidemark.server.guarding import announce_of
from tidemark.server.responses import to_json, with_error_envelope
from tidemark.worker.worker import Worker

KEYS = "/tidemark/keys"
MAX_BODY_BYTES = 65_536
NO_STORE = (b"cache-control", b"no-store")


class KeysFeature(Feature):
    """Manages the keys of clients; ``auth.mode: keys`` asks for it."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self.keys = ApplicationKeys(
            RedisKeys(worker.store.ask, worker.codec),
            worker.live,
            worker.keys,
            model_names=[entry.name for entry in worker.settings.model_list],
            clock=time.time,
            are_asked_for=worker.settings.auth.mode == "keys",
        )

    def routes(self) -> Sequence[BaseRoute]:
        key = KEYS + "/{id}"
        return [
            Route(path, with_error_envelope(handler), methods=[method])
            for path, method, handler in (
                (KEYS, "GET", self._list),
                (KEYS, "POST", self._create),
                (key, "GET", self._show),
                (key, "PATCH", self._change),
                (key, "DELETE", self._revoke),
                (f"{key}/rotate", "POST", self._rotate),
            )
        ]

    async def _list(self, request: Request) -> Response:
        self._worker.operator.require(request)
        return to_json(await self.keys.listed())

    async def _show(self, request: Request) -> Response:
        self._worker.operator.require(request)
        return to_json(await self.keys.shown(request.path_params["id"]))

    async def _create(self, request: Request) -> Response:
        fields = await self._fields(request)
        return _with_secret(await self.keys.create(read_fields(fields), announce_of(request)), 201)

    async def _change(self, request: Request) -> Response:
        fields = await self._fields(request)
        changed = await self.keys.change(request.path_params["id"], read_fields(fields), announce_of(request))
        return to_json(changed)

    async def _rotate(self, request: Request) -> Response:
        fields = await self._fields(request)
        hours = read_grace(fields)
        return _with_secret(await self.keys.rotate(request.path_params["id"], hours, announce_of(request)), 200)

    async def _revoke(self, request: Request) -> Response:
        self._worker.operator.require(request)
        return to_json(await self.keys.revoke(request.path_params["id"], announce_of(request)))

    async def _fields(self, request: Request) -> dict[str, JsonValue]:
        self._worker.operator.require(request)
        body = await read_plain_body(request, MAX_BODY_BYTES)
        members = read_members(body) if body.strip() else {}
        return {name: decode_value(raw, name) for name, raw in members.items()}


def _with_secret(described: Described, status: int) -> Response:
    response = to_json(described, status)
    response.raw_headers.append(NO_STORE)
    return response
