"""Builds the ASGI application of one worker process, and starts and stops it.

``cli/serve.py`` and ``workers.py`` pass the settings, the store's address and the secret.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Unpack

from starlette.applications import Starlette
from starlette.types import ASGIApp

from tidemark.app.console import console_routes
from tidemark.app.features import plug_in
from tidemark.app.routes import FREQUENT, dialect_endpoints, server_routes
from tidemark.app.tracing import trace_parts
from tidemark.config import Settings
from tidemark.features.feature import Feature
from tidemark.server.browsers import BrowserAccess
from tidemark.server.dispatch import Dispatcher
from tidemark.tracing import start_tracing
from tidemark.worker.stored import ProcessOptions
from tidemark.worker.worker import Worker

if TYPE_CHECKING:
    from tidemark.tracing.tracing import Tracing


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
    endpoints = dialect_endpoints(worker)
    direct: dict[str, ASGIApp] = {**dict.fromkeys(FREQUENT, worker.forwarding), **endpoints}
    routes = [
        *server_routes(worker, endpoints),
        *console_routes(worker, features),
        *(route for feature in features for route in feature.routes()),
        *worker.forwarding.routes(),  # last: whatever nothing above serves
    ]
    server = settings.server
    return Dispatcher(
        direct,
        BrowserAccess(server.host, server.allowed_origins, server.allowed_hosts, warn),
        worker.dialects,
        worker.admission,
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
        if tracing is not None:
            await tracing.aclose()

    return lifespan
