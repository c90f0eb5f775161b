"""Finds the endpoint of a request: frequent ones by their path alone, all others by starlette's routes.

It is the outermost layer of the application but for traces. ``app/application.py`` builds it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tidemark.core.conversation.request import ErrorFormat
from tidemark.core.errors import InvalidRequest, NotAuthenticated, TidemarkError
from tidemark.core.ports import Authenticator
from tidemark.server import asgi
from tidemark.server.admission import Admission
from tidemark.server.browsers import BrowserAccess
from tidemark.server.capabilities import allowed_methods, errors_of, offers_websocket, refuse_websocket, send_allowed
from tidemark.server.errors import status_of
from tidemark.server.names import with_whole_names

MODEL_REQUESTS = "/v1/"
"""Below it every ``POST`` is work for an upstream, and is admitted within the limits."""
DOUBLED, SINGLE = b"/v1/v1/", "/v1"
"""The beginning of a doubled path, and what is too much of it."""
Around = Callable[[ASGIApp, Scope, Receive, Send], Awaitable[None]]
"""Serves a request by an application, with something around it: the span of a trace."""
_NOT_FOUND = "Tidemark has no {method} {path}. It serves POST {dialects} and GET /v1/models."


class Dispatcher(Starlette):
    """Serves frequent requests directly at their endpoint, and all others through starlette's routes.

    It decides before any endpoint whether a web page may send a request, so that no endpoint can omit that.
    """

    def __init__(
        self,
        endpoints: Mapping[str, ASGIApp],
        browsers: BrowserAccess,
        formats: Mapping[str, ErrorFormat],
        admission: Admission,
        auth: Authenticator,
        *,
        around: Around | None = None,
        **options: Any,
    ) -> None:
        handlers = {404: _missing, 405: _missing, 500: _failed}
        super().__init__(exception_handlers=handlers, **options)
        self.router.redirect_slashes = (
            False  # behind TLS a redirect would send the next request with its key to http://
        )
        self._endpoints = endpoints
        """The endpoints of frequent requests, by path; all of them are POST requests."""
        self.formats = formats
        """The error format of each dialect, by its path."""
        self._browsers = browsers
        self._admission = admission
        self._auth = auth
        self._around = around

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("raw_path", b"")[: len(DOUBLED)] == DOUBLED:
            _undouble(scope)
        if self._around is None:
            await self._admit(scope, receive, send)
        else:
            await self._around(self._admit, scope, receive, send)

    def _admit(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and not self._browsers.is_plain(scope["headers"]):
            errors = errors_of(scope["path"], self.formats)
            return self._browsers.serve(scope, receive, send, self._serve, errors)
        return self._serve(scope, receive, send)

    def _serve(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if b"%" in scope.get("raw_path", b""):
            scope = with_whole_names(_as_written(scope))
        if scope.get("query_string") and scope["path"].startswith(MODEL_REQUESTS):
            try:
                self._auth.check_query(scope["query_string"])
            except NotAuthenticated as error:
                return asgi.Response(send, errors_of(scope["path"], self.formats)).send_error(error)
        method = scope["method"] if scope["type"] == "http" else ""
        if method == "POST":
            endpoint = self._endpoints.get(scope["path"])
            if endpoint is not None:
                return self._admission.serve(endpoint, scope, receive, send)
            if scope["path"].startswith(MODEL_REQUESTS):
                return self._admission.serve(super().__call__, scope, receive, send)
        elif method == "GET" and offers_websocket(scope):
            return refuse_websocket(scope, send, errors_of(scope["path"], self.formats))
        elif method == "OPTIONS" and (methods := allowed_methods(scope, self.routes)):
            return send_allowed(send, methods)
        return super().__call__(scope, receive, send)


def _as_written(scope: Scope) -> Scope:
    """Return a request with its path as it was written, if its beginning has a percent sign.

    The beginning is the first two pieces; further ones may be names. Reverse proxies allow and refuse paths as they
    are written, and ``/%6Detrics`` must be no other way to ``/metrics``.
    """
    raw: bytes = scope["raw_path"]
    if b"%" in b"/".join(raw.split(b"/", 3)[:3]):
        return {**scope, "path": raw.decode("latin-1")}
    return scope


def _undouble(scope: Scope) -> None:
    """Serve ``/v1/v1/...`` as ``/v1/...``: some SDKs add ``/v1`` to a base URL that ends in it, and some people do.

    Carried as it came, a model's request would pass the pipeline by wherever the upstream's base URL has no ``/v1``.
    """
    scope["raw_path"] = scope["raw_path"].removeprefix(SINGLE.encode())
    scope["path"] = scope["path"].removeprefix(SINGLE)


async def _missing(request: Request, error: Exception) -> Response:
    """Answer a request whose path or method is not served, in OpenAI's envelope."""
    dialects = ", ".join(request.app.formats)
    message = _NOT_FOUND.format(method=request.method, path=request.url.path, dialects=dialects)
    missing = InvalidRequest(message, code="unknown_url")
    status = error.status_code if isinstance(error, HTTPException) else 404
    methods = allowed_methods(request.scope, request.app.routes) if status == 405 else ()
    headers = {"allow": ", ".join(methods)} if methods else None
    body = errors_of(request.url.path, request.app.formats).error(missing)
    return Response(body, status, headers, media_type="application/json")


async def _failed(request: Request, _: Exception) -> Response:
    """Answer a request whose endpoint failed; the server logs the failure, and closes the connection."""
    error = TidemarkError("Tidemark failed to serve this request; its log says why.")
    body = errors_of(request.url.path, request.app.formats).error(error)
    return Response(body, status_of(error), {"connection": "close"}, media_type="application/json")
