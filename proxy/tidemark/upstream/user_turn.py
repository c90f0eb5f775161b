"""Writes a compacted chat request for servers that take one system message, or want a user's turn first.

``chat_sending.py`` calls it. The summary goes to the beginning of the user message behind it, or becomes a user message
of its own, as in the Messages API. Other system messages at the beginning become one. In what Tidemark itself put into
this format, later ones become the user's, as Claude Code's reminders do for models without them. All other bytes stay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import compress
from operator import not_

from tidemark.core.conversation.messages import JsonValue, system_message
from tidemark.core.conversation.summary import OPENING, read_summary
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.bodies import array_of, body_of, encode_json
from tidemark.dialects.raw_json import read_elements, read_json, read_members

OPENING_BYTES = OPENING.encode()
SYSTEM_ROLES = (b'"system"', b'"developer"')
Members = Mapping[str, bytes]


def in_user_turn(body: bytes, *, is_bridged: bool = False, only_before_answer: bool = False) -> bytes | None:
    """Return the body with its summary in the user's turn.

    :param is_bridged: whether its system messages move even without a summary, since Tidemark wrote them
    :param only_before_answer: change nothing but an answer that would come first
    :returns: None if nothing has to change, or the body cannot be read
    """
    with suppress(InvalidRequest, LookupError, TypeError, ValueError, RecursionError):
        fields = read_members(body, bounded=False)
        raws = read_elements(fields["messages"])
        leading = _leading_systems(raws)
        is_summary = [_is_summary(system) for system in leading]
        summaries = list(compress(leading, is_summary))
        behind = raws[len(leading) :]
        if is_bridged and not only_before_answer:
            behind = _without_systems(behind)
        follower = read_members(behind[0], bounded=False) if behind else {}
        is_asked = follower.get("role") == b'"user"'
        if (only_before_answer and is_asked) or not (summaries or is_bridged):
            return None
        own = list(compress(raws, map(not_, is_summary)))
        if len(own) > 1 and not only_before_answer:
            systems = list(compress(leading, map(not_, is_summary)))
            own = [body_of(systems[0], {"content": _joined([system["content"] for system in systems])})]
        if summaries and is_asked:
            contents = [summary["content"] for summary in summaries]
            behind[0] = body_of(follower, {"content": _joined([*contents, follower["content"]])})
        elif summaries:
            behind[:0] = [body_of(summary, {"role": b'"user"'}) for summary in summaries]
        changed = [*own, *behind]
        return None if changed == raws else body_of(fields, {"messages": array_of(changed)})
    return None


def _leading_systems(raws: Sequence[bytes]) -> list[Members]:
    """Return the system messages before the first other message."""
    leading: list[Members] = []
    for raw in raws:
        members = read_members(raw, bounded=False)
        if members.get("role") not in SYSTEM_ROLES:
            break
        leading.append(members)
    return leading


def _without_systems(raws: Sequence[bytes]) -> list[bytes]:
    """Return messages with each system message as a user's, or at the end of the user message before it."""
    changed: list[bytes] = []
    for raw in raws:
        members = read_members(raw, bounded=False)
        if members.get("role") not in SYSTEM_ROLES:
            changed.append(raw)
            continue
        before = read_members(changed[-1], bounded=False) if changed else {}
        if before.get("role") == b'"user"':
            changed[-1] = body_of(before, {"content": _joined([before["content"], members["content"]])})
        else:
            changed.append(body_of(members, {"role": b'"user"'}))
    return changed


def _is_summary(system: Members) -> bool:
    """Return whether a message is a whole summary of Tidemark's, as a text or as one part."""
    if OPENING_BYTES not in system["content"]:
        return False
    content = read_json(system["content"])
    if isinstance(content, list) and len(content) == 1 and isinstance(content[0], dict):
        content = content[0].get("text")
    return isinstance(content, str) and read_summary(system_message(content)) is not None


def _joined(contents: Sequence[bytes]) -> bytes:
    """Return several contents as one: a text if all are texts, else the parts of all.

    :raises TypeError: one of them is neither a text nor a list of parts
    """
    if all(content.startswith(b'"') for content in contents):
        return encode_json("\n\n".join(str(read_json(content)) for content in contents))
    parts: list[bytes] = []
    for content in contents:
        parts += read_elements(content) if content.startswith(b"[") else [_part(read_json(content))]
    return array_of(parts)


def _part(text: JsonValue) -> bytes:
    if not isinstance(text, str):
        raise TypeError(text)
    return encode_json({"type": "text", "text": text})
