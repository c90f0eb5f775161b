"""Writes messages as items of a Responses request: those of other dialects, stored answers, clipped ones.

``dialect.py`` calls it for the requests that go upstream. The store has an answer as the upstream wrote it; with stored
history, later requests send it as earlier items, with the same meaning. Source: OpenAI API reference, "Create a model
response", ``input``; its guide "Conversation state", "Manually manage conversation state".
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import Any

from tidemark.core.conversation.messages import JsonValue, Message, kind_of, printable
from tidemark.dialects.bodies import array_of, encode_json
from tidemark.dialects.raw_edits import clip_content, clip_texts, with_member
from tidemark.dialects.raw_json import read_elements
from tidemark.dialects.responses.items import read_item
from tidemark.dialects.responses.parts import TEXTS, item_part, without_nulls

RENDERED = 128
"""System messages of our own whose bytes are cached; a summary goes out turn after turn."""
_STREAMS = ("stdout", "stderr")
_WITH_STATUS = frozenset({"message", "function_call", "custom_tool_call", "reasoning"})
"""Items whose ``status`` a request may leave out; other calls require it."""
NAMED = frozenset({"message", "function_call", "custom_tool_call"})
"""Items whose id a request may leave out. Without it, a provider does not look for the reasoning before them."""


@lru_cache(maxsize=RENDERED)
def system_item(text: str) -> bytes:
    """Write a system message of our own. Its bytes depend on the text only (promise 5, frozen)."""
    return encode_json({"role": "system", "content": text})


def write_message(message: Message) -> bytes:
    """Write a message of any dialect; its digest stays the same.

    An assistant's turn becomes an item for its text and one for each call, with commas between them. Its media are no
    input of this API.
    """
    if message.role == "tool":
        output: JsonValue = message.text
        if message.media:
            output = _parts(message)
        return encode_json({"type": "function_call_output", "call_id": message.answers or "", "output": output})
    if message.role != "assistant":
        return encode_json({"role": message.role, "content": _parts(message) if message.media else message.text})
    items: list[bytes] = []
    if message.text or not message.calls:
        items.append(encode_json(assistant_message(message.text)))
    for call in message.calls:
        members = {"call_id": call.id, "name": call.name, "arguments": call.arguments}
        items.append(encode_json({"type": "function_call", **members}))
    return b",".join(items)


def assistant_message(text: str) -> dict[str, JsonValue]:
    """Return an assistant's text as the message that every server accepts.

    llama.cpp demands the type, and vLLM refuses parts of text without an id and a status (vLLM issue 54224).
    """
    return {"type": "message", "role": "assistant", "content": text}


def _parts(message: Message) -> JsonValue:
    texts = [{"type": "input_text", "text": message.text}] if message.text else []
    return [*texts, *map(item_part, message.media)]


def replace_middle(message: Message, first: int, last: int, mark: str) -> Message:
    """Replace the characters from ``first`` to ``last`` of a message's text by a mark."""
    raw = message.raw.decode()
    item = json.loads(raw)
    member = "output" if "output" in item else "content"

    def clip(content: str) -> str:
        if item.get("type") == "shell_call_output" and isinstance(item["output"], list):
            return json.dumps(_clip_streams(item["output"], first, last, mark), ensure_ascii=False)
        return clip_content(content, first, last, mark, TEXTS)

    clipped = with_member(raw, member, clip).encode()
    return read_item(clipped, json.loads(clipped), member).message


def _clip_streams(chunks: list[Any], first: int, last: int, mark: str) -> list[Any]:
    """Clip what a shell wrote; each chunk keeps its outcome."""
    places = [(chunk, name) for chunk in chunks if isinstance(chunk, dict) for name in _STREAMS]
    texts = [printable(chunk[name]) if isinstance(chunk.get(name), str) else "" for chunk, name in places]
    for (chunk, name), text in zip(places, clip_texts(texts, first, last, mark), strict=True):
        if name in chunk:
            chunk[name] = text
    return chunks


def as_sent(raw: bytes) -> bytes:
    """Return a stored message as a client would send it; a message that is no answer keeps its bytes.

    Members that are null and ``status`` are removed. Encrypted reasoning goes out, with the ids of the
    turn. Other reasoning stays out, because only the provider that made it could read it. Without encrypted reasoning,
    an answer in texts becomes the plain message that every server accepts.
    """
    try:
        items = json.loads(b"[" + raw + b"]")
    except (ValueError, RecursionError):  # the parser of the request raises the right error
        return raw
    if not all(isinstance(item, dict) and _is_answer(item) for item in items):
        return raw
    is_encrypted = any(item.get("type") == "reasoning" and item.get("encrypted_content") for item in items)
    sendable = [_sendable(item, is_encrypted=is_encrypted) for item in items if not _is_left_out(item)]
    return raw if sendable == items or not sendable else b",".join([encode_json(item) for item in sendable])


def _is_answer(item: dict[str, Any]) -> bool:
    """Return whether an item is of the assistant."""
    return item.get("role") == "assistant" or ("role" not in item and not str(item.get("type")).endswith("_output"))


def _is_left_out(item: dict[str, Any]) -> bool:
    """Return whether an item is reasoning that nobody else could read."""
    return item.get("type") == "reasoning" and not item.get("encrypted_content")


def _sendable(item: dict[str, Any], *, is_encrypted: bool) -> dict[str, Any]:
    """Return the members of an item that a request may have."""
    kind = kind_of(item)
    members = {name: value for name, value in item.items() if value is not None}
    if "content" in members:
        members["content"] = without_nulls(members["content"])
    if kind in _WITH_STATUS:
        members.pop("status", None)
    if is_encrypted:
        return members
    if kind in NAMED:
        members.pop("id", None)
    text = _plain_text(item.get("content")) if kind == "message" else None
    return members if text is None else assistant_message(text)


def _plain_text(content: Any) -> str | None:
    """Return the text of a content that is texts and refusals only; None for any other part."""
    if not isinstance(content, list) or not content:
        return None
    texts: list[str] = []
    for part in content:
        member = TEXTS.get(part.get("type", "")) if isinstance(part, dict) else None
        text = part.get(member) if member else None
        if not isinstance(text, str):
            return None
        texts.append(text)
    return "\n".join(texts)


def array_without(array: bytes, messages: Sequence[Message], places: Collection[int]) -> bytes:
    """Remove the items of the messages at these places; each leaves with the comma and the white space before it.

    :param array: the member's value; a string becomes an array of what remains
    :param messages: the array's messages, whose ``raw`` is their items with commas between them
    """
    if not array.lstrip().startswith(b"["):
        return array_of([message.raw for place, message in enumerate(messages) if place not in places])
    raws, gaps, end = read_elements(array), [], 0
    for raw in raws:
        start = array.index(raw, end)
        gaps.append(array[end:start])
        end = start + len(raw)
    pieces: list[bytes] = []
    first = 0
    for place, message in enumerate(messages):
        count = _count_items(raws, first, message)
        if place not in places:
            for item in range(first, first + count):
                pieces += (gaps[item], raws[item])
        first += count
    return b"".join([gaps[0], *pieces[1:], array[end:]])


def _count_items(raws: Sequence[bytes], first: int, message: Message) -> int:
    """Return how many items a message has, the first one of which is ``first``."""
    count, length = 1, len(raws[first])
    while length < len(message.raw):
        length += 1 + len(raws[first + count])
        count += 1
    return count
