"""Answers clients that only ask what a path can do: ``OPTIONS``, and an offer of WebSocket.

``app/application.py`` asks it before any route; requests with ``POST`` never pass here. A WebSocket handshake is
answered with 426: its client (Codex) then goes on over HTTP at once, while 404, 405 and 501 make it wait and try again,
and 400 makes it give up. Source: RFC 9110, sections 7.8, 9.3.7 and 15.5.22.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from starlette.routing import BaseRoute, Match, Route
from starlette.types import Scope, Send

from tidemark.core.conversation.request import ErrorFormat
from tidemark.core.errors import UpgradeRequired
from tidemark.dialects.openai_errors import OPENAI_ERRORS
from tidemark.server.asgi import Response

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
"""All methods that are served, in the order in which ``Allow`` lists them."""
_UPGRADE = "Tidemark speaks HTTP/1.1 at {path} and no WebSocket. Send the request as HTTP."


def offers_websocket(scope: Scope) -> bool:
    """Tell whether a ``GET`` is the handshake of a WebSocket (RFC 6455, section 4.1)."""
    if scope["http_version"] == "1.0":  # RFC 9110, section 7.8: there is no offer in HTTP/1.0
        return False
    return any(name == b"upgrade" and b"websocket" in value.lower() for name, value in scope["headers"])


async def refuse_websocket(scope: Scope, send: Send, errors: ErrorFormat) -> None:
    """Answer a handshake with 426 and an error in the format of its path."""
    await Response(send, errors).send_error(UpgradeRequired(_UPGRADE.format(path=scope["path"])))


def allowed_methods(scope: Scope, routes: Iterable[BaseRoute]) -> tuple[str, ...]:
    """Return the methods that a path is served with, ``OPTIONS`` among them; empty if no route has the path.

    Routes that take every method say nothing about a path. The path ``*`` stands for the server.
    """
    if scope["path"] == "*":
        return METHODS
    served: set[str] = set()
    for route in routes:
        if isinstance(route, Route) and route.methods and route.matches(scope)[0] is not Match.NONE:
            served |= route.methods
    return tuple(method for method in METHODS if method in served | {"OPTIONS"}) if served else ()


async def send_allowed(send: Send, methods: Iterable[str]) -> None:
    """Answer ``OPTIONS`` with the methods of a path and without a body."""
    response = Response(send)
    await response.start(204, [(b"allow", ", ".join(methods).encode())])
    await response.end()


def errors_of(path: str, dialects: Mapping[str, ErrorFormat]) -> ErrorFormat:
    """Return the error format of a path: that of the dialect at or above it, else OpenAI's.

    :param dialects: the dialects by path
    """
    at = path
    while at:
        if at in dialects:
            return dialects[at]
        at = at.rpartition("/")[0]
    return OPENAI_ERRORS
