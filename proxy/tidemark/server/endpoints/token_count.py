"""The endpoint that counts the input of a dialect's requests, such as ``POST /v1/responses/input_tokens``."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.request import Dialect
from tidemark.core.frozen import frozen
from tidemark.core.ports import Authenticator
from tidemark.pipeline.plain_replies import read_whole
from tidemark.pipeline.token_count import InputTokenCounting
from tidemark.server.allowed_models import check_body, check_query
from tidemark.server.encodings import read_plain_body
from tidemark.server.headers import returned_lines
from tidemark.server.responses import JSON_TYPE, with_error_envelope

MAX_COUNT_BYTES = 1_048_576
"""The longest answer of a provider that counts, which has one number."""


@frozen
class TokenCountEndpoint:
    """Serves one path in one dialect."""

    dialect: Dialect
    path: str
    """Below the base URL, the client's and the provider's: ``/responses/input_tokens``."""
    answer: Callable[[int], Mapping[str, JsonValue]]
    """Returns the dialect's answer for a number of tokens."""
    counting: InputTokenCounting
    auth: Authenticator
    max_body_bytes: int
    asks_any: bool = False
    """Whether upstreams that are no provider's own address are asked, too."""

    def route(self) -> BaseRoute:
        return Route("/v1" + self.path, with_error_envelope(self._count, self.dialect), methods=["POST"])

    async def _count(self, request: Request) -> Response:
        caller = self.auth.caller(request.headers.raw)
        check_query(request.url.query, caller)
        body = await read_plain_body(request, self.max_body_bytes)
        check_body(body, caller)
        path = f"{self.path}?{request.url.query}" if request.url.query else self.path
        counted = await self.counting.count(self.dialect, body, caller, path, asks_any=self.asks_any)
        if isinstance(counted, int):
            return Response(json.dumps(self.answer(counted)), media_type=JSON_TYPE)
        data = await read_whole(counted, MAX_COUNT_BYTES)
        response = Response(data, counted.status)
        response.raw_headers.extend(returned_lines(counted.headers))
        return response
