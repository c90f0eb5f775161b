"""Records the traces of one worker process and exports them, by OTLP over HTTP.

``starting.py`` makes it if a collector is configured. OpenTelemetry's SDK reads its own variables: sampler, limits,
headers, certificates. A collector that is slow or gone costs requests nothing, because a thread exports and a full
queue drops spans.

The lines that the exporter logs are bounded, once for each process: a collector that is gone would fill the log with a
line every few seconds.

Steps of a request have spans: identity, plan, summary and the store; ``app/application.py`` names the methods when the
parts are built. Such a span takes the place of a method of one instance, so that the classes have no trace of it, and
requests do no more where no traces are recorded.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind
from starlette.routing import BaseRoute

from tidemark import __version__
from tidemark.compaction.compactor import CompactionRun, Compactor
from tidemark.compaction.immediate import ImmediateCompaction
from tidemark.compaction.order import CompactionOrder, NotSummarized, Trigger
from tidemark.core.ports import Upstream
from tidemark.tracing.conventions import CONVERSATION, Attributes
from tidemark.tracing.requests import RequestTracing, note_event
from tidemark.tracing.spans import Spans
from tidemark.tracing.upstreams import TracedUpstream

SERVICE = "tidemark"
CLOSE_SECONDS = 2.0
"""The time that the end of the process waits for spans to be exported."""
LOGGERS = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal")
"""What says that spans were not exported, and that the queue is full."""
PAUSE_SECONDS = 60.0
_Method = Callable[..., Awaitable[Any]]
"""A method of an instance, or what takes its place."""


class Tracing:
    """Traces requests and parts. Its state is the exporter's queue, which OpenTelemetry bounds (``OTEL_BSP_*``)."""

    def __init__(self) -> None:
        bound_lines()
        self._provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self._exporter = _Exporter()
        self._provider.add_span_processor(BatchSpanProcessor(self._exporter))
        self._spans = Spans(self._provider.get_tracer(SERVICE, __version__))
        self.steps = StepTracing(self._spans)
        self.note_event = note_event

    def trace_upstream(self, upstream: Upstream) -> None:
        """Let each call to an upstream have a span."""
        traced = TracedUpstream(self._spans, upstream)
        put(upstream.send, traced.send)
        put(upstream.forward, traced.forward)
        put(upstream.complete, traced.complete)

    def requests(self, routes: Iterable[BaseRoute], direct: Iterable[str]) -> RequestTracing:
        """Return the layer that makes a span of each request.

        :param direct: paths that are served without a look at the routes
        """
        return RequestTracing(self._spans, routes, direct)

    async def aclose(self) -> None:
        """Export what waits. A collector that does not answer holds the end up for ``CLOSE_SECONDS`` at most.

        What has not been exported by then is given up, so that no thread goes on with retries.
        """
        loop, closed = asyncio.get_running_loop(), asyncio.Event()

        def close() -> None:
            self._provider.shutdown()
            if not loop.is_closed():
                loop.call_soon_threadsafe(closed.set)

        # A daemon, unlike the threads of an executor, is not waited for when the interpreter ends.
        threading.Thread(target=close, name="tidemark-traces", daemon=True).start()
        try:
            await asyncio.wait_for(closed.wait(), CLOSE_SECONDS)
        except TimeoutError:
            self._exporter.shutdown()


class _Exporter(OTLPSpanExporter):
    """Exports spans by HTTP. It may be closed twice: by ``aclose``, which ends the retries, and by its processor."""

    def shutdown(self) -> None:
        """End the wait before a retry, and refuse spans from now on."""
        if not self._shutdown:
            super().shutdown()  # type: ignore[no-untyped-call]


def _resource() -> Resource:
    """Return what the spans are of: the service that ``OTEL_SERVICE_NAME`` names, else ``tidemark``."""
    named = os.environ.get("OTEL_SERVICE_NAME") or "service.name=" in os.environ.get("OTEL_RESOURCE_ATTRIBUTES", "")
    attributes = {"service.version": __version__}
    return Resource.create(attributes if named else {**attributes, "service.name": SERVICE})


class LineBound(logging.Filter):
    """Lets one line a minute through, which counts those before it that were left out."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._timer = timer
        self._quiet_until = float("-inf")
        self._left_out_count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._timer()
        if now < self._quiet_until:
            self._left_out_count += 1
            return False
        self._quiet_until = now + PAUSE_SECONDS
        if self._left_out_count:
            record.msg, record.args = f"{record.getMessage()} ({self._left_out_count} more lines were left out)", ()
            self._left_out_count = 0
        return True


def bound_lines() -> None:
    """Bound the lines of the exporter, unless they are bounded already."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(bound, LineBound) for bound in logger.filters):
            logger.addFilter(LineBound())


class StepTracing:
    """Puts spans around the methods of instances."""

    def __init__(self, spans: Spans) -> None:
        self._spans = spans

    def trace_step(
        self, call: _Method, name: str, kind: SpanKind = SpanKind.INTERNAL, attributes: Attributes | None = None
    ) -> None:
        """Let each call of a method be a child span."""

        async def traced(*arguments: Any, **options: Any) -> Any:
            with self._spans.child(name, kind, attributes):
                return await call(*arguments, **options)

        put(call, traced)

    def trace_store(self, *calls: _Method, part: str = "") -> None:
        """Let each of these calls to the store be a child span.

        :param part: goes before their names
        """
        for call in calls:
            operation = part + call.__name__
            attributes = {"db.system.name": "redis", "db.operation.name": operation}
            self.trace_step(call, f"store {operation}", SpanKind.CLIENT, attributes)

    def trace_summaries(self, immediate: ImmediateCompaction, compactor: Compactor) -> None:
        """Let each summary that a request waits for be a child span, and each prepared one the root of a trace."""
        compact, make = immediate.compact, compactor.make

        async def compact_in_span(order: CompactionOrder, **options: Any) -> Any:
            with self._spans.child("summary", attributes=_order_attributes(order)) as span:
                return _noted(span, await compact(order, **options))

        async def make_in_span(run: CompactionRun, **options: Any) -> Any:
            if run.trigger is Trigger.REQUEST:
                return await make(run, **options)
            attributes = _order_attributes(run.order)
            if run.trigger is Trigger.PREPARATION:
                with self._spans.linked_root("preparation", attributes) as span:
                    return _noted(span, await make(run, **options))
            with self._spans.child("summary", attributes=attributes) as span:
                return _noted(span, await make(run, **options))

        put(compact, compact_in_span)
        put(make, make_in_span)


def _noted(span: Span, result: object) -> object:
    """Note on a span whether there is a summary, and return it."""
    span.set_attribute("tidemark.summary.made", not isinstance(result, NotSummarized) and result is not None)
    return result


def _order_attributes(order: CompactionOrder) -> Attributes:
    attributes: dict[str, str | int] = {
        "tidemark.summary.messages": order.plan.covered,
        "tidemark.strategy": order.profile.policy.strategy,
    }
    if order.conversation:
        attributes[CONVERSATION] = order.conversation
    return attributes


def put(method: _Method, traced: _Method) -> None:
    """Put a function in the place of a method of its instance."""
    setattr(method.__self__, method.__name__, traced)  # type: ignore[attr-defined] # mypy gives a method no instance
