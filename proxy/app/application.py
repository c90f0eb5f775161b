"""Connects the parts to routes, which makes an ASGI application.

``cli/main.py`` passes the settings, the store's address and the secret.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import msgspec
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
from proxy.core.errors import InvalidRequest, TidemarkError
from proxy.core.events import Event, Listener, TurnStored
from proxy.core.ports import Authenticator
from proxy.dialects.chat.request import read_messages
from proxy.pipeline.command_text import mark_of
from proxy.pipeline.commands import Commands
from proxy.pipeline.pipeline import Pipeline
from proxy.pipeline.relay import Relay
from proxy.pipeline.stored_history import StoredHistory, TurnRules
from proxy.server.access import ConversationAccess
from proxy.server.auth import MAX_CACHED_CALLERS, PassthroughAuth
from proxy.server.browsers import BrowserAccess
from proxy.server.endpoints.chat import ChatEndpoint, EdgeLimits
from proxy.server.endpoints.conversations import ConversationEndpoints
from proxy.server.endpoints.offline import OfflineEndpoints
from proxy.server.endpoints.operations import OperationsEndpoints
from proxy.server.endpoints.registry import RegistryEndpoints
from proxy.server.errors import envelope, status_of
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
) -> Starlette:
    """Build the application of one worker process.

    :param store_url: the store's address, with ``embedded`` resolved
    :param secret: the key of the HMAC that distinguishes tenants, the same in all workers and replicas
    :param shared_metrics: the folder that several workers write their counts to
    :param codec: packs every stored value; None for the usual one
    """
    metrics, log = Metrics(shared_metrics), FactLog()
    emit = _both(log, metrics)
    stored = StoredParts(settings, store_url, warn, emit, codec=codec)
    parts, store = stored.parts, stored.store
    flushing = Flushing(settings, store_url, emit, stored.codec, store)
    flush = flushing.outbox if flushing.enabled else None
    stored.deletion_hooks.append(flushing)  # also while it is off, because entries may remain from when it was on
    engine = Engine(stored, emit, flush)
    pipeline = Pipeline(
        upstream=parts.upstream,
        catalog=parts.catalog,
        calibrations=stored.calibrations,
        identity=engine.identity,
        fitting=engine.fitting,
        emit=emit,
        clock=time.time,
        timer=time.perf_counter,
    )
    logs_turns = log.includes(TurnStored)  # the metrics do not count turns
    relay = Relay(store, parts.counter, emit, msgspec.json.decode, time.perf_counter, tells_turns=logs_turns)
    auth: Authenticator = PassthroughAuth(
        secret,
        identity_headers=settings.auth.identity_headers,
        forward_cookies=settings.server.forward_cookies,
    )
    token = settings.secrets.admin_token
    access = OperatorAccess(settings.server.host, token.reveal() if token else None)
    conversations = ConversationAccess(auth, access)
    max_body = settings.server.max_body_mb * 1024 * 1024
    commands = Commands(
        road=pipeline, fitting=engine.fitting, store=store, mark_for=_marks(secret), emit=emit, clock=time.time
    )
    chat = ChatEndpoint(
        pipeline=_history(settings, stored, commands),
        relay=relay,
        parser=parts.parser,
        access=conversations,
        limits=EdgeLimits(max_body, settings.server.keepalive_seconds, settings.server.notice_seconds),
        emit=emit,
        timer=time.perf_counter,
    )

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
        HttpRoute(CHAT, chat, methods=["POST"]),
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
    app = _Application(chat, browsers, routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False  # behind TLS a redirect would send the next request with its key to http://
    return app


class _Application(Starlette):
    """Serves chat requests directly at their endpoint, and all others through starlette's routes.

    It decides before any endpoint whether a web page may send a request, so that no endpoint can omit that.
    """

    def __init__(self, chat: ASGIApp, browsers: BrowserAccess, **options: Any) -> None:
        super().__init__(**options)
        self._chat = chat
        self._browsers = browsers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._browsers.is_plain(scope["headers"]):
            await self._browsers.serve(scope, receive, send, self._serve)
        else:
            await self._serve(scope, receive, send)

    def _serve(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        if scope["type"] == "http" and scope["path"] == CHAT and scope["method"] == "POST":
            return self._chat(scope, receive, send)
        return super().__call__(scope, receive, send)


def _marks(secret: bytes) -> Callable[[bytes], str]:
    """Return the function for the mark of a caller's answers, cached because every request calls it."""
    return lru_cache(MAX_CACHED_CALLERS)(partial(mark_of, secret))


def _history(settings: Settings, stored: StoredParts, road: Commands) -> StoredHistory:
    return StoredHistory(
        road=road,
        upstream=stored.parts.upstream,
        store=stored.store,
        turns=stored.store.turns,
        heads=stored.by_hand,
        leases=RedisLeases(stored.store.ask),
        parse=partial(stored.parts.parser.read, bounded=False),
        rules=TurnRules(settings.history.on_conflict, settings.history.wait_seconds),
        full=stored.store.usage.full,
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
            read=read_messages,
            clock=time.time,
        ),
        contexts=ContextView(
            access=rights,
            store=store,
            heads=heads,
            summaries=summaries,
            pipeline=pipeline,
            fitter=engine.fitting,
            read=read_messages,
        ),
        transfer=Transfer(
            access=rights,
            store=store,
            heads=heads,
            upstream=parts.upstream,
            leases=RedisLeases(store.ask),
            counter=parts.counter,
            clock=time.time,
            quota=store.usage,
        ),
        manual=ManualCompaction(
            access=rights,
            pipeline=pipeline,
            fitter=engine.fitting,
            compactor=engine.compactor,
            upstream=parts.upstream,
            store=store,
            heads=heads,
            read=read_messages,
        ),
        access=access,
        max_body_bytes=parts.settings.server.max_body_mb * 1024 * 1024,
    )


async def _missing(request: Request, error: Exception) -> Response:
    """Answer a request whose path or method is not served, in OpenAI's envelope."""
    message = _NOT_FOUND.format(method=request.method, path=request.url.path)
    missing = InvalidRequest(message, code="unknown_url")
    status, allow = (error.status_code, error.headers) if isinstance(error, HTTPException) else (404, None)
    return Response(envelope(missing), status, allow, media_type="application/json")


async def _failed(_: Request, __: Exception) -> Response:
    """Answer a request whose endpoint failed; the server logs the failure."""
    error = TidemarkError("Tidemark failed to serve this request; its log says why.")
    return Response(envelope(error), status_of(error), media_type="application/json")


def _both(first: Listener, second: Listener) -> Listener:
    def emit(event: Event) -> None:
        first(event)
        second(event)

    return emit
