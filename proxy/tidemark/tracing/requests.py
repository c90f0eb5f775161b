"""Makes one span of each request: the outermost layer of the application.

``app/application.py`` serves through it if traces are recorded. The request goes on with the span's own
``traceparent``, so the log line and everything that is only carried name the same trace.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextvars import ContextVar

from opentelemetry.context import attach, detach
from opentelemetry.trace import Span, SpanKind, set_span_in_context
from opentelemetry.util.types import AttributeValue
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tidemark.core.events import Event, Outcome, RequestServed
from tidemark.tracing.conventions import CONVERSATION, METHOD, REQUEST_MODEL, ROUTE, STATUS, method_of
from tidemark.tracing.spans import Spans, failure_of, lines_below, mark_failed, parent_in
from tidemark.tracing.upstreams import CALLS, RequestCalls

UNTRACED = frozenset({"/health/liveliness", "/health/liveness", "/health/readiness", "/metrics"})
"""Paths that machines ask every few seconds."""
FAILURES: frozenset[Outcome] = frozenset({"incomplete", "disconnected", "error"})
"""Outcomes that are failures whatever the status, which may have gone out before."""


class _RequestSpan:
    """The span of a request, and what is learned of the request until its end."""

    def __init__(self, span: Span) -> None:
        self.span = span
        self.calls = RequestCalls()
        self.status = 0
        self.failure: str | None = None

    def note(self, served: RequestServed) -> None:
        """Add what is known of a request that was served."""
        attributes: dict[str, AttributeValue] = {"tidemark.outcome": served.outcome, "tidemark.stream": served.stream}
        if served.model:
            attributes[REQUEST_MODEL] = served.model
        if served.first_byte_seconds is not None:
            attributes["tidemark.first_byte_seconds"] = served.first_byte_seconds
        if (report := served.report) is not None:
            attributes["tidemark.action"] = report.action
            attributes["tidemark.tokens_before"] = report.tokens_before
            attributes["tidemark.tokens_after"] = report.tokens_after
            attributes["tidemark.summarized"] = report.summarized
            attributes["tidemark.degraded"] = report.degraded
            if report.conversation:
                attributes[CONVERSATION] = report.conversation
            if report.strategy:
                attributes["tidemark.strategy"] = report.strategy
        self.span.set_attributes(attributes)
        if served.outcome in FAILURES:
            self.failure = served.code or served.outcome
        self.calls.note_usage(served.usage)

    def end(self) -> None:
        """End the span and those of its calls."""
        self.calls.close()
        if self.status:
            self.span.set_attribute(STATUS, self.status)
        failure = self.failure or (str(self.status) if self.status >= 500 else None)
        if failure is not None:
            mark_failed(self.span, failure)
        self.span.end()


_CURRENT: ContextVar[_RequestSpan | None] = ContextVar("tidemark_request_span", default=None)


class RequestTracing:
    """Serves requests within spans.

    :param routes: name the spans of requests that no path alone names
    """

    def __init__(self, spans: Spans, routes: Iterable[BaseRoute], direct: Iterable[str]) -> None:
        self._spans = spans
        self._routes = [route for route in routes if isinstance(route, Route)]
        self._direct = frozenset(direct)

    async def serve(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in UNTRACED:
            await app(scope, receive, send)
            return
        method = method_of(scope["method"])
        attributes = {METHOD: method, "url.path": scope["path"], "url.scheme": scope.get("scheme", "http")}
        parent = parent_in(scope["headers"])
        span = self._spans.tracer.start_span(method, parent, kind=SpanKind.SERVER, attributes=attributes)
        request = _RequestSpan(span)
        scope = {**scope, "headers": lines_below(span, scope["headers"])}

        async def noting(message: Message) -> None:
            if message["type"] == "http.response.start":
                request.status = message["status"]
            await send(message)

        tokens = CALLS.set(request.calls), _CURRENT.set(request), attach(set_span_in_context(span))
        try:
            await app(scope, receive, noting)
        except BaseException as error:  # noted and raised again; a cancellation ends a request, too
            request.failure = request.failure or failure_of(error)
            raise
        finally:
            CALLS.reset(tokens[0])
            _CURRENT.reset(tokens[1])
            detach(tokens[2])
            route = self._route_of(scope)
            if route is not None:
                span.set_attribute(ROUTE, route)
                span.update_name(f"{method} {route}")
            request.end()

    def _route_of(self, scope: Scope) -> str | None:
        """Return the template of a request's path, without what clients put into it."""
        path, endpoint = scope["path"], scope.get("endpoint")
        if path in self._direct:
            return str(path)
        if endpoint is None:
            return None
        routes = (route for route in self._routes if route.endpoint is endpoint or route.app is endpoint)
        return next((route.path for route in routes if route.path_regex.match(path)), None)


def note_event(event: Event) -> None:
    """Add to a request's span what the endpoint reports at its end."""
    if isinstance(event, RequestServed) and (request := _CURRENT.get()) is not None:
        request.note(event)
