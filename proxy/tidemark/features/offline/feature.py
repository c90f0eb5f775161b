"""Plugs in ``/tidemark/count`` and ``/tidemark/compact``, and their service for the commands."""

from __future__ import annotations

import time
from collections.abc import Sequence

from starlette.routing import BaseRoute

from tidemark.compaction.compactor import Compactor
from tidemark.core.events import Event
from tidemark.features.feature import Feature
from tidemark.features.offline.endpoints import OfflineEndpoints
from tidemark.features.offline.service import OfflineService
from tidemark.summarizers.choosing import summarizer_name
from tidemark.worker.worker import Worker


class OfflineFeature(Feature):
    """Counts and compacts single requests."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def routes(self) -> Sequence[BaseRoute]:
        worker = self._worker
        return OfflineEndpoints(offline_service(worker), worker.auth, worker.max_body_bytes).routes()


def offline_service(worker: Worker) -> OfflineService:
    """Return the service that counts and compacts single requests; it uses no store."""

    def silent(_: Event) -> None:
        """Emit nothing."""

    writer = worker.summary_writer(silent)
    return OfflineService(
        dialect=worker.chat,
        counter=worker.counter,
        catalog=worker.catalog,
        upstream=worker.upstream,
        compactor=Compactor(writer=writer, counter=worker.counter, emit=silent, clock=lambda: 0.0),  # dates no summary
        name_summarizer=summarizer_name,
        timer=time.perf_counter,
    )
