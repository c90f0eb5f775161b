"""A reader of stored conversations over a store of the test's own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from tidemark.core.conversation.request import Dialect
from tidemark.core.ports import DeletionHook
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.message_formats import MessageFormats
from tidemark.features.conversations.access import ArchiveAccess
from tidemark.features.conversations.conversation_reader import ConversationReader
from tidemark.features.conversations.search_index import MessageSearch
from tidemark.features.conversations.standing_summaries import StandingSummaries
from tidemark.store.bills import RedisBills
from tidemark.store.conversations import RedisStore

NOTHING = cast("Any", None)


def reader(
    store: RedisStore,
    *,
    upstream: Any = NOTHING,
    hooks: Sequence[DeletionHook] = (),
    dialect: Dialect | None = None,
) -> ConversationReader:
    """Return a reader that knows no model."""
    dialect = dialect or ChatDialect()
    return ConversationReader(
        access=ArchiveAccess(store, upstream),
        store=store,
        bills=RedisBills(store.ask),
        standing=StandingSummaries(store=store, upstream=upstream, catalog=NOTHING, choose=NOTHING),
        index=MessageSearch(),
        deletion_hooks=hooks,
        dialect=dialect,
        formats=MessageFormats([dialect]),
        clock=lambda: 2_000_000_000.0,
    )
