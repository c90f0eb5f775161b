"""Rewrites a stored answer as a client would send it back: without the members that only answers have.

With stored history, later requests send stored answers as earlier items. Their meaning does not change, so neither does
their place in the prefix chain. Source: OpenAI API guide, "Conversation state", "Manually manage conversation state".
"""

from __future__ import annotations

import json
from typing import Any

from tidemark.core.conversation.messages import kind_of
from tidemark.dialects.bodies import encode_json
from tidemark.dialects.responses.parts import TEXTS, without_nulls
from tidemark.dialects.responses.writing import assistant_message

_WITH_STATUS = frozenset({"message", "function_call", "custom_tool_call", "reasoning"})
"""Items whose ``status`` a request may leave out; other calls require it."""
NAMED = frozenset({"message", "function_call", "custom_tool_call"})
"""Items whose id a request may leave out. Without it, a provider does not look for the reasoning before them."""


def as_sent(raw: bytes) -> bytes:
    """Return a stored message as a client would send it; a message that is no answer keeps its bytes.

    Members that are null and ``status`` are removed. Reasoning goes out where it is encrypted, with the ids of the
    turn; else it stays out, because only the provider that made it could read it, and an answer in texts becomes the
    plain message that every server accepts.
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
