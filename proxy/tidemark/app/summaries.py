"""Connects the parts that summarize stored conversations by hand, and change their summaries.

``endpoints.py`` serves them by the JSON API, and the console uses the same ones.
"""

from __future__ import annotations

import time

from tidemark.app.stored_parts import Engine, StoredParts
from tidemark.features.conversations.access import ArchiveAccess
from tidemark.features.conversations.standing_summaries import StandingSummaries
from tidemark.features.summaries.receipts import ReceiptReader
from tidemark.features.summaries.stored_requests import StoredRequests
from tidemark.features.summaries.summarize import ManualCompaction
from tidemark.features.summaries.summary_changes import SummaryChanges
from tidemark.pipeline.pipeline import Pipeline
from tidemark.summarizers.receipts import ReceiptWriter


class SummariesByHand:
    """Holds the parts, which have no state of their own."""

    def __init__(self, stored: StoredParts, engine: Engine, pipeline: Pipeline) -> None:
        parts, store = stored.parts, stored.store
        access, comparison = ArchiveAccess(store, parts.upstream), ReceiptWriter()
        requests = StoredRequests(
            pipeline=pipeline,
            upstream=parts.upstream,
            store=store,
            heads=stored.request_heads,
            dialect=parts.chat,
            formats=parts.formats,
        )
        self.manual = ManualCompaction(
            access=access,
            requests=requests,
            fitter=engine.fitter,
            compactor=engine.compactor,
            store=store,
            emit=engine.emit,
        )
        self.changes = SummaryChanges(
            access=access,
            requests=requests,
            store=store,
            replacement=stored.replacement,
            previews=stored.previews,
            compactor=engine.compactor,
            counter=parts.counter,
            comparison=comparison,
            choose=parts.chosen_summarizer,
            emit=engine.emit,
            clock=time.time,
        )
        self.receipts = ReceiptReader(
            access=access,
            store=store,
            summaries=StandingSummaries(
                store=store, upstream=parts.upstream, catalog=parts.catalog, choose=parts.summarizer_for
            ),
            formats=parts.formats,
            comparison=comparison,
        )
