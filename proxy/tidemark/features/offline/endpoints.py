"""``POST /tidemark/count`` and ``POST /tidemark/compact``: they work on one request and store nothing."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidemark.core.frozen import frozen
from tidemark.core.ports import Authenticator
from tidemark.features.offline.service import OfflineService
from tidemark.server.encodings import read_plain_body
from tidemark.server.responses import JSON_TYPE, with_error_envelope


@frozen
class OfflineEndpoints:
    """Serves both paths."""

    service: OfflineService
    auth: Authenticator
    max_body_bytes: int

    def routes(self) -> list[BaseRoute]:
        return [
            Route("/tidemark/count", with_error_envelope(self._count), methods=["POST"]),
            Route("/tidemark/compact", with_error_envelope(self._compact), methods=["POST"]),
        ]

    async def _count(self, request: Request) -> Response:
        body = await read_plain_body(request, self.max_body_bytes)
        return Response(await self.service.count(body), media_type=JSON_TYPE)

    async def _compact(self, request: Request) -> Response:
        body = await read_plain_body(request, self.max_body_bytes)
        caller = self.auth.caller(request.headers.raw)
        return Response(await self.service.compact(body, caller), media_type=JSON_TYPE)
