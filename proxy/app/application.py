"""Connects the parts to routes, which makes an ASGI application.

``cli/main.py`` passes the settings, the store's address and the secret.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route as HttpRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from proxy.app.flushing import Flushing
from proxy.app.parts import Engine, StoredParts
from proxy.archive import ArchiveAccess, ContextView, ConversationReader, StandingSummaries, Transfer
from proxy.archive.search_index import MessageSearch
from proxy.archive.summarize import ManualCompaction
from proxy.config import Settings
from proxy.core.conversation.request import Dialect
from proxy.core.errors import InvalidRequest, TidemarkError
from proxy.core.events import Event, Listener, TurnStored
from proxy.core.ports import Authenticator
from proxy.dialects.openai_errors import OPENAI_ERRORS
from proxy.pipeline.command_text import mark_of
from proxy.pipeline.commands import Commands
from proxy.pipeline.pipeline import Pipeline
from proxy.pipeline.relay import Relay
from proxy.pipeline.stored_history import StoredHistory, TurnRules
from proxy.server.access import ConversationAccess
from proxy.server.auth import MAX_CACHED_CALLERS, PassthroughAuth
from proxy.server.browsers import BrowserAccess
from proxy.server.endpoints.conversations import ConversationEndpoints
from proxy.server.endpoints.dialect import DialectEndpoint, EndpointLimits
from proxy.server.endpoints.offline import OfflineEndpoints
from proxy.server.endpoints.operations import OperationsEndpoints
from proxy.server.endpoints.registry import RegistryEndpoints
from proxy.server.errors import status_of
from proxy.server.operator import OperatorAccess
from proxy.store.codec import Codec
from proxy.store.leases import RedisLeases
from proxy.telemetry.logging import FactLog
from proxy.telemetry.metrics import Metrics

CHAT = "/v1/chat/completions"
_NOT_FOUND = "Tidemark has no {method} {path}. It serves POST /v1/chat/completions and GET /v1/models."


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
    :param dialects: further dialects, by the path that each is served at
    """
    metrics, log = Metrics(shared_metrics), FactLog()
    emit = _both(log, metrics)
    stored = StoredParts(settings, store_url, warn, emit, codec=codec, dialects=(dialects or {}).values())
    parts, store = stored.parts, stored.store
    flushing = Flushing(settings, store_url, emit, stored.codec, store)
    flush = flushing.outbox if flushing.enabled else None
    stored.deletion_hooks.append(flushing)  # also while it is off, because entries may remain from when it was on
    engine = Engine(stored, emit, flush)
    pipeline = _pipeline(settings, stored, engine, secret, emit)
    emits_stored = log.includes(TurnStored)  # the metrics do not count turns
    relay = Relay(store, parts.counter, emit, time.perf_counter, emits_stored=emits_stored)
    auth: Authenticator = PassthroughAuth(
        secret,
        identity_headers=settings.auth.identity_headers,
        forward_cookies=settings.server.forward_cookies,
    )
    token = settings.secrets.admin_token
    access = OperatorAccess(settings.server.host, token.reveal() if token else None)
    conversations = ConversationAccess(auth, access)
    max_body = settings.server.max_body_mb * 1024 * 1024
    limits = EndpointLimits(max_body, settings.server.keepalive_seconds, settings.server.notice_seconds)
    served: dict[str, Dialect] = {CHAT: parts.chat, **(dialects or {})}
    endpoints: dict[str, ASGIApp] = {
        path: DialectEndpoint(
            dialect,
            pipeline=pipeline,
            relay=relay,
            access=conversations,
            limits=limits,
            emit=emit,
            timer=time.perf_counter,
        )
        for path, dialect in served.items()
    }

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        parts.upstream.warm()
        await stored.live.start()
        if flushing.enabled:
            flushing.start(work=settings.memory_flush.worker)
        yield
        metrics.hand_over()
        await relay.settle()
        await engine.preparation.aclose()
        await flushing.aclose()
        await stored.aclose()

    routes = [
        *(HttpRoute(path, endpoint, methods=["POST"]) for path, endpoint in endpoints.items()),
        *OperationsEndpoints(
            store=store,
            models=parts.catalog,
            auth=auth,
            metrics=metrics.render,
            count_resting=engine.writer.resting,
        ).routes(),
        *OfflineEndpoints(parts.offline_service(), auth, max_body).routes(),
        *RegistryEndpoints(stored.registry, auth, access).routes(),
        *_archived(stored, pipeline, engine, conversations).routes(),
    ]
    handlers = {404: _missing, 405: _missing, 500: _failed}
    browsers = BrowserAccess(settings.server.host, settings.server.allowed_origins, warn)
    app = _Application(endpoints, browsers, routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False  # behind TLS a redirect would send the next request with its key to http://
    return app


class _Application(Starlette):
    """Serves chat requests directly at their endpoint, and all others through starlette's routes.

    It decides before any endpoint whether a web page may send a request, so that no endpoint can omit that.
    """

    def __init__(self, endpoints: Mapping[str, ASGIApp], browsers: BrowserAccess, **options: Any) -> None:
        super().__init__(**options)
        self._endpoints = endpoints
        self._browsers = browsers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._browsers.is_plain(scope["headers"]):
            await self._browsers.serve(scope, receive, send, self._serve)
        else:
            await self._serve(scope, receive, send)

    def _serve(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and scope["method"] == "POST":
            endpoint = self._endpoints.get(scope["path"])
            if endpoint is not None:
                return endpoint(scope, receive, send)
        return super().__call__(scope, receive, send)


def _marks(secret: bytes) -> Callable[[bytes], str]:
    """Return the function for the mark of a caller's answers, cached because every request calls it."""
    return lru_cache(MAX_CACHED_CALLERS)(partial(mark_of, secret))


def _pipeline(settings: Settings, stored: StoredParts, engine: Engine, secret: bytes, emit: Listener) -> Pipeline:
    """Return the pipeline with its steps."""
    parts, store = stored.parts, stored.store
    history = StoredHistory(
        upstream=parts.upstream,
        store=store,
        turns=store.turns,
        heads=stored.by_hand,
        leases=RedisLeases(store.ask),
        rules=TurnRules(settings.history.on_conflict, settings.history.wait_seconds),
        full=store.usage.full,
    )
    commands = Commands(fitter=engine.fitter, store=store, mark_for=_marks(secret), emit=emit, clock=time.time)
    return Pipeline(
        history=history,
        commands=commands,
        catalog=parts.catalog,
        identifier=engine.identifier,
        fitter=engine.fitter,
        upstream=parts.upstream,
        calibrations=stored.calibrations,
        emit=emit,
        clock=time.time,
        timer=time.perf_counter,
    )


def _archived(
    stored: StoredParts, pipeline: Pipeline, engine: Engine, access: ConversationAccess
) -> ConversationEndpoints:
    parts, store, heads = stored.parts, stored.store, stored.by_hand
    rights = ArchiveAccess(store, parts.upstream)
    summaries = StandingSummaries(
        store=store, upstream=parts.upstream, catalog=parts.catalog, choose=parts.summarizer_for
    )
    return ConversationEndpoints(
        reading=ConversationReader(
            access=rights,
            store=store,
            summaries=summaries,
            search=MessageSearch(),
            deletion_hooks=stored.deletion_hooks,
            dialect=parts.chat,
            clock=time.time,
        ),
        contexts=ContextView(
            access=rights,
            store=store,
            heads=heads,
            summaries=summaries,
            pipeline=pipeline,
            fitter=engine.fitter,
            dialect=parts.chat,
        ),
        transfer=Transfer(
            access=rights,
            store=store,
            heads=heads,
            upstream=parts.upstream,
            leases=RedisLeases(store.ask),
            counter=parts.counter,
            dialect=parts.chat,
            clock=time.time,
            quota=store.usage,
        ),
        manual=ManualCompaction(
            access=rights,
            pipeline=pipeline,
            fitter=engine.fitter,
            compactor=engine.compactor,
            upstream=parts.upstream,
            store=store,
            heads=heads,
            dialect=parts.chat,
        ),
        access=access,
        max_body_bytes=parts.settings.server.max_body_mb * 1024 * 1024,
    )


async def _missing(request: Request, error: Exception) -> Response:
    """Answer a request whose path or method is not served, in OpenAI's envelope."""
    message = _NOT_FOUND.format(method=request.method, path=request.url.path)
    missing = InvalidRequest(message, code="unknown_url")
    status, allow = (error.status_code, error.headers) if isinstance(error, HTTPException) else (404, None)
    return Response(OPENAI_ERRORS.error(missing), status, allow, media_type="application/json")


async def _failed(_: Request, __: Exception) -> Response:
    """Answer a request whose endpoint failed; the server logs the failure."""
    error = TidemarkError("Tidemark failed to serve this request; its log says why.")
    return Response(OPENAI_ERRORS.error(error), status_of(error), media_type="application/json")


def _both(first: Listener, second: Listener) -> Listener:
    def emit(event: Event) -> None:
        first(event)
        second(event)

    return emit
