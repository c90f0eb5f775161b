"""Makes the endpoints of the server itself: dialects, models, counts of tokens, health and metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from functools import partial

from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.lessons import Lessons
from tidemark.dialects.openai_errors import OPENAI_ERRORS
from tidemark.pipeline.token_count import InputTokenCounting
from tidemark.server.endpoints.dialect import DialectEndpoint, EndpointLimits
from tidemark.server.endpoints.models import ModelEndpoints
from tidemark.server.endpoints.operations import OperationsEndpoints
from tidemark.server.endpoints.token_count import TokenCountEndpoint
from tidemark.store.embedded.append_only import folders_aside
from tidemark.upstream.providers import COUNTING_BASES
from tidemark.worker.dialects import MESSAGES, RESPONSES
from tidemark.worker.worker import Worker

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
            emit=worker.emit,
            timer=time.perf_counter,
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
