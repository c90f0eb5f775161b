"""Writes chat messages: those of any dialect, stored answers as a client would send them back, and clipped ones.

A conversation that came in one dialect and goes on in another passes here, and so do the bridges to upstreams that
speak chat completions only. The store has an answer as the upstream wrote it; with stored history, later requests send
it as an earlier message, with the same meaning. Source: OpenAI API reference, "Create chat completion", ``messages``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tidemark.core.conversation.messages import JsonValue, Message, Role, kind_of
from tidemark.dialects.bodies import answer_in, encode_json
from tidemark.dialects.chat.message import TEXT_PARTS, parse_message
from tidemark.dialects.raw_edits import clip_content, with_member

_PARTS = frozenset({"image_url", "input_audio", "file"})
"""Parts other than texts that a user's message may have."""
_SEALED = frozenset({"thinking", "redacted_thinking", "reasoning", "compaction", "compaction_summary"})
"""What a model wrote for itself, and only its provider can read."""
SENT_MEMBERS = ("role", "content", "refusal", "name", "tool_calls", "function_call", "audio")
"""All members that the reference allows in an assistant's message; strict servers refuse others."""
REASONING = frozenset({"reasoning_content", "reasoning_details", "thinking_blocks"})
"""What DeepSeek, Moonshot, OpenRouter and litellm want back with a call, even if it is empty. Others never send it."""
CALLS = {"tool_calls", "function_call", "audio"}
"""Members with which ``content`` may be null or missing."""
TEXTS = ("text", "refusal")
"""The types of an answer's parts; each has its text in a member of that name."""


def write_message(message: Message) -> bytes:
    """Write a message; its text comes before its media, and its digest stays the same.

    An assistant's media are no input of chat completions: they are reasoning and the items of built-in tools.
    """
    value: dict[str, JsonValue] = {"role": message.role}
    if message.name is not None:
        value["name"] = message.name
    if message.role == "tool":
        value["tool_call_id"] = message.answers or ""
    value["content"] = _content(message)
    if message.calls:
        value["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in message.calls
        ]
        if not message.text:
            value["content"] = None
    return encode_json(value)


def _content(message: Message) -> JsonValue:
    """Return a plain text if there is no media, else a list of parts."""
    parts = [part for medium in message.media if (part := _part_of(medium, message.role)) is not None]
    if not parts:
        return message.text
    texts = [{"type": "text", "text": message.text}] if message.text else []
    return [*texts, *parts]


def _part_of(medium: Mapping[str, JsonValue], role: Role) -> Mapping[str, JsonValue] | None:
    """Return a medium as a part that servers accept; None for what a model wrote for itself.

    Servers accept only texts in an answer. A medium that they would refuse becomes a text: its own text if it has one,
    else its type.
    """
    kind = kind_of(medium)
    if kind in _SEALED:
        return None
    if kind == "input_image" and isinstance(medium.get("image_url"), str):
        medium, kind = {"type": "image_url", "image_url": {"url": medium["image_url"]}}, "image_url"
    if kind in _PARTS and role != "assistant":
        return medium
    source = medium.get("source")
    if isinstance(source, dict) and source.get("type") == "text" and isinstance(source.get("data"), str):
        return {"type": "text", "text": source["data"]}
    return {"type": "text", "text": f"[{kind or 'attachment'}]"}


def replace_middle(message: Message, first: int, last: int, mark: str) -> Message:
    """Replace the characters from ``first`` to ``last`` of a text by a mark; all other bytes stay."""
    clipped = with_member(
        message.raw.decode(), "content", lambda raw: clip_content(raw, first, last, mark, TEXT_PARTS)
    ).encode()
    return parse_message(clipped, json.loads(clipped), 0)


def as_sent(raw: bytes) -> bytes:
    """Return a stored message as a client would send it; a message that is not an answer keeps its bytes.

    Members that are null or not allowed in requests are removed, and all of audio but its id. A null ``content`` beside
    a call stays: the reference has it so, clients send it, and some servers require the member. So does reasoning.
    """
    message = answer_in(raw)
    if message is None:
        return raw
    sendable = _sendable(message)
    return raw if sendable == message else encode_json(sendable)


def _sendable(message: dict[str, Any]) -> dict[str, Any]:
    """Return the members of an answer that a request may have."""
    names = REASONING.union(SENT_MEMBERS) if message.get("tool_calls") else SENT_MEMBERS
    members = {name: value for name, value in message.items() if name in names and value is not None}
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
