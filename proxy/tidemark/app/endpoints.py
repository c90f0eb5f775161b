"""The endpoints of one worker process: each is given the parts that it needs, and its routes.

``app/application.py`` serves them. A new family of endpoints is one line in ``Endpoints.routes``.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping
from functools import lru_cache, partial

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from tidemark.app.console import console_routes
from tidemark.app.dialects import MESSAGES, RESPONSES
from tidemark.app.forwarding import forwarding_endpoint
from tidemark.app.responses import (
    continued_requests,
    kept_conversation_endpoints,
    sealed_compaction,
    stored_response_endpoints,
)
from tidemark.app.stored_parts import Engine, StoredParts
from tidemark.app.summaries import SummariesByHand
from tidemark.compaction.sealing import TenantSeal
from tidemark.config.effective import effective_settings
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.request import Dialect, ErrorFormat
from tidemark.core.events import Listener
from tidemark.core.lessons import Lessons
from tidemark.core.ports import Authenticator
from tidemark.dialects.openai_errors import OPENAI_ERRORS
from tidemark.features.conversations.access import ArchiveAccess
from tidemark.features.conversations.context import ContextView
from tidemark.features.conversations.endpoints import ConversationEndpoints
from tidemark.features.conversations.finding import ConversationFinder
from tidemark.features.conversations.reading import ConversationReader
from tidemark.features.conversations.search_index import MessageSearch
from tidemark.features.conversations.standing_summaries import StandingSummaries
from tidemark.features.conversations.transfer import Transfer
from tidemark.features.live_events.endpoint import LiveEventEndpoint
from tidemark.features.live_events.hub import LiveEventHub
from tidemark.features.model_registry.endpoints import RegistryEndpoints
from tidemark.features.offline.endpoints import OfflineEndpoints
from tidemark.features.settings.endpoints import SettingsEndpoints
from tidemark.features.summaries.endpoints import SummaryEndpoints
from tidemark.features.traffic.endpoints import TrafficEndpoints
from tidemark.features.traffic.reading import TrafficReader
from tidemark.pipeline.command_text import mark_of
from tidemark.pipeline.commands import Commands
from tidemark.pipeline.continuing import ContinuedRequests
from tidemark.pipeline.lost_histories import LostHistories
from tidemark.pipeline.pipeline import Pipeline
from tidemark.pipeline.relay import Relay
from tidemark.pipeline.repeated_turns import RepeatedTurns
from tidemark.pipeline.sealed_compaction import SealedCompaction
from tidemark.pipeline.stored_history import StoredHistory, TurnRules
from tidemark.pipeline.token_count import InputTokenCounting
from tidemark.server.access import ConversationAccess
from tidemark.server.admission import Admission
from tidemark.server.auth import MAX_CACHED_CALLERS, PassthroughAuth
from tidemark.server.capabilities import errors_of
from tidemark.server.endpoints.dialect import DialectEndpoint, EndpointLimits
from tidemark.server.endpoints.models import ModelEndpoints
from tidemark.server.endpoints.operations import OperationsEndpoints, RenderMetrics
from tidemark.server.endpoints.token_count import TokenCountEndpoint
from tidemark.server.operator import OperatorAccess
from tidemark.store.embedded.append_only import folders_aside
from tidemark.store.leases import RedisLeases
from tidemark.store.watch import StoreWatch
from tidemark.upstream.providers import COUNTING_BASES

TOKEN_COUNTS: Mapping[str, tuple[str, Callable[[int], Mapping[str, JsonValue]]]] = {
    RESPONSES: (
        "/responses/input_tokens",
        lambda tokens: {"object": "response.input_tokens", "input_tokens": tokens},
    ),
    MESSAGES: ("/messages/count_tokens", lambda tokens: {"input_tokens": tokens}),
}
"""By the path of a dialect: where its requests are counted, and the answer for a number of tokens."""

FREQUENT = ("/v1/embeddings", "/v1/rerank", "/v1/moderations", "/v1/audio/speech")
"""Paths of small requests that are only carried. A walk through all routes would double their cost."""


class Endpoints:
    """Builds the endpoints.

    :param relay: carries the replies of every dialect
    :param metrics: renders the page of metrics
    :param settle_traffic: writes this worker's figures of requests to the store
    :param watch: looks at the store beside all requests
    """

    def __init__(
        self,
        stored: StoredParts,
        engine: Engine,
        relay: Relay,
        *,
        secret: bytes,
        metrics: RenderMetrics,
        settle_traffic: Callable[[], Awaitable[None]],
        emit: Listener,
        watch: StoreWatch,
    ) -> None:
        settings = stored.parts.settings
        self._stored = stored
        self._engine = engine
        self._metrics = metrics
        self._secret = secret
        self.watch = watch
        """Looks at the store beside all requests."""
        self._traffic = TrafficReader(stored.traffic, settle_traffic, time.time)
        self._max_body_bytes = settings.server.max_body_mb * 1024 * 1024
        self._auth: Authenticator = PassthroughAuth(
            secret,
            identity_headers=settings.auth.identity_headers,
            forward_cookies=settings.server.forward_cookies,
        )
        token = settings.secrets.admin_token
        proxies = frozenset(settings.server.trusted_proxies)
        self._operator = OperatorAccess(settings.server.host, token.reveal() if token else None, proxies)
        self._access = ConversationAccess(self._auth, self._operator)
        self.live_events = LiveEventHub(stored.live_events)
        self._seal = TenantSeal(secret)
        self._continued = continued_requests(stored, self._seal)
        self._sealed = sealed_compaction(stored, engine, self._continued, self._seal)
        self._pipeline = _pipeline(stored, engine, self._continued, sealed=self._sealed, secret=secret, emit=emit)
        self._by_hand = SummariesByHand(stored, engine, self._pipeline)
        self.formats: dict[str, ErrorFormat] = dict(stored.parts.dialects)
        """The format of errors below each path of a dialect."""
        self.admission = Admission(
            settings.limits.max_streams,
            settings.limits.max_waiting,
            auth=self._auth,
            formats=partial(errors_of, dialects=self.formats),
            emit=emit,
        )
        """Bounds the model requests of this worker."""
        self.dialects: dict[str, ASGIApp] = {
            path: self._dialect_endpoint(dialect, relay, emit) for path, dialect in stored.parts.dialects.items()
        }
        """The endpoint of each dialect, by its path."""
        self._forwarding = forwarding_endpoint(stored, self._auth, self.formats, self._max_body_bytes, emit)
        self.direct: dict[str, ASGIApp] = {**dict.fromkeys(FREQUENT, self._forwarding), **self.dialects}
        """The endpoints of POST requests that are found by their path alone, without a look at the routes."""

    def routes(self) -> list[BaseRoute]:
        """Return the routes of all endpoints."""
        parts, conversations = self._stored.parts, self._conversations()
        is_embedded = str(parts.settings.store.url) == "embedded"
        return [
            *(Route(path, endpoint, methods=["POST"]) for path, endpoint in self.dialects.items()),
            *OperationsEndpoints(
                store=self._stored.store,
                metrics=self._metrics,
                count_resting=self._engine.writer.resting,
                is_full=lambda: self.admission.is_full,
                eviction=lambda: self.watch.eviction,
                set_aside=partial(folders_aside, parts.settings.data_dir / "store") if is_embedded else tuple,
                replacement=lambda: self._stored.live.replacement,
            ).routes(),
            *LiveEventEndpoint(self.live_events, self._access.caller).routes(),
            *TrafficEndpoints(self._traffic, self._operator).routes(),
            *console_routes(
                self._operator,
                self._secret,
                traffic=self._traffic,
                live_events=self.live_events,
                summaries=self._by_hand.changes,
                models=[entry.name for entry in parts.settings.model_list],
                registry=self._stored.registry,
                settings=self._stored.operator_settings,
                effective=partial(effective_settings, parts.settings),
                conversations=conversations,
            ),
            *ModelEndpoints(parts.catalog, self._auth, parts.dialects.get(MESSAGES, OPENAI_ERRORS)).routes(),
            *self._token_counts(),
            *self._stored_responses(),
            *self._kept_conversations(),
            *OfflineEndpoints(parts.offline_service(), self._auth, self._max_body_bytes).routes(),
            *RegistryEndpoints(self._stored.registry, self._auth, self._operator).routes(),
            *SettingsEndpoints(self._stored.operator_settings, self._operator).routes(),
            *conversations.routes(),
            *SummaryEndpoints(self._by_hand.changes, self._by_hand.receipts, self._access).routes(),
            *self._forwarding.routes(),  # last: whatever nothing above serves
        ]

    def _dialect_endpoint(self, dialect: Dialect, relay: Relay, emit: Listener) -> DialectEndpoint:
        server = self._stored.parts.settings.server
        return DialectEndpoint(
            dialect,
            pipeline=self._pipeline,
            relay=relay,
            access=self._access,
            limits=EndpointLimits(self._max_body_bytes, server.keepalive_seconds, server.notice_seconds),
            permits=self.admission.permits,
            emit=emit,
            timer=time.perf_counter,
        )

    def _stored_responses(self) -> list[BaseRoute]:
        """Return the routes of stored responses, where a dialect has them."""
        endpoints = stored_response_endpoints(
            self._stored,
            self._sealed,
            auth=self._auth,
            max_body_bytes=self._max_body_bytes,
        )
        return [] if endpoints is None else endpoints.routes()

    def _kept_conversations(self) -> list[BaseRoute]:
        """Return the routes of the Conversations API, where a dialect has stored responses."""
        endpoints = kept_conversation_endpoints(
            self._stored, self._forwarding, auth=self._auth, max_body_bytes=self._max_body_bytes
        )
        return [] if endpoints is None else endpoints.routes()

    def _token_counts(self) -> list[BaseRoute]:
        """Return a route for each dialect whose requests can be counted before they are sent."""
        parts = self._stored.parts
        counting = InputTokenCounting(
            parts.upstream,
            parts.counter,
            lambda route: route.base_url in COUNTING_BASES,
            Lessons(time.monotonic),
            self._stored.accounts,
            continued=self._continued,
        )
        routes: list[BaseRoute] = []
        for served, (path, answer) in TOKEN_COUNTS.items():
            if served not in parts.dialects:
                continue
            endpoint = TokenCountEndpoint(
                parts.dialects[served],
                path,
                answer,
                counting,
                self._auth,
                self._max_body_bytes,
                asks_any=served == MESSAGES,
            )
            routes.append(endpoint.route())
        return routes

    def _conversations(self) -> ConversationEndpoints:
        """Return the endpoints of stored conversations; each part of the archive gets its own collaborators."""
        stored, parts, engine = self._stored, self._stored.parts, self._engine
        store, heads, upstream, dialect = stored.store, stored.request_heads, parts.upstream, parts.chat
        rights = ArchiveAccess(store, upstream)
        summaries = StandingSummaries(
            store=store, upstream=upstream, catalog=parts.catalog, choose=parts.summarizer_for
        )
        reading = ConversationReader(
            access=rights,
            store=store,
            summaries=summaries,
            search=MessageSearch(),
            deletion_hooks=stored.deletion_hooks,
            dialect=dialect,
            formats=parts.formats,
            clock=time.time,
        )
        contexts = ContextView(
            access=rights,
            store=store,
            heads=heads,
            summaries=summaries,
            pipeline=self._pipeline,
            fitter=engine.fitter,
            dialect=dialect,
            formats=parts.formats,
        )
        transfer = Transfer(
            access=rights,
            store=store,
            heads=heads,
            upstream=upstream,
            leases=RedisLeases(store.ask),
            counter=parts.counter,
            dialect=dialect,
            formats=parts.formats,
            clock=time.time,
            quota=store.usage,
        )
        return ConversationEndpoints(
            reading=reading,
            finding=ConversationFinder(store, summaries, parts.formats),
            contexts=contexts,
            transfer=transfer,
            manual=self._by_hand.manual,
            access=self._access,
            max_body_bytes=self._max_body_bytes,
        )


def _marks(secret: bytes) -> Callable[[bytes], str]:
    """Return the function for the mark of a caller's answers, cached because every request calls it."""
    return lru_cache(MAX_CACHED_CALLERS)(partial(mark_of, secret))


def _pipeline(
    stored: StoredParts,
    engine: Engine,
    continued: ContinuedRequests,
    *,
    sealed: SealedCompaction | None,
    secret: bytes,
    emit: Listener,
) -> Pipeline:
    """Return the pipeline with its steps."""
    parts, store = stored.parts, stored.store
    rules = parts.settings.history
    history = StoredHistory(
        upstream=parts.upstream,
        store=store,
        turns=store.turns,
        heads=stored.request_heads,
        tails=stored.tails,
        leases=RedisLeases(store.ask),
        formats=parts.formats,
        rules=TurnRules(rules.on_conflict, rules.wait_seconds),
        lost=LostHistories(store, stored.live),
        full=store.usage.full,
    )
    commands = Commands(fitter=engine.fitter, store=store, mark_for=_marks(secret), emit=emit, clock=time.time)
    return Pipeline(
        history=history,
        continued=continued,
        commands=commands,
        catalog=parts.catalog,
        identifier=engine.identifier,
        fitter=engine.fitter,
        upstream=parts.upstream,
        searches=engine.searches,
        calibrations=stored.calibrations,
        accounts=stored.accounts,
        repeats=RepeatedTurns(stored.answers, time.perf_counter),
        natives=engine.natives,
        thinking=engine.thinking,
        sealed=sealed,
        emit=emit,
        clock=time.time,
        timer=time.perf_counter,
    )
