"""The composition root: the only file that knows every adapter. Wiring, no rules.

``cli.py`` brings settings, the store's address and the secret; what comes out is an ASGI application.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
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

from proxy.commands import Commands
from proxy.compactor import Compactor
from proxy.config import ModelEntry, Settings, WindowNote, load, read_override
from proxy.core.budget import ModelProfile
from proxy.core.commands import mark_of
from proxy.core.errors import InvalidRequest, TidemarkError
from proxy.core.events import Event, Listener
from proxy.core.ports import Caller, LessonStore, Route, Summarizer
from proxy.core.summary import Strategy
from proxy.fit import Fitting
from proxy.http.admin import OperatorAccess
from proxy.http.auth import PassthroughAuth
from proxy.http.body import BodyParser
from proxy.http.chat import ChatEndpoint, EdgeLimits
from proxy.http.conversations import Conversations
from proxy.http.errors import envelope, status_of
from proxy.http.models import Models
from proxy.http.ops import Ops
from proxy.http.stateless import Stateless
from proxy.identity import Identity
from proxy.manual import ManualCompaction
from proxy.pipeline import ChatPipeline
from proxy.preparation import Preparation
from proxy.relay import Relay
from proxy.store.byhand import RedisByHand
from proxy.store.calibrations import RedisCalibrations
from proxy.store.leases import RedisLeases
from proxy.store.lessons import RedisLessons
from proxy.store.models import RedisModels
from proxy.store.redis import RedisStore
from proxy.summarizers.extractive import ExtractiveSummarizer
from proxy.summarizers.hybrid import HybridSummarizer
from proxy.summarizers.llm import LlmSummarizer
from proxy.summarizers.request import CarriesRequest
from proxy.telemetry.logging import FactLog, configure
from proxy.telemetry.metrics import Metrics
from proxy.tokens import LocalTokenCounter
from proxy.upstream.catalog import Catalog
from proxy.upstream.litellm import LiteLLMUpstream
from proxy.upstream.modeldata import LiteLLMModelData
from proxy.upstream.overrides import LiveOverrides
from proxy.upstream.registry import ModelRegistry
from proxy.writing import SummaryWriter

SECONDS_A_DAY = 86_400
CHAT = "/v1/chat/completions"
_NOT_FOUND = "Tidemark has no {method} {path}. It serves POST /v1/chat/completions and GET /v1/models."


class Parts:
    """Everything that neither store nor server is needed for; the command line uses it as it is.

    :param live: what a person set of models, where there is a store
    """

    def __init__(
        self,
        settings: Settings,
        warn: Callable[[str], None],
        live: LiveOverrides | None = None,
        lessons: LessonStore | None = None,
    ) -> None:
        self.settings = settings
        self.parser = BodyParser()
        self.counter = LocalTokenCounter(on_failure=settings.tokenizer.on_failure, on_warning=warn)
        self.data = data = LiteLLMModelData()
        entries = [_entry(entry) for entry in settings.model_list]
        self.upstream = LiteLLMUpstream(entries, settings.upstream, data=data)
        self.catalog = Catalog(
            self.upstream,
            policy_for=settings.policy_for,
            overrides={entry.name: _window(entry.window) for entry in settings.model_list},
            shipped={name: _window(known.window) for name, known in settings.model_defaults.patterns.items()},
            data=data,
            live=live,
            lessons=lessons,
        )
        self.extractive = ExtractiveSummarizer(self.counter)
        self._strategies: dict[tuple[Any, ...], Summarizer] = {}

    def strategy(self, strategy: Strategy, **asked: Any) -> Summarizer:
        """The summarizer of a strategy; made once for the same wishes.

        :param asked: what ``LlmSummarizer`` takes by name
        """
        key = (strategy, *sorted(asked.items()))
        if key not in self._strategies:
            self._strategies[key] = self._made(strategy, asked)
        return self._strategies[key]

    def _made(self, strategy: Strategy, asked: Mapping[str, Any]) -> Summarizer:
        if strategy == "extractive":
            return self.extractive
        narrator = LlmSummarizer(self.upstream, self.counter, window_of=self._window_of, **asked)
        carrier = CarriesRequest if strategy == "llm" else HybridSummarizer
        return carrier(self.counter, narrator)

    async def _window_of(self, route: Route, caller: Caller) -> int | None:
        """What a summarizer's model takes in, where that is more than an assumption."""
        window = (await self.catalog.profile(route, caller)).window
        return None if window.source == "default" else min(window.window, window.max_input_tokens)

    def summarizer_for(self, profile: ModelProfile, _: Route) -> Summarizer:
        """The summarizer that a model's policy names."""
        policy = profile.policy
        return self.strategy(
            policy.strategy,
            template=policy.template,
            model=policy.summarizer_model,
            cache_friendly=policy.summarizer_cache_friendly,
        )

    def stateless(self) -> Stateless:
        """Counting and compacting of single requests."""
        return Stateless(
            parser=self.parser,
            counter=self.counter,
            catalog=self.catalog,
            upstream=self.upstream,
            choose=lambda strategy, _: self.strategy(strategy),
            timer=time.perf_counter,
        )


class StoredParts:
    """What is kept in the store, and the registry of models upon it."""

    def __init__(self, settings: Settings, url: str, warn: Callable[[str], None]) -> None:
        ttl_seconds = settings.store.ttl_days * SECONDS_A_DAY
        self.store = RedisStore(url, ttl_seconds=ttl_seconds)
        self.by_hand = RedisByHand(self.store.ask, ttl_seconds=ttl_seconds)
        self.calibrations = RedisCalibrations(self.store.ask, ttl_seconds=ttl_seconds)
        models = RedisModels(self.store.ask)
        self.live = LiveOverrides(models, time.time)
        self.parts = Parts(settings, warn, self.live, RedisLessons(self.store.ask, ttl_seconds=ttl_seconds))
        self.registry = ModelRegistry(
            store=models,
            calibrations=self.calibrations,
            live=self.live,
            catalog=self.parts.catalog,
            upstream=self.parts.upstream,
            data=self.parts.data,
            policy_for=settings.policy_for,
            read_field=read_override,
            clock=time.time,
        )

    async def aclose(self) -> None:
        """Write what waits, and close all connections."""
        try:
            await self.live.aclose()
        finally:
            await self.parts.upstream.aclose()
            await self.store.close()


class Engine:
    """What understands requests and brings them within their budgets."""

    def __init__(self, stored: StoredParts, emit: Listener) -> None:
        parts, store, leases = stored.parts, stored.store, RedisLeases(stored.store.ask)
        self.writer = writer = SummaryWriter(
            choose=parts.summarizer_for,
            fallback=parts.extractive,
            counter=parts.counter,
            emit=emit,
            clock=time.time,
            timer=time.perf_counter,
        )
        self.compactor = Compactor(writer=writer, store=store, leases=leases, counter=parts.counter, emit=emit)
        self.preparation = Preparation(writer=writer, store=store, leases=leases, emit=emit)
        self.fitting = Fitting(
            counter=parts.counter, compactor=self.compactor, preparation=self.preparation, timer=time.perf_counter
        )
        self.identity = Identity(
            store=store,
            calibrations=stored.calibrations,
            counter=parts.counter,
            choose=parts.summarizer_for,
            emit=emit,
            clock=time.time,
            timer=time.perf_counter,
        )


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
    metrics = Metrics(shared_metrics)
    emit = _both(FactLog(), metrics)
    engine = Engine(stored, emit)
    pipeline = ChatPipeline(
        upstream=parts.upstream,
        catalog=parts.catalog,
        calibrations=stored.calibrations,
        identity=engine.identity,
        fitting=engine.fitting,
        clock=time.time,
        timer=time.perf_counter,
    )
    relay = Relay(store, parts.counter, emit, msgspec.json.decode, time.perf_counter)
    auth = PassthroughAuth(secret)
    max_body = settings.server.max_body_mb * 1024 * 1024
    chat = ChatEndpoint(
        pipeline=Commands(
            road=pipeline, fitting=engine.fitting, store=store, mark=mark_of(secret), emit=emit, clock=time.time
        ),
        relay=relay,
        parser=parts.parser,
        auth=auth,
        limits=EdgeLimits(max_body, settings.server.keepalive_seconds, settings.server.notice_seconds),
        emit=emit,
        timer=time.perf_counter,
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        parts.upstream.warm()
        await stored.live.start()
        yield
        await relay.settle()
        await engine.preparation.aclose()
        await stored.aclose()

    token = settings.secrets.admin_token
    access = OperatorAccess(settings.server.host, token.reveal() if token else None)
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
        *Conversations(_manual(stored, pipeline, engine, emit), auth, access).routes(),
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


def _manual(stored: StoredParts, road: ChatPipeline, engine: Engine, emit: Listener) -> ManualCompaction:
    return ManualCompaction(
        road=road,
        fitting=engine.fitting,
        writer=engine.writer,
        upstream=stored.parts.upstream,
        store=stored.store,
        kept=stored.by_hand,
        parse=stored.parts.parser.chat,
        emit=emit,
    )


def from_environment() -> Starlette:
    """The application of a worker that the command started with several: all it needs stands in the environment."""
    configure()
    _end_with_parent()
    path = os.environ.get("TIDEMARK_CONFIG")
    settings = load(Path(path) if path else None, os.environ).listening(host=os.environ["TIDEMARK_HOST"])
    secret = settings.secrets.signing
    if secret is None:
        message = "TIDEMARK_SECRET must be set for a worker"
        raise RuntimeError(message)
    return create_app(
        settings,
        store_url=str(settings.store.url),
        secret=secret.reveal().encode(),
        warn=logging.getLogger("tidemark").warning,
        shared_metrics=Path(os.environ["PROMETHEUS_MULTIPROC_DIR"]),
    )


def _end_with_parent() -> None:
    """End this worker when the command that started it is gone, by ``kill -9`` too.

    The embedded store ends with the command, and whoever holds the port without one keeps the next start from it.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return

    def watch() -> None:
        parent.join()
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="end-with-parent", daemon=True).start()


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


def _entry(entry: ModelEntry) -> Mapping[str, Any]:
    """An entry in LiteLLM's own words."""
    return {
        "model_name": entry.name,
        "litellm_params": dict(entry.litellm_params),
        "model_info": dict(entry.model_info),
        "lane": entry.lane,
    }


def _window(note: WindowNote) -> Mapping[str, Any]:
    return {
        "max_input_tokens": note.max_input_tokens,
        "max_output_tokens": note.max_output_tokens,
        "context_window": note.context_window,
    }
