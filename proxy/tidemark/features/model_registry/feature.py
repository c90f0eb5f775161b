"""Plugs in the registry of models: ``/tidemark/models``, and ``tidemark models`` without a server.

Every client may read the registry, and the operator may change it; the command uses the same registry.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidemark.config import read_override
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.prefix import owner_of
from tidemark.core.ports import NO_CREDENTIAL, Caller
from tidemark.dialects.raw_json import decode_value, read_members
from tidemark.features.feature import Feature
from tidemark.features.model_registry.registry import ModelRegistry
from tidemark.server.encodings import read_plain_body
from tidemark.server.responses import to_json, with_error_envelope
from tidemark.worker.worker import Worker

MAX_BODY_BYTES = 65_536
Description = Mapping[str, JsonValue]
"""A JSON object that describes one model or all of them."""


class ModelRegistryFeature(Feature):
    """Shows and changes windows and thresholds of models."""

    def __init__(self, worker: Worker) -> None:
        self._auth, self._operator = worker.auth, worker.operator
        self._asks_for_keys = worker.settings.auth.mode == "keys"
        self.registry = ModelRegistry(
            store=worker.models,
            calibrations=worker.calibrations,
            live=worker.live,
            catalog=worker.catalog,
            upstream=worker.upstream,
            data=worker.model_data,
            read_field=read_override,
            clock=time.time,
        )

    def routes(self) -> Sequence[BaseRoute]:
        model = "/tidemark/models/{model:path}"
        return [
            Route("/tidemark/models", with_error_envelope(self._list), methods=["GET"]),
            Route(model, with_error_envelope(self._describe), methods=["GET"]),
            Route(model, with_error_envelope(self._change), methods=["PUT"]),
            Route(model, with_error_envelope(self._reset), methods=["DELETE"]),
        ]

    async def _list(self, request: Request) -> Response:
        return to_json(await self.registry.listed(*self._identify(request)))

    async def _describe(self, request: Request) -> Response:
        return to_json(await self.registry.described(request.path_params["model"], *self._identify(request)))

    async def _change(self, request: Request) -> Response:
        self._operator.require(request)
        body = await read_plain_body(request, MAX_BODY_BYTES)
        fields = {name: decode_value(raw, name) for name, raw in read_members(body).items()}
        caller, owner = self._identify(request)
        return to_json(await self.registry.change(request.path_params["model"], fields, caller, owner))

    async def _reset(self, request: Request) -> Response:
        self._operator.require(request)
        return to_json(await self.registry.reset(request.path_params["model"], *self._identify(request)))

    def _identify(self, request: Request) -> tuple[Caller, str | None]:
        """Return the caller, and the owner whose calibrations the caller sees (promise 8).

        The operator and an auditor have no owner and see the newest calibrations of all owners. The caller's key is
        sent to a server that is asked for its window; the admin token is never sent.
        """
        is_operator = self._operator.grants(request)
        is_operator_alone = is_operator and (self._operator.token is not None or self._asks_for_keys)
        if is_operator_alone or self._operator.is_auditor(request):
            return NO_CREDENTIAL, None
        caller = self._auth.caller(request.headers.raw)
        return caller, None if is_operator else owner_of(caller.fingerprint)
