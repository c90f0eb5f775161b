"""Builds the ASGI application of one worker process, and starts and stops it.

``cli/serve.py`` and ``workers.py`` pass the settings, the store's address and the secret. The pages of the console get
the features that they show. Spans are put around the parts once they are built, if traces are recorded; everything else
of traces is in ``tidemark/tracing``.

The endpoints of the server itself are made here: dialects, models, counts of tokens, health and metrics.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Unpack

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from tidemark.app.features import descriptions, find, plug_in
from tidemark.app.roles import RULES
from tidemark.config import Settings, as_typed
from tidemark.config.effective import effective_settings
from tidemark.console.audit import AuditPages
from tidemark.console.conversations import ConversationPages
from tidemark.console.keys import KeyPages
from tidemark.console.models import ModelPages
from tidemark.console.openid import OpenIdProvider, OpenIdRules
from tidemark.console.openid_pages import CALLBACK, OpenIdPages
from tidemark.console.overview import OverviewPages
from tidemark.console.own import OwnPages
from tidemark.console.pages import HOME, ConsolePages, PageFamily
from tidemark.console.requests import RequestPages
from tidemark.console.sessions import Sessions
from tidemark.console.settings import SettingPages
from tidemark.console.summaries import SummaryPages
from tidemark.console.tenants import TenantSignIn
from tidemark.console.troubles import troubles
from tidemark.console.visit import Trouble
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import RecordUnreadable
from tidemark.core.lessons import Lessons
from tidemark.dialects.openai_errors import OPENAI_ERRORS
from tidemark.features.audit.feature import AuditFeature
from tidemark.features.bill.feature import BillFeature
from tidemark.features.conversations.feature import ConversationsFeature
from tidemark.features.feature import Feature
from tidemark.features.keys.feature import KeysFeature
from tidemark.features.model_registry.feature import ModelRegistryFeature
from tidemark.features.request_log.feature import RequestLogFeature
from tidemark.features.settings.feature import SettingsFeature
from tidemark.features.summaries.feature import SummariesFeature
from tidemark.features.tenants.feature import TenantsFeature
from tidemark.features.traffic.feature import TrafficFeature
from tidemark.pipeline.token_count import InputTokenCounting
from tidemark.server.browsers import BrowserAccess
from tidemark.server.dispatch import Dispatcher
from tidemark.server.endpoints.description import OPERATIONS
from tidemark.server.endpoints.dialect import DialectEndpoint, EndpointLimits
from tidemark.server.endpoints.models import ModelEndpoints
from tidemark.server.endpoints.operations import OperationsEndpoints
from tidemark.server.endpoints.token_count import TokenCountEndpoint
from tidemark.server.guarding import RouteGuard
from tidemark.server.openapi import DescriptionEndpoint
from tidemark.store.embedded.append_only import folders_aside
from tidemark.tracing import start_tracing
from tidemark.upstream.providers import COUNTING_BASES
from tidemark.worker.dialects import MESSAGES, RESPONSES
from tidemark.worker.stored import ProcessOptions
from tidemark.worker.worker import Worker

if TYPE_CHECKING:
    from tidemark.tracing.tracing import Tracing


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


def create_app(settings: Settings, *, warn: Callable[[str], None], **process: Unpack[ProcessOptions]) -> Starlette:
    """Build the application of one worker process.

    :param process: what ``Worker`` takes beside: ``store_url``, ``secret``, and others
    """
    worker = Worker(settings, warn, **process)
    tracing = start_tracing(warn)
    worker.emit.listeners += [worker.log, worker.metrics, *([] if tracing is None else [tracing.note_event])]
    features = plug_in(worker)
    if tracing is not None:
        trace_parts(tracing, worker)
    guard = guard_of(worker, features)
    endpoints = dialect_endpoints(worker)
    direct: dict[str, ASGIApp] = {**dict.fromkeys(FREQUENT, worker.forwarding), **endpoints}
    routes = [
        *server_routes(worker, endpoints),
        *console_routes(worker, features, guard),
        *guard.guarded([route for feature in features for route in feature.routes()], "/tidemark"),
        *worker.forwarding.routes(),  # last: whatever nothing above serves
    ]
    server = settings.server
    return Dispatcher(
        direct,
        BrowserAccess(
            server.host,
            server.allowed_origins,
            server.allowed_hosts,
            warn,
            frozenset() if settings.openid.issuer is None else frozenset({CALLBACK}),
        ),
        worker.dialects,
        worker.admission,
        worker.auth,
        around=None if tracing is None else tracing.requests(routes, direct).serve,
        routes=routes,
        lifespan=_lifespan(worker, features, tracing),
    )


def _lifespan(
    worker: Worker, features: Sequence[Feature], tracing: Tracing | None
) -> Callable[[Starlette], AbstractAsyncContextManager[None]]:
    """Return what starts the parts, and stops them in the order in which each still needs the others."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        worker.counter.warm([entry.upstream_model for entry in worker.settings.model_list] or [""])
        tenant_keys = worker.tenant_keys
        await worker.schema.start()
        worker.watch.start()
        await worker.live.start()
        for feature in features:
            await feature.start()
        worker.metrics.state.start()
        worker.upstream.warm()  # last, because the import takes seconds of CPU
        yield
        worker.metrics.hand_over()
        worker.metrics.state.end()
        await worker.settle()
        for feature in features:
            await feature.aclose()
        await worker.watch.aclose()
        await worker.schema.aclose()
        await worker.aclose()
        if tenant_keys is not None:
            tenant_keys.stop()
        if tracing is not None:
            await tracing.aclose()

    return lifespan


def guard_of(worker: Worker, features: Sequence[Feature]) -> RouteGuard:
    """Return what admits people by ``roles.py``, and has their requests logged."""

    async def owner_of_conversation(identifier: str) -> str:
        with suppress(RecordUnreadable):
            record = await worker.store.conversation(identifier)
            return record.owner if record is not None else ""
        return ""

    trails = [trail for feature in features for trail in feature.trails()]
    return RouteGuard(RULES, worker.access, trails, owner_of_conversation, worker.emit)


def console_routes(worker: Worker, features: list[Feature], guard: RouteGuard) -> list[BaseRoute]:
    """Return the routes of all pages. A new family of pages is one line here."""
    models = [entry.name for entry in worker.settings.model_list]
    conversations, summaries = find(ConversationsFeature, features), find(SummariesFeature, features)
    settings, log = find(SettingsFeature, features).settings, find(RequestLogFeature, features).reader
    rules = openid_rules(worker.settings)
    has_keys = worker.settings.auth.mode == "keys"
    tenants = TenantSignIn(worker.auth, worker.keys if has_keys else None, conversations.reading)
    binding = binding_of(rules) + ("keys" if has_keys else "")
    sessions = Sessions(worker.operator, worker.secret, time.time, tenants, binding)
    families: list[PageFamily] = [
        OverviewPages(
            find(TrafficFeature, features).reader, find(BillFeature, features).reader, conversations.reading, log
        ),
        ConversationPages(
            conversations.reading,
            conversations.finding,
            conversations.transfer,
            summaries.manual,
            settings,
            models,
            tenants.names,
        ),
        RequestPages(log, conversations.reading, conversations.finding, conversations.contexts, models),
        SummaryPages(summaries.changes, models),
        ModelPages(find(ModelRegistryFeature, features).registry, as_typed),
        KeyPages(find(KeysFeature, features).keys, as_typed, has_keys),
        SettingPages(settings, partial(effective_settings, worker.settings), as_typed),
        AuditPages(find(AuditFeature, features).reader),
        OwnPages(find(TenantsFeature, features)),
    ]
    streams = [route for feature in features for route in feature.console_routes(HOME, sessions.listener)]
    pages = ConsolePages(sessions, families, guard, partial(troubles_of, worker), openid=rules is not None)
    openid = OpenIdPages(None if rules is None else OpenIdProvider(rules), pages)
    return [*streams, *openid.routes(), *pages.routes()]


def troubles_of(worker: Worker) -> Sequence[Trouble]:
    """Return what does not work now, as this worker sees it."""
    return troubles(
        is_store_well=worker.store.is_well,
        resting=worker.writer.resting(),
        eviction=worker.watch.eviction,
        replacement=worker.live.replacement,
    )


def openid_rules(settings: Settings) -> OpenIdRules | None:
    """Return the rules of sign-ins by OpenID; None if no provider is configured."""
    section, secret = settings.openid, settings.secrets.openid
    if section.issuer is None or section.client_id is None:
        return None
    return OpenIdRules(
        str(section.issuer),
        section.client_id,
        None if secret is None else secret.reveal(),
        section.role_claim,
        frozenset(section.operators),
        frozenset(section.auditors),
    )


def binding_of(rules: OpenIdRules | None) -> str:
    """Return what ends all sessions when it changes: who gives roles, and to whom."""
    if rules is None:
        return ""
    return repr([rules.issuer, rules.client_id, rules.role_claim, sorted(rules.operators), sorted(rules.auditors)])


def trace_parts(tracing: Tracing, worker: Worker) -> None:
    """Let the steps of requests have spans, and what they ask of the store and of upstreams."""
    steps, store = tracing.steps, worker.store
    steps.trace_step(worker.identifier.identify, "identity")
    steps.trace_step(worker.fitter.fit, "plan")
    steps.trace_summaries(worker.immediate, worker.compactor)
    steps.trace_store(
        store.all_turns,
        store.branches,
        store.conversation,
        store.find_by_name,
        store.forget,
        store.keep_summary,
        store.latest_turn,
        store.message_ids,
        store.messages,
        store.originals,
        store.recall,
        store.record,
        store.summaries,
        store.summary,
        store.summary_versions,
        store.system_messages,
    )
    responses, heads, answers, calibrations = store.responses, worker.request_heads, worker.answers, worker.calibrations
    steps.trace_store(store.turns.start_turn, part="turns.")
    steps.trace_store(responses.find, responses.forget, responses.keep, part="responses.")
    steps.trace_store(heads.summarized_count, heads.with_missing, part="request_heads.")
    steps.trace_store(answers.find, answers.keep, part="answers.")
    steps.trace_store(calibrations.calibration, calibrations.learn, part="calibrations.")
    tracing.trace_upstream(worker.upstream)


def dialect_endpoints(worker: Worker) -> dict[str, ASGIApp]:
    """Return the endpoint of each dialect, by its path."""
    server = worker.settings.server
    limits = EndpointLimits(worker.max_body_bytes, server.keepalive_seconds, server.notice_seconds)
    return {
        path: DialectEndpoint(
            dialect,
            pipeline=worker.pipeline,
            relay=worker.relay,
            access=worker.access,
            limits=limits,
            permits=worker.admission.permits,
            quotas=worker.quotas,
            emit=worker.emit,
            timer=time.perf_counter,
            saving_of=next(iter(worker.savings), None),
        )
        for path, dialect in worker.dialects.items()
    }


def server_routes(worker: Worker, endpoints: Mapping[str, ASGIApp]) -> list[BaseRoute]:
    """Return the routes of the server itself.

    :param endpoints: those of the dialects, by path
    """
    settings = worker.settings
    is_embedded = str(settings.store.url) == "embedded"
    operations = OperationsEndpoints(
        store=worker.store,
        metrics=worker.metrics.render,
        count_resting=worker.writer.resting,
        is_full=lambda: worker.admission.is_full,
        eviction=lambda: worker.watch.eviction,
        set_aside=partial(folders_aside, settings.data_dir / "store") if is_embedded else tuple,
        replacement=lambda: worker.live.replacement,
    )
    return [
        *(Route(path, endpoint, methods=["POST"]) for path, endpoint in endpoints.items()),
        *operations.routes(),
        *DescriptionEndpoint(lambda: [*OPERATIONS, *descriptions()]).routes(),
        *ModelEndpoints(worker.catalog.models, worker.auth, worker.dialects.get(MESSAGES, OPENAI_ERRORS)).routes(),
        *_token_counts(worker),
    ]


def _token_counts(worker: Worker) -> list[BaseRoute]:
    """Return a route for each dialect whose requests can be counted before they are sent."""
    counting = InputTokenCounting(
        worker.upstream,
        worker.counter,
        lambda route: route.base_url in COUNTING_BASES,
        Lessons(time.monotonic),
        worker.accounts,
        continued=worker.continued,
    )
    return [
        TokenCountEndpoint(
            worker.dialects[served],
            path,
            answer,
            counting,
            worker.auth,
            worker.max_body_bytes,
            asks_any=served == MESSAGES,
        ).route()
        for served, (path, answer) in TOKEN_COUNTS.items()
        if served in worker.dialects
    ]
