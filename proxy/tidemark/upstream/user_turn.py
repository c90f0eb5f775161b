"""Writes a compacted chat request for servers that take one system message, or want a user's turn first.

``chat_sending.py`` calls it. The summary goes to the beginning of the user message behind it, or becomes a user message
of its own, as in the Messages API. Other system messages at the beginning become one. Every other message keeps its
bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.summary import OPENING
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.bodies import array_of, body_of, encode_json
from tidemark.dialects.raw_json import read_elements, read_json, read_members

OPENING_BYTES = OPENING.encode()
SYSTEM_ROLES = ("system", "developer")
Members = Mapping[str, JsonValue]


def in_user_turn(body: bytes, *, only_before_answer: bool = False) -> bytes | None:
    """Return the body with its summary in the user's turn.

    :returns: None if nothing has to change, or the body cannot be read
    :param only_before_answer: change nothing if a user's turn follows the summary
    """
    with suppress(InvalidRequest, LookupError, ValueError, RecursionError):
        fields = read_members(body, bounded=False)
        raws = read_elements(fields["messages"])
        leading = _leading_systems(raws)
        follower = _object(raws[len(leading)]) if len(leading) < len(raws) else {}
        if only_before_answer and follower.get("role") == "user":
            return None
        changed = [*_rewritten(raws, leading, follower), *raws[len(leading) + 1 :]]
        return None if changed == raws else body_of(fields, {"messages": array_of(changed)})
    return None


def _rewritten(raws: Sequence[bytes], leading: Sequence[Members], follower: Members) -> list[bytes]:
    """Return the messages that take the place of the leading system messages and of the one behind them."""
    place = next((place for place, message in enumerate(leading) if is_summary(message)), None)
    systems = [message for at, message in enumerate(leading) if at != place]
    remaining = [raw for at, raw in enumerate(raws[: len(leading)]) if at != place]
    if len(systems) > 1:
        remaining = [encode_json({**systems[0], "content": _joined([each.get("content") for each in systems])})]
    behind = list(raws[len(leading) : len(leading) + 1])
    if place is None:
        return [*remaining, *behind]
    summary = leading[place].get("content")
    if follower.get("role") == "user":
        return [*remaining, encode_json({**follower, "content": _joined([summary, follower.get("content")])})]
    return [*remaining, encode_json({"role": "user", "content": summary}), *behind]


def _leading_systems(raws: Sequence[bytes]) -> list[Members]:
    """Return the system messages before the first other message."""
    leading: list[Members] = []
    for raw in raws:
        message = _object(raw)
        if message.get("role") not in SYSTEM_ROLES:
            break
        leading.append(message)
    return leading


def is_summary(message: Members) -> bool:
    """Return whether a chat message is a summary of Tidemark's."""
    parts = _parts(message.get("content"))
    text = parts[0].get("text") if parts and isinstance(parts[0], dict) else ""
    return isinstance(text, str) and text.startswith(OPENING)


def _joined(contents: Sequence[JsonValue]) -> JsonValue:
    """Return several contents as one: a text if all are texts, else a list of parts."""
    if all(isinstance(content, str) for content in contents):
        return "\n\n".join(content for content in contents if isinstance(content, str))
    return [part for content in contents for part in _parts(content)]


def _parts(content: JsonValue) -> Sequence[JsonValue]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return content if isinstance(content, list) else []


def _object(raw: bytes) -> Members:
    value = read_json(raw)
    return value if isinstance(value, dict) else {}
