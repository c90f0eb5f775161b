"""Records the traces of one worker process and exports them, by OTLP over HTTP.

``starting.py`` makes it if a collector is configured. OpenTelemetry's SDK reads its own variables: sampler, limits,
headers, certificates. A collector that is slow or gone costs requests nothing, because a thread exports and a full
queue drops spans.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterable

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from starlette.routing import BaseRoute

from tidemark import __version__
from tidemark.core.ports import Upstream
from tidemark.tracing.log_bounds import bound_lines
from tidemark.tracing.requests import RequestTracing, note_event
from tidemark.tracing.spans import Spans
from tidemark.tracing.steps import StepTracing, put
from tidemark.tracing.upstreams import TracedUpstream

SERVICE = "tidemark"
CLOSE_SECONDS = 2.0
"""The time that the end of the process waits for spans to be exported."""


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
