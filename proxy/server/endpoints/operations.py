"""``/health``, ``/metrics`` and ``/v1/models``: what monitoring and clients ask beside chat requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from proxy.core.conversation.messages import JsonValue
from proxy.core.errors import ModelNotFound, StoreError
from proxy.core.ports import Authenticator, Caller, ConversationStore
from proxy.server.responses import to_json, with_error_envelope

RenderMetrics = Callable[[], tuple[bytes, str]]
"""Returns the metrics as text, and their content type."""


class ModelLister(Protocol):
    """Lists the models that a caller may use."""

    async def models(self, caller: Caller) -> Mapping[str, JsonValue]:
        """Return the answer to ``GET /v1/models``.

        :raises UpstreamError: the upstream did not list its models
        """
        ...


@dataclass(frozen=True, slots=True)
class OperationsEndpoints:
    """Serves health checks, metrics and the list of models."""

    store: ConversationStore
    models: ModelLister
    auth: Authenticator
    metrics: RenderMetrics
    count_resting: Callable[[], int]
    """Returns how many summarizers are not asked now, because they failed (``core/breaker.py``)."""

    def routes(self) -> list[BaseRoute]:
        """Return a route for each path."""
        return [
            Route("/", _reachable, methods=["HEAD"]),
            Route("/v1", _reachable, methods=["HEAD"]),
            Route("/health/liveliness", _liveliness),
            Route("/health/liveness", _liveliness),  # the usual spelling, which LiteLLM serves too
            Route("/health/readiness", self._readiness),
            Route("/metrics", self._exposition),
            Route("/v1/models", with_error_envelope(self._list_models)),
            Route("/v1/models/{model:path}", with_error_envelope(self._describe_model)),
        ]

    async def _readiness(self, _: Request) -> Response:
        resting = self.count_resting()
        summarizers: dict[str, JsonValue] = {"summarizers": "resting", "resting": resting} if resting else {}
        try:
            await self.store.ping()
        except StoreError as error:
            # Requests work without the store, so a load balancer must not remove the worker for it.
            return to_json({"status": "ready", "store": "degraded", "detail": str(error)} | summarizers)
        return to_json({"status": "ready", "store": "ok"} | summarizers)

    async def _exposition(self, _: Request) -> Response:
        data, content_type = self.metrics()
        return Response(data, headers={"content-type": content_type})

    async def _list_models(self, request: Request) -> Response:
        return to_json(await self.models.models(self.auth.caller(request.headers.raw)))

    async def _describe_model(self, request: Request) -> Response:
        name = request.path_params["model"]
        entries = (await self.models.models(self.auth.caller(request.headers.raw)))["data"]
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("id") == name:
                return to_json(entry)
        raise ModelNotFound(f"The model {name!r} does not exist.")


async def _reachable(_: Request) -> Response:
    """Answer ``HEAD`` of a base URL, with which Claude Code asks whether anybody is there."""
    return Response()


async def _liveliness(_: Request) -> Response:
    return to_json({"status": "alive"})
