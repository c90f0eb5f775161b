"""Opens child spans, marks failed ones, and carries the trace context in header lines.

``requests.py``, ``tracing.py`` and ``upstreams.py`` use it. No text of an error or a message gets into a span: a
failure is named by its code or its class.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from opentelemetry.context import Context
from opentelemetry.trace import (
    INVALID_SPAN,
    Link,
    Span,
    SpanKind,
    Status,
    StatusCode,
    Tracer,
    get_current_span,
    set_span_in_context,
)
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tidemark.core.errors import TidemarkError
from tidemark.core.trace_context import NAMES, traced_lines
from tidemark.tracing.conventions import ERROR_TYPE, Attributes

Lines = Sequence[tuple[bytes, bytes]]
_W3C = TraceContextTextMapPropagator()


class Spans:
    """Opens spans below the current one."""

    def __init__(self, tracer: Tracer) -> None:
        self.tracer = tracer

    @contextmanager
    def child(
        self, name: str, kind: SpanKind = SpanKind.INTERNAL, attributes: Attributes | None = None
    ) -> Iterator[Span]:
        """Open a child of the current span; if there is none, as for upkeep, nothing is recorded."""
        if not get_current_span().get_span_context().is_valid:
            yield INVALID_SPAN
            return
        with self._open(name, kind, attributes, None, ()) as span:
            yield span

    @contextmanager
    def linked_root(self, name: str, attributes: Attributes | None = None) -> Iterator[Span]:
        """Open the root span of a new trace, with a link to the span that asked for it."""
        asking = get_current_span().get_span_context()
        links = (Link(asking),) if asking.is_valid else ()
        with self._open(name, SpanKind.INTERNAL, attributes, Context(), links) as span:
            yield span

    @contextmanager
    def _open(
        self, name: str, kind: SpanKind, attributes: Attributes | None, context: Context | None, links: Sequence[Link]
    ) -> Iterator[Span]:
        with self.tracer.start_as_current_span(
            name,
            context=context,
            kind=kind,
            attributes=attributes,
            links=links,
            record_exception=False,  # its message may quote contents
            set_status_on_exception=False,
        ) as span:
            try:
                yield span
            except BaseException as error:  # noted and raised again, with cancellations
                mark_failed(span, failure_of(error))
                raise


def mark_failed(span: Span, failure: str) -> None:
    """Give a span the status of a failure, and its name."""
    span.set_attribute(ERROR_TYPE, failure)
    span.set_status(Status(StatusCode.ERROR))


def failure_of(error: BaseException) -> str:
    """Return the name of a failure: the code of an error of ours, the class of any other."""
    if isinstance(error, TidemarkError):
        return error.code
    return "cancelled" if isinstance(error, asyncio.CancelledError) else type(error).__name__


def parent_in(lines: Lines) -> Context:
    """Return the trace context that a request came with; an empty one if it has none, or a malformed one.

    :param lines: names in lower case
    """
    carrier: dict[str, str] = {}
    for name, value in traced_lines(lines)[1]:
        if name in NAMES:
            key, text = name.decode(), value.decode("latin-1").strip(" \t")
            carrier[key] = f"{carrier[key]},{text}" if key in carrier else text
    return _W3C.extract(carrier, Context())


def lines_below(span: Span, lines: Lines) -> list[tuple[bytes, bytes]]:
    """Return header lines whose trace context names ``span`` as the parent."""
    carrier: dict[str, str] = {}
    _W3C.inject(carrier, set_span_in_context(span))
    return [line for line in lines if line[0] not in NAMES] + _encoded(carrier)


def trace_id_of(span: Span) -> str:
    """Return the trace of a span, in 32 hexadecimal digits."""
    return f"{span.get_span_context().trace_id:032x}"


def _encoded(carrier: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in carrier.items()]
