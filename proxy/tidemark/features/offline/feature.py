"""Plugs in ``/tidemark/count`` and ``/tidemark/compact``, and their service for the commands.

The endpoints work on one request and store nothing.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidemark.compaction.compactor import Compactor
from tidemark.core.events import Event
from tidemark.core.ports import NO_CREDENTIAL
from tidemark.features.feature import Feature
from tidemark.features.offline.service import OfflineService
from tidemark.server.encodings import read_plain_body
from tidemark.server.responses import JSON_TYPE, with_error_envelope
from tidemark.summarizers.choosing import summarizer_name
from tidemark.worker.worker import Worker


class OfflineFeature(Feature):
    """Counts and compacts single requests."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._service = offline_service(worker)

    def routes(self) -> Sequence[BaseRoute]:
        return [
            Route("/tidemark/count", with_error_envelope(self._count), methods=["POST"]),
            Route("/tidemark/compact", with_error_envelope(self._compact), methods=["POST"]),
        ]

    async def _count(self, request: Request) -> Response:
        self._worker.access.caller(request)  # counting takes long for who has no key
        body = await read_plain_body(request, self._worker.max_body_bytes)
        return Response(await self._service.count(body), media_type=JSON_TYPE)

    async def _compact(self, request: Request) -> Response:
        caller = self._worker.access.caller(request)  # None for the operator, whose token no upstream gets
        body = await read_plain_body(request, self._worker.max_body_bytes)
        async with self._worker.quotas.counted(caller):
            compacted = await self._service.compact(body, caller or NO_CREDENTIAL)
        return Response(compacted, media_type=JSON_TYPE)


def offline_service(worker: Worker) -> OfflineService:
    """Return the service that counts and compacts single requests; it uses no store."""

    def silent(_: Event) -> None:
        """Emit nothing."""

    writer = worker.summary_writer(silent)
    compactor = Compactor(
        writer=writer,
        counter=worker.counter,
        emit=silent,
        clock=lambda: 0.0,  # dates no summary
        redactor=worker.redactor,
    )
    return OfflineService(
        dialect=worker.chat,
        counter=worker.counter,
        catalog=worker.catalog,
        upstream=worker.upstream,
        compactor=compactor,
        name_summarizer=summarizer_name,
        timer=time.perf_counter,
    )
