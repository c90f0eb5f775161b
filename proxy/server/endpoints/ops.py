"""The endpoints beside the road: health, metrics, models, and the stateless pair.

They are plain requests and responses, so starlette's own classes serve them.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from proxy.core.conversation.messages import JsonValue
from proxy.core.errors import ModelNotFound, StoreError, TidemarkError
from proxy.core.ports import Authenticator, Caller, ConversationStore
from proxy.pipeline.offline import OfflineService
from proxy.server.asgi import ClientGone, read_body
from proxy.server.encodings import decoded_body
from proxy.server.errors import envelope, error_lines, status_of

CLIENT_GONE = 499
"""nginx's number for a client that left before the status."""
Handler = Callable[[Request], Awaitable[Response]]
RenderMetrics = Callable[[], tuple[bytes, str]]
"""The exposition and its content type."""


class ModelLister(Protocol):
    """Where the model list comes from."""

    async def models(self, caller: Caller) -> Mapping[str, JsonValue]:
        """The answer to ``GET /v1/models``.

        :raises UpstreamError: the upstream does not tell its models
        """
        ...


@dataclass(frozen=True, slots=True)
class OperationsEndpoints:
    """The endpoints; docs/wire.md lists the paths."""

    store: ConversationStore
    models: ModelLister
    auth: Authenticator
    stateless: OfflineService
    metrics: RenderMetrics
    resting: Callable[[], int]
    """How many summarizers are left alone now, because they failed (``core/breaker.py``)."""
    max_body_bytes: int

    def routes(self) -> list[BaseRoute]:
        """What is served beside the road."""
        return [
            Route("/health/liveliness", _liveliness),
            Route("/health/liveness", _liveliness),  # the usual spelling, which LiteLLM serves too
            Route("/health/readiness", self._readiness),
            Route("/metrics", self._exposition),
            Route("/v1/models", told(self._list_models)),
            Route("/v1/models/{model:path}", told(self._one_model)),
            Route("/tidemark/count", told(self._count), methods=["POST"]),
            Route("/tidemark/compact", told(self._compact), methods=["POST"]),
        ]

    async def _readiness(self, _: Request) -> Response:
        resting = self.resting()
        summarizers: dict[str, JsonValue] = {"summarizers": "resting", "resting": resting} if resting else {}
        try:
            await self.store.ping()
        except StoreError as error:
            # Requests flow without the store, so a balancer must not take the worker out for it.
            return as_json({"status": "ready", "store": "degraded", "detail": str(error)} | summarizers)
        return as_json({"status": "ready", "store": "ok"} | summarizers)

    async def _exposition(self, _: Request) -> Response:
        data, kind = self.metrics()
        return Response(data, headers={"content-type": kind})

    async def _list_models(self, request: Request) -> Response:
        return as_json(await self.models.models(self.auth.caller(request.headers.raw)))

    async def _one_model(self, request: Request) -> Response:
        wanted = request.path_params["model"]
        listed = (await self.models.models(self.auth.caller(request.headers.raw)))["data"]
        for entry in listed if isinstance(listed, list) else ():
            if isinstance(entry, dict) and entry.get("id") == wanted:
                return as_json(entry)
        raise ModelNotFound(f"The model {wanted!r} does not exist.")

    async def _count(self, request: Request) -> Response:
        body = await read_body(request.receive, request.headers.raw, self.max_body_bytes)
        body = await decoded_body(body, request.headers.raw, self.max_body_bytes)
        return Response(await self.stateless.count(body), media_type="application/json")

    async def _compact(self, request: Request) -> Response:
        body = await read_body(request.receive, request.headers.raw, self.max_body_bytes)
        body = await decoded_body(body, request.headers.raw, self.max_body_bytes)
        caller = self.auth.caller(request.headers.raw)
        return Response(await self.stateless.compact(body, caller), media_type="application/json")


async def _liveliness(_: Request) -> Response:
    return as_json({"status": "alive"})


def told(handler: Handler) -> Handler:
    """Errors of ours as OpenAI's envelope."""

    async def answered(request: Request) -> Response:
        try:
            return await handler(request)
        except TidemarkError as error:
            response = Response(envelope(error), status_of(error), media_type="application/json")
            response.raw_headers.extend(error_lines(error))
            return response
        except ClientGone:
            return Response(status_code=CLIENT_GONE)  # nobody reads it; a failure of ours it is not

    return answered


def as_json(value: JsonValue, status: int = 200) -> Response:
    """A value as a response; half a character, which clients cut emoji into, can only be written escaped."""
    try:
        body = json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        body = json.dumps(value).encode()
    return Response(body, status, media_type="application/json")
