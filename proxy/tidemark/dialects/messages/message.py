"""Reads a message of the Messages API as core messages: each tool result is one of its own.

``request.py`` calls it for each new message of a request, and ``reply.py`` for each reply. Chat completions has a
message of its own for each tool result, and a conversation must be the same in both. So a user message with results is
several messages here, each with bytes that are a message of their own; ``writing.py`` joins them again. Source:
Anthropic API reference, "Create a Message", ``messages``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import msgspec

from tidemark.core.conversation.digest import Part, long_meaning, meaning, text_meaning
from tidemark.core.conversation.messages import (
    STEP_CHARS,
    JsonValue,
    Message,
    Role,
    ToolCall,
    printable,
)
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.json_bounds import MAX_PART_VALUES
from tidemark.dialects.members import role_of
from tidemark.dialects.messages.blocks import REASONING, call_of, content_blocks, part_of, reasoning_part, string_of
from tidemark.dialects.raw_json import decode_value, has_surrogates, read_elements, read_members

ROLES: Mapping[str, Role] = {"user": "user", "assistant": "assistant", "system": "system"}
"""``system`` among the messages is in beta; Claude Code uses it."""
RESULT = "tool_result"
USER_START, USER_END = b'{"role":"user","content":[', b"]}"


class _MessageHead(msgspec.Struct):
    """A message, of which only the role and the kind of content are decoded."""

    role: str
    content: msgspec.Raw


_HEAD = msgspec.json.Decoder(_MessageHead)
Block = Mapping[str, JsonValue]


def read_element(raw: bytes, index: int) -> tuple[Message, ...]:
    """Parse one message of a request; there are several if it has tool results and other blocks.

    :param raw: the message's own JSON, which stays as it is
    :param index: its place in ``messages``, for the error's ``param``
    :raises InvalidRequest: the element is not a message
    """
    where = f"messages.{index}"
    value = decode_value(raw, where, most_values=MAX_PART_VALUES)
    plain = read_plain(raw, value)
    if plain is not None:
        return (plain,)
    try:
        return read_decoded(raw, value, where)
    except RecursionError as error:
        raise InvalidRequest(f"{where} is nested too deeply.", param=where, code="invalid_json") from error


def read_message(raw: bytes, index: int = 0) -> Message:
    """Parse a message that is one, such as a stored one.

    :raises InvalidRequest: it is not a message, or it is several
    """
    messages = read_element(raw, index)
    if len(messages) != 1:
        raise InvalidRequest(f"messages.{index} holds {len(messages)} messages.", param=f"messages.{index}")
    return messages[0]


def is_message(raw: bytes) -> bool:
    """Return whether stored bytes are a message: an object with a known role and a content."""
    try:
        try:
            head = _HEAD.decode(raw.decode())  # the decoder does not look at bytes that it skips
            return head.role in ROLES and bytes(head.content)[:1] in (b'"', b"[")
        except msgspec.MsgspecError:  # json accepts unpaired surrogates: clients cut emoji in two
            value = json.loads(raw)
            return isinstance(value, dict) and value.get("role") in ROLES and isinstance(value["content"], str | list)
    except (ValueError, TypeError, KeyError, RecursionError):
        return False


def read_plain(raw: bytes, value: JsonValue) -> Message | None:
    """Read a message that is one text, as nearly every message is; None for any other value.

    The result is that of ``read_decoded``, in a fourth of the time.
    """
    if not isinstance(value, dict) or len(raw) > STEP_CHARS:
        return None
    name, text = value.get("role"), value.get("content")
    role = ROLES.get(name) if isinstance(name, str) else None
    if isinstance(text, list) and len(text) == 1 and isinstance(text[0], dict):
        text = text[0].get("text") if text[0].get("type") == "text" else None
    if role is None or not isinstance(text, str):
        return None
    digest = text_meaning(role, text)
    return Message(raw, role, text, digest) if digest else None


def read_decoded(raw: bytes, value: JsonValue, where: str) -> tuple[Message, ...]:
    """Read any message after its JSON was decoded.

    :param where: its place, for the error's ``param``
    :raises InvalidRequest: it is not a message
    """
    if not isinstance(value, dict):
        raise InvalidRequest(f"Each message must be an object; {where} is not.", param=where, code="invalid_type")
    role = role_of(value, ROLES, where)
    blocks = content_blocks(value.get("content"), f"{where}.content")
    if role != "user" or not any(block["type"] == RESULT for block in blocks):
        return (_message(raw, role, blocks, f"{where}.content"),)
    if len(blocks) == 1:
        return (_result(raw, blocks[0], f"{where}.content.0"),)
    return tuple(_pieces(read_elements(read_members(raw)["content"]), blocks, f"{where}.content"))


def _pieces(raws: Sequence[bytes], blocks: Sequence[Block], where: str) -> list[Message]:
    """Return a message for each result, and one for all other blocks, in the blocks' own bytes."""
    results = [
        _result(USER_START + raw + USER_END, block, f"{where}.{place}")
        for place, (raw, block) in enumerate(zip(raws, blocks, strict=True))
        if block["type"] == RESULT
    ]
    others = [place for place, block in enumerate(blocks) if block["type"] != RESULT]
    if not others:
        return results
    raw = USER_START + b",".join([raws[place] for place in others]) + USER_END
    return [*results, _message(raw, "user", [blocks[place] for place in others], where)]


def _result(raw: bytes, block: Block, where: str) -> Message:
    """Return a result as a message of role ``tool``."""
    answers = string_of(block, "tool_use_id", where)
    content = f"{where}.content"
    parts = [
        part_of(inner, f"{content}.{place}")
        for place, inner in enumerate(content_blocks(block.get("content"), content))
    ]
    return _built(raw, "tool", parts, answers=answers)


def _message(raw: bytes, role: Role, blocks: Sequence[Block], where: str) -> Message:
    """Return a message whose blocks are no results."""
    parts: list[Part] = []
    calls: list[ToolCall] = []
    reasoning: list[Block] = []
    for place, block in enumerate(blocks):
        kind = block["type"]
        if kind == "tool_use" and role == "assistant":
            calls.append(call_of(block, f"{where}.{place}"))
        elif kind in REASONING:
            reasoning.append(reasoning_part(block))
        else:
            parts.append(part_of(block, f"{where}.{place}"))
    return _built(raw, role, parts, calls=calls, reasoning=reasoning)


def _built(
    raw: bytes,
    role: Role,
    parts: Sequence[Part],
    *,
    calls: Sequence[ToolCall] = (),
    reasoning: Sequence[Block] = (),
    answers: str | None = None,
) -> Message:
    """Return a core message; its digest has neither reasoning nor empty texts."""
    parts = [part for part in parts if part]
    media = [part for part in parts if not isinstance(part, str)] + list(reasoning)
    digest = (meaning if len(raw) <= STEP_CHARS else long_meaning)(
        role, parts, calls, answers=answers or "", name="", audio=""
    )
    return Message(
        raw,
        role,
        printable("\n".join([part for part in parts if isinstance(part, str)])),
        digest,
        calls=tuple([ToolCall(printable(call.id), printable(call.name), printable(call.arguments)) for call in calls]),
        answers=answers and printable(answers),
        media=tuple(map(_printable_part, media) if media and has_surrogates(raw) else media),
    )


def _printable_part(part: Block) -> Block:
    """Return the part with U+FFFD for each unpaired surrogate."""
    printed: dict[str, JsonValue] = json.loads(printable(json.dumps(part, ensure_ascii=False)))
    return printed
