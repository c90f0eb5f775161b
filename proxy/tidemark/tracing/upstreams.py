"""Puts a span around each call to an upstream, which lasts until its reply has ended.

``app/application.py`` puts it around the upstream. The upstream gets the span's own id as the parent in
``traceparent``.
"""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator
from contextvars import ContextVar
from dataclasses import replace
from typing import Any, Self

from opentelemetry.context import attach, detach
from opentelemetry.trace import Span, SpanKind, set_span_in_context

from tidemark.core.conversation.request import Dialect
from tidemark.core.ports import Caller, Route, TextRequest, Upload, Upstream, UpstreamReply, members_left_out
from tidemark.core.report import Usage
from tidemark.tracing.conventions import (
    CACHED_TOKENS,
    CHAT,
    INPUT_TOKENS,
    METHOD,
    OPERATIONS,
    OUTPUT_TOKENS,
    RESPONSE_MODEL,
    STATUS,
    method_of,
    route_attributes,
)
from tidemark.tracing.spans import Spans, failure_of, lines_below, mark_failed, trace_id_of

MAX_LOOKED_AT = 16_384
"""The bytes at the beginning of a reply in which its model is looked for."""
_MODEL = re.compile(rb'[{,]\s*"model"\s*:\s*"([^"\\\x00-\x1f]{1,200})"')
"""In a text of the model the quotes would be escaped, so that no text can match."""


class CallSpan:
    """The span of one call. It stays open until the request's end, which knows the counts, and keeps its own end.

    :param waits: whether a request ends it
    """

    def __init__(self, span: Span, *, waits: bool) -> None:
        self.span = span
        self._waits = waits
        self._ended: int | None = None
        self._is_failed = False

    def fail(self, failure: str) -> None:
        """Note why the call failed, unless it has ended; only the first cause counts."""
        if self._ended is None and not self._is_failed:
            self._is_failed = True
            mark_failed(self.span, failure)

    def note_end(self) -> None:
        """Note that the call ends now; only the first end counts."""
        if self._ended is None:
            self._ended = time.time_ns()
            if not self._waits:
                self.span.end(self._ended)

    def note_usage(self, usage: Usage) -> None:
        counts = {
            INPUT_TOKENS: usage.input_tokens,
            CACHED_TOKENS: usage.cached_tokens,
            OUTPUT_TOKENS: usage.output_tokens,
        }
        self.span.set_attributes({name: count for name, count in counts.items() if count is not None})

    def close(self) -> None:
        """End the span, at the end that was noted."""
        self.note_end()
        self.span.end(self._ended)


class RequestCalls:
    """The calls of one request."""

    def __init__(self) -> None:
        self._calls: list[CallSpan] = []
        self.is_over = False
        """Whether the request has ended; what goes on in the background ends its own spans."""

    def begin(self, span: Span) -> CallSpan:
        call = CallSpan(span, waits=True)
        self._calls.append(call)
        return call

    def note_usage(self, usage: Usage) -> None:
        """Add the counts to the last call, which is the one that was answered."""
        if self._calls:
            self._calls[-1].note_usage(usage)

    def close(self) -> None:
        """End the spans of all calls."""
        self.is_over = True
        for call in self._calls:
            call.close()


CALLS: ContextVar[RequestCalls | None] = ContextVar("tidemark_upstream_calls", default=None)
"""The calls of the request that runs; ``requests.py`` closes them."""


class TracedUpstream:
    """Makes a span of each call. It takes the places of methods of an ``Upstream``."""

    def __init__(self, spans: Spans, upstream: Upstream) -> None:
        self._spans = spans
        self._send, self._forward, self._complete = upstream.send, upstream.forward, upstream.complete

    async def send(self, route: Route, body: bytes, caller: Caller, *, dialect: Dialect, stream: bool) -> UpstreamReply:
        call = self._begin(f"{CHAT} {route.upstream_model}", route, CHAT)
        call.span.set_attributes({"tidemark.dialect": dialect.name, "tidemark.stream": stream})
        return await _carried(call, self._send, route, body, below(call.span, caller), dialect=dialect, stream=stream)

    async def forward(
        self, route: Route, method: str, path: str, body: bytes | Upload, caller: Caller
    ) -> UpstreamReply:
        operation = OPERATIONS.get(path.partition("?")[0])
        name = method_of(method) if operation is None else f"{operation} {route.upstream_model}"
        call = self._begin(name, route, operation)
        call.span.set_attribute(METHOD, method_of(method))
        return await _carried(call, self._forward, route, method, path, body, below(call.span, caller))

    async def complete(self, route: Route, request: TextRequest, caller: Caller) -> str:
        attributes = {**route_attributes(route, CHAT), "tidemark.purpose": "summary"}
        with self._spans.child(f"{CHAT} {route.upstream_model}", SpanKind.CLIENT, attributes) as span:
            return await self._complete(route, request, below(span, caller))

    def _begin(self, name: str, route: Route, operation: str | None) -> CallSpan:
        attributes = route_attributes(route, operation)
        span = self._spans.tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes)
        calls = CALLS.get()
        return CallSpan(span, waits=False) if calls is None or calls.is_over else calls.begin(span)


class TracedReply:
    """A reply whose end ends the span of its call."""

    def __init__(self, reply: UpstreamReply, call: CallSpan) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self.left_out = members_left_out(reply)
        self._reply = reply
        self._call = call
        self._pieces: AsyncIterator[bytes] | None = None
        self._beginning: bytes | None = b""
        """What was looked at and had no model yet; None once nothing more is looked for."""

    def body(self) -> AsyncIterator[bytes]:
        self._pieces = self._reply.body()
        return self

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        if self._pieces is None:
            raise StopAsyncIteration
        try:
            piece = await anext(self._pieces)
        except StopAsyncIteration:
            self._call.note_end()
            raise
        except BaseException as error:  # noted and raised again, with cancellations
            self._call.fail(failure_of(error))
            self._call.note_end()
            raise
        if self._beginning is not None:
            self._look_at(self._beginning + piece)
        return piece

    async def close(self) -> None:
        """Close the reply; if its body had begun and not ended, the call was cancelled."""
        if self._pieces is not None:
            self._call.fail("cancelled")
        self._call.note_end()
        await self._reply.close()

    def _look_at(self, beginning: bytes) -> None:
        """Look for the name of the model that answers."""
        found = _MODEL.search(beginning)
        if found is not None:
            self._call.span.set_attribute(RESPONSE_MODEL, found[1].decode("utf-8", "replace"))
        self._beginning = None if found is not None or len(beginning) > MAX_LOOKED_AT else beginning


def below(span: Span, caller: Caller) -> Caller:
    """Return a caller whose trace context names ``span`` as the parent; the same one if there is no span."""
    if not span.get_span_context().is_valid:
        return caller
    return replace(caller, headers=lines_below(span, caller.headers), trace_id=trace_id_of(span))


async def _carried(call: CallSpan, ask: Any, *arguments: Any, **options: Any) -> UpstreamReply:
    """Ask an upstream within a call's span, and return its reply with the span on it."""
    token = attach(set_span_in_context(call.span))
    try:
        reply: UpstreamReply = await ask(*arguments, **options)
    except BaseException as error:  # noted and raised again, with cancellations
        call.fail(failure_of(error))
        call.note_end()
        raise
    finally:
        detach(token)
    call.span.set_attribute(STATUS, reply.status)
    if reply.status >= 400:
        call.fail(str(reply.status))
    return TracedReply(reply, call)
