"""Pages, and how conversations, messages and summaries are told on them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.conversation.messages import JsonValue
from proxy.core.conversation.records import StoredConversation, StoredMessage
from proxy.core.conversation.summary import RunningSummary
from proxy.core.cursors import cursor_of, place_of
from proxy.core.errors import InvalidRequest

Told = dict[str, JsonValue]
_MOST = 2**53
"""No list is as long, and an index takes no number that is much larger."""


@dataclass(frozen=True, slots=True)
class Page:
    """Which part of a list is wanted."""

    limit: int
    cursor: str | None = None

    def start(self) -> int:
        """Of a list that is counted from 1."""
        if self.cursor is None:
            return 1
        (start,) = place_of(self.cursor, (int,))
        if not isinstance(start, int) or not 1 <= start <= _MOST:
            raise InvalidRequest("'cursor' must be the 'next_cursor' of the page before, as it came.", param="cursor")
        return start


def told_conversation(record: StoredConversation) -> Told:
    """A conversation without its messages."""
    return {
        "object": "conversation",
        "id": record.id,
        "name": record.name or None,
        "model": record.model,
        "messages": record.message_count,
        "tokens": record.total_tokens,
        "turns": record.turn_count,
        "summaries": record.summary_count,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "parent": record.parent,
        "parent_messages": record.parent_messages,
    }


def told_message(one: StoredMessage, covered: int) -> Told:
    """A message, and whether the model still sees it.

    :param covered: how many messages a summary stands for
    """
    return {
        "position": one.position,
        "id": one.message_id,
        "state": "summarized" if one.position <= covered else "in_context",
        "tokens": one.tokens,
        "created_at": one.created_at,
        "message": json.loads(one.raw),
    }


def told_summary(one: RunningSummary) -> Told:
    """A summary, and which one it took in."""
    return {
        "prefix": one.prefix.hex(),
        "previous": one.previous.hex() if one.previous else None,
        "summarized_messages": one.covered,
        "text": one.text,
        "tokens": one.tokens,
        "strategy": one.made_by,
        "recipe": one.recipe.key,
        "cause": one.cause,
        "created_at": one.created_at,
    }


def paged(data: Sequence[JsonValue], start: int, *, more: bool) -> Told:
    """A page of a list that is counted from 1."""
    return {"data": list(data), "has_more": more, "next_cursor": cursor_of(start + len(data)) if more else None}
