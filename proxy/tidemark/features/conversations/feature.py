"""Plugs in stored conversations: ``/tidemark/conversations``."""

from __future__ import annotations

import time
from collections.abc import Sequence

from starlette.routing import BaseRoute

from tidemark.features.conversations.access import ArchiveAccess
from tidemark.features.conversations.context import ContextView
from tidemark.features.conversations.conversation_reader import ConversationReader
from tidemark.features.conversations.endpoints import ConversationEndpoints
from tidemark.features.conversations.finding import ConversationFinder
from tidemark.features.conversations.search_index import MessageSearch
from tidemark.features.conversations.standing_summaries import StandingSummaries
from tidemark.features.conversations.transfer import Transfer
from tidemark.features.feature import Feature
from tidemark.worker.worker import Worker


class ConversationsFeature(Feature):
    """Lists, finds, shows, exports, imports and deletes stored conversations."""

    def __init__(self, worker: Worker) -> None:
        store, heads, formats, dialect = worker.store, worker.request_heads, worker.formats, worker.chat
        rights, summaries = ArchiveAccess(store, worker.upstream), standing_summaries(worker)
        self.reading = ConversationReader(
            access=rights,
            store=store,
            summaries=summaries,
            search=MessageSearch(),
            deletion_hooks=worker.deletion_hooks,
            dialect=dialect,
            formats=formats,
            clock=time.time,
        )
        self.finding = ConversationFinder(store, summaries, formats)
        self.transfer = Transfer(
            access=rights,
            store=store,
            heads=heads,
            upstream=worker.upstream,
            leases=worker.leases,
            counter=worker.counter,
            dialect=dialect,
            formats=formats,
            clock=time.time,
            quota=store.usage,
        )
        self._worker = worker
        self._rights = rights
        self._summaries = summaries

    def routes(self) -> Sequence[BaseRoute]:
        worker = self._worker
        contexts = ContextView(
            access=self._rights,
            store=worker.store,
            heads=worker.request_heads,
            summaries=self._summaries,
            pipeline=worker.pipeline,
            fitter=worker.fitter,
            dialect=worker.chat,
            formats=worker.formats,
        )
        return ConversationEndpoints(
            reading=self.reading,
            finding=self.finding,
            contexts=contexts,
            transfer=self.transfer,
            access=worker.access,
            max_body_bytes=worker.max_body_bytes,
        ).routes()


def standing_summaries(worker: Worker) -> StandingSummaries:
    """Return what finds the summaries that conversations use."""
    return StandingSummaries(
        store=worker.store, upstream=worker.upstream, catalog=worker.catalog, choose=worker.summarizers.of
    )
