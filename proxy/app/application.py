"""Binding the parts to routes: what comes out is an ASGI application.

``cli/main.py`` brings settings, the store's address and the secret.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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
from proxy.archive import Contexts, Finding, Reading, Transfer
from proxy.archive.search_index import MessageSearch
from proxy.archive.summarize import ManualCompaction
from proxy.config import Settings
from proxy.core.errors import InvalidRequest, TidemarkError
from proxy.core.events import Event, Listener, TurnStored
from proxy.core.ports import MemoryFlush
from proxy.dialects.chat.request import read_messages
from proxy.pipeline.command_text import mark_of
from proxy.pipeline.commands import Commands
from proxy.pipeline.pipeline import ChatPipeline
from proxy.pipeline.relay import Relay
from proxy.pipeline.stored_history import StoredHistory, TurnRules
from proxy.server.access import ConversationAccess
from proxy.server.auth import PassthroughAuth
from proxy.server.endpoints.chat import ChatEndpoint, EdgeLimits
from proxy.server.endpoints.conversations import Archived
from proxy.server.endpoints.ops import Ops
from proxy.server.endpoints.registry import Models
from proxy.server.endpoints.summarize import Conversations
from proxy.server.errors import envelope, status_of
from proxy.server.operator import OperatorAccess
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
) -> Starlette:
    """The application of one worker process.

    :param store_url: where the store is, ``embedded`` resolved already
    :param secret: key of the HMAC that tells tenants apart; the same in all workers and replicas
    :param shared_metrics: the folder that several workers count into
    """
    stored = StoredParts(settings, store_url, warn)
    parts, store = stored.parts, stored.store
    metrics, log = Metrics(shared_metrics), FactLog()
    emit = _both(log, metrics)
    flushing = Flushing(settings, store_url, emit, store)
    flush = flushing.outbox if flushing.enabled else None
    stored.forgets.append(flushing)  # also while it is off: something may be left of when it was on
    engine = Engine(stored, emit, flush)
    pipeline = ChatPipeline(
        upstream=parts.upstream,
        catalog=parts.catalog,
        calibrations=stored.calibrations,
        identity=engine.identity,
        fitting=engine.fitting,
        clock=time.time,
        timer=time.perf_counter,
    )
    heard = log.hears(TurnStored)  # the metrics do not count them
    relay = Relay(store, parts.counter, emit, msgspec.json.decode, time.perf_counter, tells_turns=heard)
    auth = PassthroughAuth(secret)
    token = settings.secrets.admin_token
    access = OperatorAccess(settings.server.host, token.reveal() if token else None)
    conversations = ConversationAccess(auth, access)
    max_body = settings.server.max_body_mb * 1024 * 1024
    commands = Commands(
        road=pipeline, fitting=engine.fitting, store=store, mark=mark_of(secret), emit=emit, clock=time.time
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
        *Ops(
            store=store,
            models=parts.catalog,
            auth=auth,
            stateless=parts.stateless(),
            metrics=metrics.render,
            resting=engine.writer.resting,
            max_body_bytes=max_body,
        ).routes(),
        *Models(stored.registry, auth, access).routes(),
        *_archived(stored, pipeline, engine, conversations).routes(),
        *Conversations(_manual(stored, pipeline, engine, emit, flush), conversations).routes(),
    ]
    handlers = {404: _missing, 405: _missing, 500: _failed}
    app = _Application(chat, routes=routes, lifespan=lifespan, exception_handlers=handlers)
    app.router.redirect_slashes = False  # behind TLS the redirect would send the next request, key and all, to http://
    return app


class _Application(Starlette):
    """Routes and their errors are starlette's. Chat requests go past its layers: their endpoint does it all."""

    def __init__(self, chat: ASGIApp, **given: Any) -> None:
        super().__init__(**given)
        self._chat = chat

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == CHAT and scope["method"] == "POST":
            await self._chat(scope, receive, send)
        else:
            await super().__call__(scope, receive, send)


def _history(settings: Settings, stored: StoredParts, road: Commands) -> StoredHistory:
    return StoredHistory(
        road=road,
        upstream=stored.parts.upstream,
        store=stored.store,
        turns=stored.store,
        heads=stored.by_hand,
        leases=RedisLeases(stored.store.ask),
        parse=stored.parts.parser.chat,
        rules=TurnRules(settings.history.on_conflict, settings.history.wait_seconds),
    )


def _archived(stored: StoredParts, road: ChatPipeline, engine: Engine, access: ConversationAccess) -> Archived:
    finding = Finding(
        store=stored.store,
        heads=stored.by_hand,
        road=road,
        upstream=stored.parts.upstream,
        choose=stored.parts.summarizer_for,
        read=read_messages,
    )
    return Archived(
        reading=Reading(finding, MessageSearch(), stored.forgets, time.time),
        contexts=Contexts(finding, engine.fitting),
        transfer=Transfer(finding, RedisLeases(stored.store.ask), stored.parts.counter, time.time),
        access=access,
        max_body_bytes=stored.parts.settings.server.max_body_mb * 1024 * 1024,
    )


def _manual(
    stored: StoredParts, road: ChatPipeline, engine: Engine, emit: Listener, flush: MemoryFlush | None
) -> ManualCompaction:
    return ManualCompaction(
        road=road,
        fitting=engine.fitting,
        writer=engine.writer,
        upstream=stored.parts.upstream,
        store=stored.store,
        kept=stored.by_hand,
        read=read_messages,
        emit=emit,
        flush=flush,
    )


async def _missing(request: Request, error: Exception) -> Response:
    """A path or method that is not served, told in OpenAI's envelope."""
    message = _NOT_FOUND.format(method=request.method, path=request.url.path)
    told = InvalidRequest(message, code="unknown_url")
    status, allow = (error.status_code, error.headers) if isinstance(error, HTTPException) else (404, None)
    return Response(envelope(told), status, allow, media_type="application/json")


async def _failed(_: Request, __: Exception) -> Response:
    """A failure of ours at an endpoint beside the road; the server logs it."""
    error = TidemarkError("Tidemark failed to serve this request; its log says why.")
    return Response(envelope(error), status_of(error), media_type="application/json")


def _both(first: Listener, second: Listener) -> Listener:
    def tell(event: Event) -> None:
        first(event)
        second(event)

    return tell
