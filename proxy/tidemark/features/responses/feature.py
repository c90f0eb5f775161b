"""Plugs in stored responses (``/v1/responses/{id}``) and the Conversations API (``/v1/conversations``)."""

from __future__ import annotations

import time
from collections.abc import Sequence

from starlette.routing import BaseRoute

from tidemark.core.conversation.request import Dialect
from tidemark.features.feature import Feature
from tidemark.features.responses.background_responses import BackgroundResponses
from tidemark.features.responses.conversation_endpoints import KeptConversationEndpoints
from tidemark.features.responses.endpoints import StoredResponseEndpoints
from tidemark.features.responses.kept_conversations import ConversationsApi
from tidemark.features.responses.stored_responses import StoredResponses
from tidemark.pipeline.carried_objects import CarriedObjects
from tidemark.pipeline.earlier_messages import EarlierMessages
from tidemark.worker.dialects import RESPONSES
from tidemark.worker.worker import Worker


class ResponsesFeature(Feature):
    """Serves stored responses and conversations, if the dialect that has them is served."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    def routes(self) -> Sequence[BaseRoute]:
        """Return the routes of responses, then those of conversations."""
        dialect = self._worker.dialects.get(RESPONSES)
        if dialect is None or dialect.responses is None:
            return ()
        return [*self._responses(dialect), *self._conversations(dialect)]

    def _responses(self, dialect: Dialect) -> Sequence[BaseRoute]:
        worker, store, response_format = self._worker, self._worker.store, dialect.responses
        if response_format is None or worker.sealed is None:
            return ()
        earlier = EarlierMessages(store, store.responses, worker.formats)
        background = BackgroundResponses(
            store=store,
            responses=store.responses,
            earlier=earlier,
            counter=worker.counter,
            formats=worker.formats,
            dialect=dialect,
            format=response_format,
            clock=time.time,
        )
        reading = StoredResponses(
            worker.upstream, store.responses, earlier, dialect, response_format, background, worker.accounts
        )
        return StoredResponseEndpoints(
            reading, worker.sealed, worker.auth, worker.quotas, worker.max_body_bytes
        ).routes()

    def _conversations(self, dialect: Dialect) -> Sequence[BaseRoute]:
        worker, response_format = self._worker, dialect.responses
        if response_format is None:
            return ()
        api = ConversationsApi(
            worker.upstream,
            worker.store.kept_conversations,
            dialect,
            response_format,
            worker.store.usage,
            CarriedObjects(worker.accounts),
            time.time,
        )
        return KeptConversationEndpoints(api, worker.forwarding, worker.auth, worker.max_body_bytes).routes()
