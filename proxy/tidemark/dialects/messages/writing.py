"""Writes messages of the Messages API: those of other dialects, the summary, and the pieces of one user turn together.

The dialect calls it for every request that does not go out as it came. A run of tool results and the user message after
it are one message again, because providers want all results of parallel calls in one. The summary is a block at the
beginning of the next user message, because some chat templates want the roles to alternate. Stored answers go out as a
client would send them back, and clipped messages keep all other bytes. Source: Anthropic API reference, "Create a
Message", and its guides "Tool use" and "Prompt caching".
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from itertools import takewhile
from typing import Literal

from tidemark.core.conversation.messages import NO_CONTENT, JsonValue, Message, ToolCall
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.bodies import answer_in, array_of, body_of, encode_json
from tidemark.dialects.messages.blocks import REASONING, block_of
from tidemark.dialects.messages.message import RESULT, USER_END, USER_START, is_message, read_message
from tidemark.dialects.raw_edits import clip_content, elements_of, with_member
from tidemark.dialects.raw_json import decode_value, read_elements, read_members

Kind = Literal["results", "user", "other"]
"""What a message's bytes are: tool results only, any other user message, or a message of another role."""
MOST_MARKS = 4
"""Cache marks that a request may have ("Prompt caching", "Cache limitations")."""
RENDERED = 128
"""Summaries whose block is cached; a summary goes out turn after turn."""
_MARK = re.compile(rb'"cache_control"[ \t\n\r]*:[ \t\n\r]*(\{[^{}]*\})')
"""What may be a mark. A mark holds no other object, so each byte is read once; ``_is_mark`` reads it as JSON."""
_NAME = b'"cache_control"'
_USER_ROLES = ("user", "tool")
"""Of messages that are a user turn, or a piece of one."""
_ID = re.compile(r"[^a-zA-Z0-9_-]")
"""Characters that Anthropic allows in no call's id; other providers use some."""
_TEXTS = frozenset({"text"})
_SENT_MEMBERS = ("role", "content")


def write_message(message: Message) -> bytes:
    """Write a message of any dialect; its text comes before its media and its calls.

    An assistant's media are not written: they are reasoning and items of tools of another provider. A system message
    has no place among the messages, since only some servers accept the role; it is empty. Any other message has a
    content: texts of white space are refused, and so are messages of nothing.
    """
    if message.is_system:
        return b""
    texts: list[JsonValue] = [{"type": "text", "text": message.text}] if message.text.strip() else []
    blocks = [*texts, *(map(block_of, message.media) if message.role != "assistant" else ())]
    if message.role == "tool":
        answer: JsonValue = blocks if blocks != texts else message.text
        result = {"type": RESULT, "tool_use_id": _call_id(message.answers or ""), "content": answer}
        return encode_json({"role": "user", "content": [result]})
    blocks += map(_tool_use, message.calls)
    content = blocks if blocks != texts else message.text if texts else NO_CONTENT
    return encode_json({"role": message.role, "content": content})


def own_message(text: str) -> bytes:
    """Write a message of Tidemark's own: the summary if no user message follows."""
    return USER_START + text_block(text) + USER_END


def joined_messages(messages: Iterable[Message], mark: bytes = b"") -> list[bytes]:
    """Return the elements of ``messages``: pieces of one user turn are joined, and the summary is in its place.

    :param mark: the ``cache_control`` of the summary's block; empty for none
    """
    pieces = [(_kind_of(message), message.raw or text_block(message.text, mark)) for message in placed(messages)]
    return _joined(pieces)


def placed(messages: Iterable[Message]) -> Sequence[Message]:
    """Return messages with those of the system that follow the summary if the API takes them.

    Such a message must follow a user turn, and precede an answer or be the last. So those that follow the summary are
    one message, and a user turn that follows comes before it. One without content may stand anywhere.
    """
    messages = list(messages)
    others = messages[1:]
    inner = list(takewhile(lambda message: message.is_system, others))
    if not inner:
        return messages
    first = messages[0]
    if first.raw and first.role != "assistant":  # a summary that the provider wrote is an answer
        return messages
    rest, place, is_behind_user = others[len(inner) :], 0, not first.raw
    while place < len(rest) and (rest[place].role in _USER_ROLES or not is_behind_user):
        is_behind_user, place = rest[place].role in _USER_ROLES, place + 1
    same = list(takewhile(_has_content, rest[place:]))
    texts = [message for message in inner if _has_content(message)]
    settings = [message for message in inner if not _has_content(message)]
    return [first, *settings, *rest[:place], *_as_one([*texts, *same]), *rest[place + len(same) :]]


def _has_content(message: Message) -> bool:
    """Whether a message is of the system, and says something."""
    return message.is_system and bool(message.text or message.media)


def _as_one(messages: Sequence[Message]) -> Sequence[Message]:
    """Return one message with the blocks of several, and the last one's other members."""
    if len(messages) < 2:
        return messages
    members: dict[str, bytes] = {}
    for message in messages:
        members |= read_members(message.raw, bounded=False)
    members["content"] = array_of([block for message in messages for block in _blocks_of(message.raw)])
    return [Message(body_of(members, {}), "system", "", b"")]


def joined_raws(raws: Iterable[bytes]) -> list[bytes]:
    """Return the same for messages that are bytes already."""
    return _joined([(_kind_of_raw(raw), raw) for raw in raws])


def summary_mark(fields: Mapping[str, bytes], messages: Sequence[Message]) -> bytes:
    """Return the ``cache_control`` for the summary's block; empty if the client does not cache, or marks four.

    The mark is a copy of the client's next one, else of the one before, because marks of an hour must come before
    those of five minutes ("Prompt caching", "Mixing different TTLs").

    :param messages: those that are forwarded
    """
    before = [mark for name in ("tools", "system") for mark in _marks_in(fields.get(name, b""))]
    after = [mark for message in messages for mark in _marks_in(message.raw)]
    whole = fields.get("cache_control", b"null")
    automatic = [whole] if whole.startswith(b"{") else []
    if len(before) + len(after) + len(automatic) >= MOST_MARKS:
        return b""
    nearest = [*after[:1], *before[-1:], *automatic]
    return nearest[0] if nearest else b""


@lru_cache(maxsize=RENDERED)
def text_block(text: str, mark: bytes = b"") -> bytes:
    """Write a text block. Its bytes depend on the text and the mark only (promise 5, frozen)."""
    block = encode_json({"type": "text", "text": text})
    return block[:-1] + b"," + _NAME + b":" + mark + b"}" if mark else block


def _joined(messages: Iterable[tuple[Kind | None, bytes]]) -> list[bytes]:
    """Join pieces; those of kind None are blocks of Tidemark's own, which go into the next user message."""
    elements: list[bytes] = []
    turn: list[bytes] = []
    """The messages of a user turn that is not written yet; the first may be a block of Tidemark's own."""
    has_block = only_results = False

    def end_turn() -> None:
        nonlocal turn, has_block, only_results
        if len(turn) == 1 and not has_block:
            elements.append(turn[0])
        elif turn:
            first = [turn[0]] if has_block else []
            blocks = [*first, *(block for raw in turn[len(first) :] for block in _blocks_of(raw))]
            elements.append(USER_START + b",".join(blocks) + USER_END)
        turn, has_block, only_results = [], False, False

    for kind, raw in messages:
        may_join = (has_block and len(turn) == 1 and kind == "user") or (only_results and kind in ("results", "user"))
        if not may_join:
            end_turn()
        if kind == "other":
            elements.append(raw)
            continue
        turn.append(raw)
        has_block = has_block or kind is None
        only_results = kind == "results"
    end_turn()
    return elements


def _blocks_of(raw: bytes) -> list[bytes]:
    """Return the blocks of a user message, each in its own bytes."""
    content = read_members(raw, bounded=False)["content"].strip()
    if content.startswith(b'"'):
        return [] if content == b'""' else [b'{"type":"text","text":' + content + b"}"]
    return read_elements(content)


def _kind_of(message: Message) -> Kind | None:
    if not message.raw:
        return None
    if message.role == "tool":
        return "results"
    return "user" if message.role == "user" else "other"


def _kind_of_raw(raw: bytes) -> Kind:
    members = read_members(raw, bounded=False)
    if decode_value(members.get("role", b"null"), "role") != "user":
        return "other"
    content = members.get("content", b"").lstrip()
    if RESULT.encode() not in raw or not content.startswith(b"["):
        return "user"
    kinds = [decode_value(read_members(block, bounded=False)["type"], "type") for block in read_elements(content)]
    return "results" if all(kind == RESULT for kind in kinds) else "user"


def _marks_in(raw: bytes) -> list[bytes]:
    return [value for value in _MARK.findall(raw) if _is_mark(value)] if _NAME in raw else []


def _is_mark(value: bytes) -> bool:
    """Whether a value is a cache mark; a tool's own parameter of that name is none."""
    with suppress(InvalidRequest):
        return decode_value(read_members(value, bounded=False).get("type", b"null"), "type") == "ephemeral"
    return False


def _tool_use(call: ToolCall) -> Mapping[str, JsonValue]:
    """Write a call as a block; its input must be an object."""
    try:
        arguments = json.loads(call.arguments or "{}")
    except (ValueError, RecursionError):
        arguments = call.arguments
    value = arguments if isinstance(arguments, dict) else {"input": arguments}
    return {"type": "tool_use", "id": _call_id(call.id), "name": call.name, "input": value}


def _call_id(name: str) -> str:
    return _ID.sub("_", name)


def replace_middle(message: Message, first: int, last: int, mark: str) -> Message:
    """Replace the characters from ``first`` to ``last`` of a message's text by a mark."""

    def clip(content: str) -> str:
        return clip_content(content, first, last, mark, _TEXTS)

    def clip_result(blocks: str) -> str:
        _, start, end = next(elements_of(blocks))
        return blocks[:start] + with_member(blocks[start:end], "content", clip) + blocks[end:]

    raw = message.raw if is_message(message.raw) else write_message(message)
    change = clip_result if message.role == "tool" else clip
    return read_message(with_member(raw.decode(), "content", change).encode())


def as_sent(raw: bytes) -> bytes:
    """Return a stored message as a client would send it; a message that is not an answer keeps its bytes.

    Neither an answer nor a text may be empty, the last block of an answer may not be thinking, and the official SDKs
    leave out what is null. Thinking before other blocks stays as it is, with its signature: providers check it. An
    answer of which nothing is left becomes ``NO_CONTENT``.
    """
    message = answer_in(raw)
    if message is None:
        return raw
    sendable = {name: message[name] for name in _SENT_MEMBERS if name in message}
    content = sendable.get("content")
    if isinstance(content, list):
        sendable["content"] = _sendable_blocks(content) or [{"type": "text", "text": NO_CONTENT}]
    elif isinstance(content, str) and not content.strip():
        sendable["content"] = NO_CONTENT
    return raw if sendable == message else encode_json(sendable)


def _sendable_blocks(content: list[JsonValue]) -> list[JsonValue]:
    """Return the blocks of an answer that a request may have.

    A text of white space stays between other texts, if it is part of what the answer means.
    """
    texts = [_text_of(block) for block in content]
    has_words = any(text and not text.isspace() for text in texts)
    sendable = [
        (block, text) for block, text in zip(content, texts, strict=True) if text is None or (text and has_words)
    ]
    while sendable and isinstance(block := sendable[-1][0], dict) and block.get("type") in REASONING:
        sendable.pop()  # the answer was cut off while the model thought
    return [_without_nulls(block) for block, _ in sendable]


def _text_of(block: JsonValue) -> str | None:
    """Return the text of a text block; None for any other block."""
    if not isinstance(block, dict) or block.get("type") != "text":
        return None
    text = block.get("text")
    return text if isinstance(text, str) else ""


def _without_nulls(block: JsonValue) -> JsonValue:
    """Return a block without members that are null; what is in them stays, because a call's input may have nulls."""
    if not isinstance(block, dict):
        return block
    return {name: member for name, member in block.items() if member is not None}
