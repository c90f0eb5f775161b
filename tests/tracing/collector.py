"""A collector of traces: a real HTTP server that reads OTLP, for a real exporter."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from gzip import decompress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from tests.support.waiting import wait_until

WAIT_SECONDS = 20
"""How long a busy machine may take to export."""
INTERNAL, SERVER, CLIENT = 1, 2, 3
"""Kinds of spans, as OTLP numbers them."""
FAILED = 2
"""The status of a failed span."""


@dataclass(frozen=True)
class Recorded:
    """A span as it was exported."""

    name: str
    kind: int
    trace: str
    id: str
    parent: str
    status: int
    seconds: float
    attributes: dict[str, Any]
    links: list[str]
    """The traces that it is linked to."""
    service: str
    text: str
    """All of it, as protobuf writes it for people."""


@dataclass
class Collector:
    """What was exported so far. ``is_silent`` makes it take requests and not answer them."""

    url: str = ""
    spans: list[Recorded] = field(default_factory=list)
    is_silent: bool = False
    asked: threading.Event = field(default_factory=threading.Event)
    freed: threading.Event = field(default_factory=threading.Event)

    def wait(self, is_wanted: Callable[[Recorded], bool]) -> Recorded:
        """Return the first span that is wanted, once it is there."""
        found: list[Recorded] = []

        def is_there() -> bool:
            found.extend(span for span in list(self.spans) if is_wanted(span))
            return bool(found)

        wait_until(is_there, WAIT_SECONDS)
        return found[0]

    def trace(self, trace: str) -> dict[str, Recorded]:
        """Return the spans of a request's trace by name, once the request has ended."""
        self.wait(lambda span: span.trace == trace and span.kind == SERVER)
        return {span.name: span for span in self.spans if span.trace == trace}


@contextmanager
def collecting() -> Iterator[Collector]:
    """A collector that runs as long as the ``with`` block."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            collector.asked.set()
            if collector.is_silent:
                collector.freed.wait(WAIT_SECONDS)
                self.close_connection = True
                return
            if self.headers.get("content-encoding") == "gzip":
                body = decompress(body)
            collector.spans += _read(ExportTraceServiceRequest.FromString(body))
            answer = ExportTraceServiceResponse().SerializeToString()
            self.send_response(200)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    collector.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield collector
    finally:
        collector.freed.set()
        server.shutdown()
        thread.join(WAIT_SECONDS)
        server.server_close()


def _read(request: ExportTraceServiceRequest) -> Iterator[Recorded]:
    for group in request.resource_spans:
        service = _values(group.resource.attributes)["service.name"]
        for scope in group.scope_spans:
            for span in scope.spans:
                yield Recorded(
                    span.name,
                    span.kind,
                    span.trace_id.hex(),
                    span.span_id.hex(),
                    span.parent_span_id.hex(),
                    span.status.code,
                    (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9,
                    _values(span.attributes),
                    [link.trace_id.hex() for link in span.links],
                    service,
                    str(span),
                )


def _values(attributes: Any) -> dict[str, Any]:
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in attributes}
