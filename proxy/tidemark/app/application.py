"""Builds the ASGI application of one worker process, and starts and stops its parts.

``cli/main.py`` passes the settings, the store's address and the secret.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tidemark.app.endpoints import Endpoints
from tidemark.app.stored_parts import Engine, StoredParts
from tidemark.app.tracing import trace_parts
from tidemark.config import Settings
from tidemark.core.conversation.request import Dialect, ErrorFormat
from tidemark.core.errors import InvalidRequest, TidemarkError
from tidemark.core.events import Event, Listener, TurnStored
from tidemark.features.live_events.delivery import EventDelivery
from tidemark.features.live_events.publisher import LiveEventPublisher
from tidemark.features.memory_flush.flushing import Flushing
from tidemark.features.traffic.counting import TrafficCounter
from tidemark.pipeline.relay import Relay
from tidemark.server.admission import Admission
from tidemark.server.browsers import BrowserAccess
from tidemark.server.capabilities import allowed_methods, errors_of, offers_websocket, refuse_websocket, send_allowed
from tidemark.server.errors import status_of
from tidemark.store.codec import Codec
from tidemark.store.schema import CompressionSwitch, SchemaWatch
from tidemark.store.watch import StoreWatch
from tidemark.telemetry.logging import FactLog
from tidemark.telemetry.metrics import Metrics
from tidemark.telemetry.state import WorkerState, count_pool_threads
from tidemark.tracing import start_tracing

if TYPE_CHECKING:
    from tidemark.tracing.requests import RequestTracing

MODEL_REQUESTS = "/v1/"
"""Below it every ``POST`` is work for an upstream, and is admitted within the limits."""
DOUBLED, SINGLE = b"/v1/v1/", "/v1"
"""The beginning of a doubled path, and what is too much of it."""
_NOT_FOUND = "Tidemark has no {method} {path}. It serves POST {dialects} and GET /v1/models."


def create_app(
    settings: Settings,
    *,
    store_url: str,
    secret: bytes,
    warn: Callable[[str], None],
    shared_metrics: Path | None = None,
    codec: Codec | None = None,
    dialects: Mapping[str, Dialect] | None = None,
) -> Starlette:
    """Build the application of one worker process.

    :param store_url: the store's address, with ``embedded`` resolved
    :param secret: the key of the HMAC that distinguishes tenants, the same in all workers and replicas
    :param shared_metrics: the folder that several workers write their counts to
    :param codec: packs every stored value; None for the usual one
    :param dialects: the dialects by path, in place of the usual ones
    """
    metrics, log = Metrics(shared_metrics), FactLog()
    emit = _both(log, metrics)
    tracing = start_tracing(warn)
    if tracing is not None:
        emit = _both(emit, tracing.note_event)
    live_events = LiveEventPublisher()
    emit_live = _both(emit, live_events)
    stored = StoredParts(settings, store_url, warn, emit_live, codec=codec, dialects=dialects)
    live_events.publishers.append(stored.live_events.publish)
    delivery = EventDelivery(settings, store_url, emit, stored.codec)
    if delivery.enabled:
        live_events.publishers.append(delivery.publish)
    stored.store.listing.on_used = live_events.note_updated
    traffic = TrafficCounter(stored.traffic, time.time, metrics.hand_over, metrics.state.add_store_time)
    metrics.count_traffic = traffic.add
    flushing = Flushing(settings, store_url, emit, stored.codec, stored.store)
    stored.deletion_hooks.append(flushing)  # also while it is off, because entries may remain from when it was on
    engine = Engine(stored, emit_live, flushing.outbox if flushing.enabled else None)
    emits_stored = log.includes(TurnStored)  # the metrics do not count turns
    relay = Relay(stored.store, stored.parts.counter, emit, time.perf_counter, emits_stored=emits_stored)
    watch = StoreWatch(stored.store, emit, warn)
    endpoints = Endpoints(
        stored,
        engine,
        relay,
        secret=secret,
        metrics=metrics.render,
        settle_traffic=traffic.settle,
        emit=emit,
        watch=watch,
    )

    metrics.state.read = lambda: WorkerState(
        relay.streams,
        engine.preparation.running(),
        engine.writer.resting(),
        stored.store.is_well,
        endpoints.admission.requests,
        endpoints.admission.waiting,
        len(asyncio.all_tasks()),
        count_pool_threads(),
    )

    stores = (stored.store, flushing.store, delivery.store)
    schema = SchemaWatch([store.check_schema for store in stores], warn, _compression(settings, stored).note)

    endings: list[Callable[[], Awaitable[None]]] = [
        relay.settle,
        engine.preparation.aclose,
        engine.recaller.aclose,
        flushing.aclose,
        traffic.aclose,
        live_events.aclose,
        delivery.aclose,
        watch.aclose,
        schema.aclose,
        stored.aclose,
    ]
    """In the order in which the parts end."""
    if tracing is not None:
        trace_parts(tracing, stored, engine)
        endings.append(tracing.aclose)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await schema.start()
        watch.start()
        await stored.live.start()
        if flushing.enabled:
            flushing.start(work=settings.memory_flush.worker)
        delivery.start()
        metrics.state.start()
        stored.parts.upstream.warm()  # last, because the import takes seconds of CPU
        yield
        await endpoints.live_events.aclose()
        metrics.hand_over()
        metrics.state.end()
        for close in endings:
            await close()

    app = (_Application if tracing is None else _TracedApplication)(
        endpoints.direct,
        BrowserAccess(settings.server.host, settings.server.allowed_origins, settings.server.allowed_hosts, warn),
        endpoints.formats,
        endpoints.admission,
        routes=endpoints.routes(),
        lifespan=lifespan,
        exception_handlers={404: _missing, 405: _missing, 500: _failed},
    )
    app.router.redirect_slashes = False  # behind TLS a redirect would send the next request with its key to http://
    if tracing is not None and isinstance(app, _TracedApplication):
        app.tracing = tracing.requests(app.routes, endpoints.direct)
    return app


def _compression(settings: Settings, stored: StoredParts) -> CompressionSwitch:
    """Return what switches compression on, as the configuration says; an embedded store has only these workers."""
    mode, is_embedded = settings.store.compression, str(settings.store.url) == "embedded"
    raises = mode == "zstd" or (mode == "auto" and is_embedded)
    return CompressionSwitch(
        lambda enabled: stored.codec.compress_messages(enabled=enabled and mode != "none"),
        stored.store.raise_schema if raises else None,
    )


class _Application(Starlette):
    """Serves frequent requests directly at their endpoint, and all others through starlette's routes.

    It decides before any endpoint whether a web page may send a request, so that no endpoint can omit that.
    """

    def __init__(
        self,
        endpoints: Mapping[str, ASGIApp],
        browsers: BrowserAccess,
        formats: Mapping[str, ErrorFormat],
        admission: Admission,
        **options: Any,
    ) -> None:
        super().__init__(**options)
        self._endpoints = endpoints
        """The endpoints of frequent requests, by path; all of them are POST requests."""
        self.formats = formats
        """The error format of each dialect, by its path."""
        self._browsers = browsers
        self._admission = admission

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("raw_path", b"")[: len(DOUBLED)] == DOUBLED:
            _undouble(scope)
        if scope["type"] == "http" and not self._browsers.is_plain(scope["headers"]):
            errors = errors_of(scope["path"], self.formats)
            await self._browsers.serve(scope, receive, send, self._serve, errors)
        else:
            await self._serve(scope, receive, send)

    def _serve(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if b"%" in scope.get("raw_path", b""):
            scope = _as_written(scope)
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


class _TracedApplication(_Application):
    """Makes a span of each request (``tidemark/tracing``)."""

    tracing: RequestTracing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope.get("raw_path", b"")[: len(DOUBLED)] == DOUBLED:
            _undouble(scope)
        await self.tracing.serve(super().__call__, scope, receive, send)


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


def _both(first: Listener, second: Listener) -> Listener:
    def emit(event: Event) -> None:
        first(event)
        second(event)

    return emit
