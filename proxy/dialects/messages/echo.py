"""Rewrites a stored answer as a client would send it back.

It leaves out members and blocks that a request may not have.

The store has an answer as the upstream wrote it. With stored history, later requests send it as an earlier message. Its
meaning does not change, so neither does its place in the prefix chain. Source: Anthropic API reference, "Create a
Message": texts must not be empty, and the official SDKs leave out what is null.
"""

from __future__ import annotations

import json

from proxy.core.conversation.messages import JsonValue
from proxy.dialects.bodies import encode_json

_SENT_MEMBERS = ("role", "content")
_ANSWER = b"assistant"


def as_sent(raw: bytes) -> bytes:
    """Return a stored message as a client would send it; a message that is not an answer keeps its bytes.

    Thinking stays as it is, with its signature: providers check it.
    """
    if _ANSWER not in raw:
        return raw
    try:
        message = json.loads(raw)
    except (ValueError, RecursionError):  # the parser of the request raises the right error
        return raw
    if not isinstance(message, dict) or message.get("role") != _ANSWER.decode():
        return raw
    sendable = {name: message[name] for name in _SENT_MEMBERS if name in message}
    content = sendable.get("content")
    if isinstance(content, list):
        sendable["content"] = [_without_nulls(block) for block in content if not _is_empty_text(block)]
    return raw if sendable == message else encode_json(sendable)


def _is_empty_text(block: JsonValue) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and not block.get("text")


def _without_nulls(block: JsonValue) -> JsonValue:
    """Return a block without members that are null; what is in them stays, because a call's input may have nulls."""
    if not isinstance(block, dict):
        return block
    return {name: member for name, member in block.items() if member is not None}
