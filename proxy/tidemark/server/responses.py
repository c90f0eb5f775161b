"""Turns what an endpoint returns or raises into a response: a JSON value, or an error in OpenAI's envelope.

All endpoints but those of dialects use it; they answer with starlette's own requests and responses.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import Response

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.request import ErrorFormat
from tidemark.core.errors import TidemarkError
from tidemark.dialects.openai_errors import OPENAI_ERRORS
from tidemark.server.asgi import CLIENT_GONE, ClientGone
from tidemark.server.errors import error_lines, status_of

JSON_TYPE = "application/json"
Handler = Callable[[Request], Awaitable[Response]]
"""Answers one request of one path and method."""


def with_error_envelope(handler: Handler, errors: ErrorFormat = OPENAI_ERRORS) -> Handler:
    """Return a handler that answers with an error's envelope if the given one raises an error of Tidemark."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except TidemarkError as error:
            return error_response(error, errors)
        except ClientGone:
            return Response(status_code=CLIENT_GONE)  # nobody reads it, and it is no failure of Tidemark

    return answer


def error_response(error: TidemarkError, errors: ErrorFormat = OPENAI_ERRORS) -> Response:
    """Return an error as a response."""
    response = Response(errors.error(error), status_of(error), media_type=JSON_TYPE)
    response.raw_headers.extend(error_lines(error))
    return response


def to_json(value: JsonValue, status: int = 200) -> Response:
    """Return a value as a response.

    A lone surrogate, which clients make when they cut an emoji in two, can only be written escaped.
    """
    try:
        body = json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        body = json.dumps(value).encode()
    return Response(body, status, media_type=JSON_TYPE)
