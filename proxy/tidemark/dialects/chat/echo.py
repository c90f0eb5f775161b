"""Rewrites a stored answer as a client would send it back: without the members that only answers have.

The store has an answer as the upstream wrote it. With stored history, later requests send it as an earlier message. Its
meaning does not change, so neither does its place in the prefix chain. Source: OpenAI API reference, "Create chat
completion", ``messages``, "Assistant message".
"""

from __future__ import annotations

from typing import Any

from tidemark.dialects.bodies import answer_in, encode_json

SENT_MEMBERS = ("role", "content", "refusal", "name", "tool_calls", "function_call", "audio")
"""All members that the reference allows in an assistant's message; strict servers refuse others."""
CALLS = {"tool_calls", "function_call", "audio"}
"""Members with which ``content`` may be null or missing."""
TEXTS = ("text", "refusal")
"""The types of an answer's parts; each has its text in a member of that name."""


def as_sent(raw: bytes) -> bytes:
    """Return a stored message as a client would send it; a message that is not an answer keeps its bytes.

    Members that are null or not allowed in requests are removed, and all of audio but its id. A null ``content`` beside
    a call stays: the reference has it so, clients send it, and some servers require the member.
    """
    message = answer_in(raw)
    if message is None:
        return raw
    sendable = _sendable(message)
    return raw if sendable == message else encode_json(sendable)


def _sendable(message: dict[str, Any]) -> dict[str, Any]:
    """Return the members of an answer that a request may have."""
    members = {name: value for name, value in message.items() if name in SENT_MEMBERS and value is not None}
    if members.get("tool_calls") == []:
        del members["tool_calls"]
    elif isinstance(calls := members.get("tool_calls"), list):
        members["tool_calls"] = [_without_nulls(call) for call in calls]
    if isinstance(content := members.get("content"), list):
        members["content"] = [_text_part(part) for part in content]
    if isinstance(audio := members.get("audio"), dict) and "id" in audio:
        members["audio"] = {"id": audio["id"]}
    if "content" not in members and not (members.keys() & CALLS and "content" not in message):
        members["content"] = None if members.keys() & CALLS else ""  # required in an answer without calls
    return members


def _text_part(part: Any) -> Any:
    """Return a text part with its type and text only, as requests have it. Any other part stays."""
    if isinstance(part, dict) and part.get("type") in TEXTS and isinstance(part.get(part["type"]), str):
        return {name: part[name] for name in ("type", part["type"])}
    return part


def _without_nulls(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _without_nulls(item) for name, item in value.items() if item is not None}
