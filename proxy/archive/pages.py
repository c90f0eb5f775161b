"""Pages, and how conversations, messages and summaries are told on them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from proxy.archive.locate import Turn
from proxy.core.conversation.messages import JsonValue
from proxy.core.conversation.records import StoredConversation, StoredMessage
from proxy.core.conversation.summary import PrefixSummary
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
    """A conversation without its messages (S2-6); times are Unix times in seconds."""
    return {
        "object": "conversation",
        "id": record.id,
        "name": record.name or None,
        "model": record.model,
        "messages": record.message_count,
        "tokens": record.total_tokens,
        "turns": record.turn_count,
        "summaries": record.summary_count,
        "last_summary_at": record.last_summary_at,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "parent": record.parent,
        "parent_messages": record.parent_messages,
    }


def told_usage(turns: Sequence[Turn]) -> Told:
    """What providers counted over all turns, for monitoring only (FR-1.1.5, FR-4.1.1).

    ``answers`` are those with a count: an upstream that tells none is not among them.
    """
    counts = [count for turn in turns if (count := provider_count(turn)) is not None]
    return {
        "answers": len(counts),
        "input_tokens": sum(count[0] for count in counts),
        "output_tokens": sum(count[1] for count in counts),
    }


def provider_count(turn: Turn) -> tuple[int, int] | None:
    """Input and output tokens of a turn by its provider's count; None where that told nothing of use."""
    told = tuple(turn.usage.get(name) for name in ("prompt_tokens", "completion_tokens"))
    counts = [count if type(count) is int and 0 <= count <= _MOST else None for count in told]
    return None if counts == [None, None] else (counts[0] or 0, counts[1] or 0)


def told_message(one: StoredMessage, covered: int, counted: tuple[int, int] | None = None) -> Told:
    """A message, and whether the model still sees it; of one that cannot be read, its place.

    :param covered: how many messages a summary stands for
    :param counted: of an answer, input and output tokens by the provider's count (FR-4.1.1)
    """
    if one.unreadable:
        return {
            "position": one.position,
            "id": one.message_id,
            "state": "unreadable",
            "tokens": 0,
            "created_at": None,
            "message": None,
        }
    return {
        "position": one.position,
        "id": one.message_id,
        "state": "summarized" if one.position <= covered else "in_context",
        "tokens": one.tokens,
        "input_tokens": counted[0] if counted else None,
        "output_tokens": counted[1] if counted else None,
        "created_at": one.created_at,
        "message": json.loads(one.raw),
    }


def told_gap(one: StoredMessage) -> Told:
    """A message that cannot be read, as a line of an export: no import takes it for a message."""
    return {"unreadable": {"position": one.position, "id": one.message_id}}


def told_summary(one: PrefixSummary, ids: Sequence[str]) -> Told:
    """A summary, which one it took in, and which messages it stands for (S0-3, FR-4.2.1).

    :param ids: of the conversation's messages, in order; those that have expired are missing
    """
    whole = len(ids) >= one.covered
    return {
        "prefix": one.prefix.hex(),
        "previous": one.previous.hex() if one.previous else None,
        "summarized_messages": one.covered,
        "message_range": {"first": ids[0] if whole else None, "last": one.prefix.hex()},
        "summarized_message_ids": list(ids[: one.covered]) if whole else None,
        "last_summarized_message_id": one.prefix.hex(),
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
