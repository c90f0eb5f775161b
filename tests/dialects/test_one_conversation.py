"""A conversation is the same one in chat completions and in the Messages API: equal digests, message by message."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.conversation.messages import Message
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.messages.dialect import MessagesDialect

CHAT, MESSAGES = ChatDialect(), MessagesDialect()
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30).filter(str.strip)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=5,
)
ARGUMENTS = st.dictionaries(TEXTS, VALUES, max_size=3)
IMAGES = st.binary(min_size=1, max_size=8).map(bytes.hex)


@dataclass(frozen=True)
class Exchange:
    """A question, its answer with calls, and their results."""

    texts: list[str]
    image: str | None
    answer: str
    arguments: list[dict[str, Any]]
    results: list[str]


EXCHANGES = st.builds(
    Exchange,
    st.lists(TEXTS, min_size=1, max_size=3),
    st.none() | IMAGES,
    TEXTS,
    st.lists(ARGUMENTS, max_size=3),
    st.lists(TEXTS, min_size=3, max_size=3),
)


def in_chat(talk: list[Exchange]) -> list[dict[str, Any]]:
    """The talk as messages of chat completions."""
    messages: list[dict[str, Any]] = []
    for turn, exchange in enumerate(talk):
        parts: list[dict[str, Any]] = [{"type": "text", "text": text} for text in exchange.texts]
        if exchange.image:
            parts.append({"type": "image_url", "image_url": {"url": f"data:image/png;base64,{exchange.image}"}})
        messages.append({"role": "user", "content": parts})
        functions = [{"name": "look", "arguments": json.dumps(given)} for given in exchange.arguments]
        calls = [{"id": f"c{turn}_{n}", "type": "function", "function": body} for n, body in enumerate(functions)]
        messages.append({"role": "assistant", "content": exchange.answer, **({"tool_calls": calls} if calls else {})})
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": result}
            for call, result in zip(calls, exchange.results, strict=False)
        ]
    return messages


def in_messages(talk: list[Exchange]) -> list[dict[str, Any]]:
    """The talk as messages of Anthropic; the results of one turn stand before the next question."""
    messages: list[dict[str, Any]] = []
    results: list[dict[str, Any]] = []
    for turn, exchange in enumerate(talk):
        blocks: list[dict[str, Any]] = [{"type": "text", "text": text} for text in exchange.texts]
        if exchange.image:
            source = {"type": "base64", "media_type": "image/png", "data": exchange.image}
            blocks.append({"type": "image", "source": source})
        messages.append({"role": "user", "content": [*results, *blocks]})
        ids = [f"c{turn}_{n}" for n in range(len(exchange.arguments))]
        calls = [
            {"type": "tool_use", "id": call, "name": "look", "input": given}
            for call, given in zip(ids, exchange.arguments, strict=True)
        ]
        thinking = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
        messages.append({"role": "assistant", "content": [thinking, {"type": "text", "text": exchange.answer}, *calls]})
        results = [
            {"type": "tool_result", "tool_use_id": call, "content": [{"type": "text", "text": result}]}
            for call, result in zip(ids, exchange.results, strict=False)
        ]
    return [*messages, {"role": "user", "content": results}] if results else messages


def digests(messages: tuple[Message, ...]) -> list[tuple[str, bytes]]:
    """Role and digest of each message."""
    return [(message.role, message.digest) for message in messages]


@given(st.lists(EXCHANGES, min_size=1, max_size=3))
def test_a_tool_conversation_is_the_same_in_both_dialects(talk: list[Exchange]) -> None:
    """Also where each message is written in the other dialect, and read again."""
    chat = CHAT.parser.parse_now(json.dumps({"model": "m", "messages": in_chat(talk)}).encode())
    anthropic = MESSAGES.parser.parse_now(json.dumps({"model": "m", "messages": in_messages(talk)}).encode())
    assert digests(chat.messages) == digests(anthropic.messages)
    raws = [MESSAGES.write(message) for message in chat.messages]
    assert digests(MESSAGES.parse_messages(raws)) == digests(chat.messages)
    whole = MESSAGES.parser.parse_now(MESSAGES.body_with_raw(anthropic, raws))
    assert digests(whole.messages) == digests(chat.messages)
