"""Builds the endpoints of stored responses (``/v1/responses/{id}``) from the parts of one worker process."""

from __future__ import annotations

import time

from starlette.types import ASGIApp

from tidemark.app.dialects import RESPONSES
from tidemark.app.stored_parts import Engine, StoredParts
from tidemark.compaction.compactor import Compactor
from tidemark.core.events import Event
from tidemark.core.ports import Authenticator, SummarySeal
from tidemark.features.responses.background_responses import BackgroundResponses
from tidemark.features.responses.conversation_endpoints import KeptConversationEndpoints
from tidemark.features.responses.endpoints import StoredResponseEndpoints
from tidemark.features.responses.kept_conversations import ConversationsApi
from tidemark.features.responses.stored_responses import StoredResponses
from tidemark.pipeline.carried_objects import CarriedObjects
from tidemark.pipeline.continued_answers import ContinuedAnswers
from tidemark.pipeline.continuing import ContinuedRequests
from tidemark.pipeline.earlier_messages import EarlierMessages
from tidemark.pipeline.kept_conversations import KeptConversations
from tidemark.pipeline.sealed_compaction import SealedCompaction


def continued_requests(stored: StoredParts, seal: SummarySeal) -> ContinuedRequests:
    """Return the step that resolves earlier responses and items."""
    parts, store = stored.parts, stored.store
    conversations = KeptConversations(store.kept_conversations, store.usage.full)
    return ContinuedRequests(
        upstream=parts.upstream,
        responses=store.responses,
        store=store,
        tails=stored.tails,
        formats=parts.formats,
        seal=seal,
        answers=ContinuedAnswers(parts.upstream, conversations, time.monotonic),
        conversations=conversations,
        accounts=stored.accounts,
    )


def kept_conversation_endpoints(
    stored: StoredParts, carry: ASGIApp, *, auth: Authenticator, max_body_bytes: int
) -> KeptConversationEndpoints | None:
    """Return the endpoints of the Conversations API; None where no dialect with stored responses is served.

    :param carry: carries a request to an upstream
    """
    parts, store = stored.parts, stored.store
    dialect = parts.dialects.get(RESPONSES)
    if dialect is None or dialect.responses is None:
        return None
    api = ConversationsApi(
        parts.upstream,
        store.kept_conversations,
        dialect,
        dialect.responses,
        store.usage,
        CarriedObjects(stored.accounts),
        time.time,
    )
    return KeptConversationEndpoints(api, carry, auth, max_body_bytes)


def sealed_compaction(
    stored: StoredParts, engine: Engine, continued: ContinuedRequests, seal: SummarySeal
) -> SealedCompaction | None:
    """Return what compacts for clients that carry their summary; None where no dialect with such items is served."""
    parts = stored.parts
    dialect = parts.dialects.get(RESPONSES)
    if dialect is None or dialect.responses is None:
        return None

    def silent(_: Event) -> None:
        """Emit nothing: there is no conversation whose summary it is."""

    return SealedCompaction(
        dialect=dialect,
        continued=continued,
        upstream=parts.upstream,
        catalog=parts.catalog,
        counter=parts.counter,
        compactor=Compactor(writer=engine.writer, counter=parts.counter, emit=silent, clock=time.time),
        seal=seal,
        clock=time.time,
        timer=time.perf_counter,
        accounts=stored.accounts,
        compacts_itself=lambda route, caller: bool(parts.upstream.keeps_responses(route, caller)),
    )


def stored_response_endpoints(
    stored: StoredParts,
    compaction: SealedCompaction | None,
    *,
    auth: Authenticator,
    max_body_bytes: int,
) -> StoredResponseEndpoints | None:
    """Return the endpoints; None where no dialect with stored responses is served."""
    parts, store = stored.parts, stored.store
    dialect = parts.dialects.get(RESPONSES)
    if dialect is None or dialect.responses is None or compaction is None:
        return None
    earlier = EarlierMessages(store, store.responses, parts.formats)
    background = BackgroundResponses(
        store=store,
        responses=store.responses,
        earlier=earlier,
        counter=parts.counter,
        formats=parts.formats,
        dialect=dialect,
        format=dialect.responses,
        clock=time.time,
    )
    reading = StoredResponses(
        parts.upstream, store.responses, earlier, dialect, dialect.responses, background, stored.accounts
    )
    return StoredResponseEndpoints(reading, compaction, auth, max_body_bytes)
