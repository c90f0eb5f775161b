"""Rewrites a stored answer as a client would send it back.

It leaves out members and blocks that a request may not have.

The store has an answer as the upstream wrote it. With stored history, later requests send it as an earlier message. Its
meaning does not change, so neither does its place in the prefix chain. Source: Anthropic API reference, "Create a
Message": neither an answer nor a text may be empty, the last block of an answer may not be thinking, and the official
SDKs leave out what is null.
"""

from __future__ import annotations

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.stored_format import NO_CONTENT
from tidemark.dialects.bodies import answer_in, encode_json
from tidemark.dialects.messages.blocks import REASONING

_SENT_MEMBERS = ("role", "content")


def as_sent(raw: bytes) -> bytes:
    """Return a stored message as a client would send it; a message that is not an answer keeps its bytes.

    Thinking before other blocks stays as it is, with its signature: providers check it. An answer of which nothing is
    left becomes ``NO_CONTENT``.
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

    A text of white space stays between other texts, where it is part of what the answer means.
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
