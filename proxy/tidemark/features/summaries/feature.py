"""Plugs in summaries by hand: ``/tidemark/conversations/{id}/summarize``, ``summaries`` and ``receipts``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import cached_property

from starlette.routing import BaseRoute

from tidemark.features.conversations.access import ArchiveAccess
from tidemark.features.conversations.feature import standing_summaries
from tidemark.features.feature import Feature
from tidemark.features.summaries.compaction_requests import CompactionRequests
from tidemark.features.summaries.endpoints import SummaryEndpoints
from tidemark.features.summaries.receipts import ReceiptReader
from tidemark.features.summaries.summarize import ManualCompaction
from tidemark.features.summaries.summary_changes import SummaryChanges
from tidemark.store.previews import RedisPreviews
from tidemark.summarizers.receipts import ReceiptWriter
from tidemark.worker.worker import Worker


class SummariesFeature(Feature):
    """Summarizes stored conversations by hand, changes their summaries, and tells what each lost."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._access, self._comparison = ArchiveAccess(worker.store, worker.upstream), ReceiptWriter()
        self._requests = CompactionRequests(
            pipeline=worker.pipeline,
            upstream=worker.upstream,
            store=worker.store,
            heads=worker.request_heads,
            dialect=worker.chat,
            formats=worker.formats,
        )

    @cached_property
    def manual(self) -> ManualCompaction:
        worker = self._worker
        return ManualCompaction(
            access=self._access,
            requests=self._requests,
            fitter=worker.fitter,
            compactor=worker.compactor,
            store=worker.store,
            emit=worker.emit,
        )

    @cached_property
    def changes(self) -> SummaryChanges:
        worker = self._worker
        return SummaryChanges(
            access=self._access,
            requests=self._requests,
            store=worker.store,
            replacement=worker.replacement,
            previews=RedisPreviews(worker.store.ask, worker.codec),
            compactor=worker.compactor,
            counter=worker.counter,
            comparison=self._comparison,
            choose=worker.summarizers.once,
            emit=worker.emit,
            clock=time.time,
        )

    def _receipts(self) -> ReceiptReader:
        worker = self._worker
        return ReceiptReader(
            access=self._access,
            store=worker.store,
            summaries=standing_summaries(worker),
            formats=worker.formats,
            comparison=self._comparison,
        )

    def routes(self) -> Sequence[BaseRoute]:
        return SummaryEndpoints(self.manual, self.changes, self._receipts(), self._worker.access).routes()
