"""Reads a conversation's record, and its place among its forks, from the answers of scripts.

``records.py`` asks for them. The scripts write these fields themselves, so they are plain fields of a hash and not
packed by ``codec.py``; the client's texts among them are sealed one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tidemark.core.conversation.records import ConversationRecord
from tidemark.core.conversation.sent_prompts import told_changes
from tidemark.core.errors import RecordUnreadable
from tidemark.store.codec import unreadable

Number = TypeVar("Number", int, float)


def read_conversation(family: str, answer: Sequence[Any], open_text: Callable[[str], str]) -> ConversationRecord | None:
    """Return a conversation's record from what ``describe.lua`` answers; without a turn it counts no messages.

    A field that cannot be read is 0 or empty, and ``broken`` names it.

    :param open_text: ``Codec.open_text``
    :raises RecordUnreadable: the number of its messages is not a number, and could not be counted
    """
    own, flat = answer or (b"", ())
    pairs = [piece.decode(errors="replace") for piece in flat]
    fields = dict(zip(pairs[::2], pairs[1::2], strict=True))
    if not fields or "stem" in fields:  # a forgotten conversation keeps only what its forks share with it
        return None
    parent = fields.get("parent")
    last_summary = fields.get("last_summary")
    broken: list[str] = []

    def number(name: str, kind: type[Number]) -> Number:
        try:
            return kind(fields.get(name, 0))
        except ValueError:
            broken.append(name)
            return kind()

    def text(name: str) -> str:
        try:
            return open_text(fields.get(name, ""))
        except RecordUnreadable:
            broken.append(name)
            return ""

    count = number("count", int)
    if broken:
        raise unreadable("its number of messages is none")
    return ConversationRecord(
        id=family + own.decode(),
        tenant=fields.get("tenant", ""),
        model=text("model"),
        message_count=count,
        total_tokens=number("tokens", int),
        summary_count=number("summaries", int),
        turn_count=number("turns", int),
        created_at=number("created", float),
        updated_at=number("updated", float),
        last_summary_at=number("last_summary", float) if last_summary else None,
        parent=family + parent if parent else None,
        parent_messages=number("base", int),
        owner=fields.get("owner", ""),
        name=text("name"),
        cache_breaks=tuple(told_changes(fields.get("sent", "").encode(errors="replace"))),
        lost_reply_position=number("unheard", int),
        broken=tuple(broken),
    )


def read_path(family: str, flat: Sequence[Any]) -> list[tuple[str, int, int]]:
    """Return a conversation and its ancestors from what ``path.lua`` answers: id, base, last position."""
    return [(family + flat[i].decode(), int(flat[i + 1]), int(flat[i + 2])) for i in range(0, len(flat), 3)]
