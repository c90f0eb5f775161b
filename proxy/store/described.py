"""A conversation's record, and its place among its forks, from what the scripts answer.

Beside ``codec.py``, which reads what is packed: these are plain fields of a hash, which the scripts write themselves.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from proxy.core.conversation.records import StoredConversation
from proxy.store.codec import unreadable

Number = TypeVar("Number", int, float)


def read_conversation(family: str, answer: Sequence[Any]) -> StoredConversation | None:
    """A conversation's record from what ``describe.lua`` answers; without a turn it counts no messages.

    Numbers that are none are 0, and their fields are named in ``broken``.

    :raises RecordUnreadable: the number of its messages is none, and could not be found otherwise
    """
    own, flat = answer or (b"", ())
    pairs = [piece.decode(errors="replace") for piece in flat]
    fields = dict(zip(pairs[::2], pairs[1::2], strict=True))
    if not fields or "stem" in fields:  # of one that was forgotten, only what others rest on is left
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

    count = number("count", int)
    if broken:
        raise unreadable("its number of messages is none")
    return StoredConversation(
        id=family + own.decode(),
        tenant=fields.get("tenant", ""),
        model=fields.get("model", ""),
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
        name=fields.get("name", ""),
        unheard=number("unheard", int),
        broken=tuple(broken),
    )


def read_path(family: str, flat: Sequence[Any]) -> list[tuple[str, int, int]]:
    """A conversation and its ancestors from what ``path.lua`` answers: id, base, last position."""
    return [(family + flat[i].decode(), int(flat[i + 1]), int(flat[i + 2])) for i in range(0, len(flat), 3)]
