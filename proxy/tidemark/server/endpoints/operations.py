"""``/health``, ``/metrics`` and ``HEAD`` of base URLs: what monitoring and clients ask beside model requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import StoreError
from tidemark.core.frozen import frozen
from tidemark.core.ports import ConversationStore
from tidemark.server.responses import to_json

RenderMetrics = Callable[[], tuple[bytes, str]]
"""Returns the metrics as text, and their content type."""


@frozen
class OperationsEndpoints:
    """Serves health checks and metrics."""

    store: ConversationStore
    metrics: RenderMetrics
    count_resting: Callable[[], int]
    """Returns how many summarizers are not asked now, because they failed (``core/breaker.py``)."""
    is_full: Callable[[], bool]
    """Returns whether this worker refuses model requests now, because it has as many as ``limits`` allows."""

    eviction: Callable[[], str]
    """Returns why the store may lose conversations, and the mend; empty if it loses none (``store/watch.py``)."""
    replacement: Callable[[], str]
    """Returns that the store was emptied or replaced a while ago; empty if it was not."""
    set_aside: Callable[[], Sequence[str]] = tuple
    """Returns the names of the folders that keep damaged files of the embedded store."""

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/", _reachable, methods=["HEAD"]),
            Route("/v1", _reachable, methods=["HEAD"]),
            Route("/health/liveliness", _liveliness),
            Route("/health/liveness", _liveliness),  # the usual spelling, which LiteLLM serves too
            Route("/health/readiness", self._readiness),
            Route("/metrics", self._exposition),
        ]

    async def _readiness(self, _: Request) -> Response:
        resting = self.count_resting()
        states: dict[str, JsonValue] = {"summarizers": "resting", "resting": resting} if resting else {}
        if self.is_full():
            states["load"] = "full"
        if eviction := self.eviction():
            states["eviction"] = eviction
        if folders := self.set_aside():
            states["damaged_store_files"] = list(folders)
        if replacement := self.replacement():
            states["replaced"] = replacement
        try:
            await self.store.ping()
        except StoreError as error:
            # Requests work without the store, so a load balancer must not remove the worker for it.
            return to_json({"status": "ready", "store": "degraded", "detail": str(error)} | states)
        return to_json({"status": "ready", "store": "ok"} | states)

    async def _exposition(self, _: Request) -> Response:
        data, content_type = self.metrics()
        return Response(data, headers={"content-type": content_type})


async def _reachable(_: Request) -> Response:
    """Answer ``HEAD`` of a base URL, with which Claude Code asks whether anybody is there."""
    return Response()


async def _liveliness(_: Request) -> Response:
    return to_json({"status": "alive"})
