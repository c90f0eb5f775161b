"""A stored answer as a client would send it back: without what only answers have.

Between the store, which keeps an answer as the upstream wrote it, and the request that it goes out in as history. What
a message means, and so its place in the chain, does not change. Source: OpenAI API reference, "Create chat completion",
``messages``, "Assistant message".
"""

from __future__ import annotations

import json
from typing import Any

SENT_MEMBERS = ("role", "content", "refusal", "name", "tool_calls", "function_call", "audio")
"""All that the reference allows in an assistant's message; strict servers refuse what is beside."""
CALLS = {"tool_calls", "function_call", "audio"}
"""Beside these ``content`` may be null or missing."""
_ANSWER = b"assistant"


def as_sent(raw: bytes) -> bytes:
    """Return a stored message as a client would send it; anything but an answer as the very same bytes.

    Members that are null or that no request may have go, and of audio all but its id. A content that is null beside a
    call stays: the reference has it so, clients send it, and some servers want the member.
    """
    if _ANSWER not in raw:
        return raw
    try:
        message = json.loads(raw)
    except (ValueError, RecursionError):  # its parser tells what is wrong with it
        return raw
    if not isinstance(message, dict) or message.get("role") != _ANSWER.decode():
        return raw
    sent = _sent(message)
    return raw if sent == message else _written(sent)


def _sent(message: dict[str, Any]) -> dict[str, Any]:
    sent = {name: value for name, value in message.items() if name in SENT_MEMBERS and value is not None}
    if sent.get("tool_calls") == []:
        del sent["tool_calls"]
    elif isinstance(calls := sent.get("tool_calls"), list):
        sent["tool_calls"] = [_without_nulls(call) for call in calls]
    if isinstance(audio := sent.get("audio"), dict) and "id" in audio:
        sent["audio"] = {"id": audio["id"]}
    if "content" not in sent and not (sent.keys() & CALLS and "content" not in message):
        sent["content"] = None if sent.keys() & CALLS else ""  # needed where nothing is called
    return sent


def _without_nulls(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _without_nulls(one) for name, one in value.items() if one is not None}


def _written(message: dict[str, Any]) -> bytes:
    try:
        return json.dumps(message, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError:  # half a character
        return json.dumps(message, separators=(",", ":")).encode()
