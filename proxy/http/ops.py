"""The endpoints beside the road: health, metrics, models, and the stateless pair.

They are plain requests and responses, so starlette's own classes serve them.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from proxy.core.errors import StoreUnavailable, TidemarkError
from proxy.core.messages import JsonValue
from proxy.core.ports import Caller, ConversationStore
from proxy.http.asgi import read_body
from proxy.http.auth import PassthroughAuth
from proxy.http.errors import envelope, status_of
from proxy.http.stateless import Stateless

Handler = Callable[[Request], Awaitable[Response]]
RenderMetrics = Callable[[], tuple[bytes, str]]
"""The exposition and its content type."""


class ListsModels(Protocol):
    """Where the model list comes from."""

    async def models(self, caller: Caller) -> Mapping[str, JsonValue]:
        """The answer to ``GET /v1/models``.

        :raises UpstreamError: the upstream does not tell its models
        """
        ...


def ops_routes(
    *,
    store: ConversationStore,
    models: ListsModels,
    auth: PassthroughAuth,
    stateless: Stateless,
    metrics: RenderMetrics,
    max_body_bytes: int,
) -> list[BaseRoute]:
    """The routes; the paths are fixed by DESIGN.md, "Interface"."""

    async def liveliness(_: Request) -> Response:
        return _json({"status": "alive"})

    async def readiness(_: Request) -> Response:
        try:
            await store.ping()
        except StoreUnavailable as error:
            # Requests flow without the store, so a balancer must not take the worker out for it.
            return _json({"status": "ready", "store": "degraded", "detail": str(error)})
        return _json({"status": "ready", "store": "ok"})

    async def exposition(_: Request) -> Response:
        data, kind = metrics()
        return Response(data, media_type=None, headers={"content-type": kind})

    async def list_models(request: Request) -> Response:
        return _json(await models.models(auth.caller(request.headers.raw)))

    async def one_model(request: Request) -> Response:
        wanted = request.path_params["model"]
        listed = (await models.models(auth.caller(request.headers.raw)))["data"]
        for entry in listed if isinstance(listed, list) else ():
            if isinstance(entry, dict) and entry.get("id") == wanted:
                return _json(entry)
        body = {"message": f"The model {wanted!r} does not exist.", "type": "invalid_request_error"}
        return _json({"error": {**body, "param": "model", "code": "model_not_found"}}, status=404)

    async def count(request: Request) -> Response:
        body = await read_body(request.receive, request.headers.raw, max_body_bytes)
        return Response(await stateless.count(body), media_type="application/json")

    async def compact(request: Request) -> Response:
        body = await read_body(request.receive, request.headers.raw, max_body_bytes)
        caller = auth.caller(request.headers.raw)
        return Response(await stateless.compact(body, caller), media_type="application/json")

    return [
        Route("/health/liveliness", liveliness),
        Route("/health/liveness", liveliness),  # the usual spelling, which LiteLLM serves too
        Route("/health/readiness", readiness),
        Route("/metrics", exposition),
        Route("/v1/models", _told(list_models)),
        Route("/v1/models/{model:path}", _told(one_model)),
        Route("/tidemark/count", _told(count), methods=["POST"]),
        Route("/tidemark/compact", _told(compact), methods=["POST"]),
    ]


def _told(handler: Handler) -> Handler:
    """Errors of ours as OpenAI's envelope."""

    async def answered(request: Request) -> Response:
        try:
            return await handler(request)
        except TidemarkError as error:
            return Response(envelope(error), status_of(error), media_type="application/json")

    return answered


def _json(value: JsonValue, status: int = 200) -> Response:
    return Response(json.dumps(value, ensure_ascii=False), status, media_type="application/json")
