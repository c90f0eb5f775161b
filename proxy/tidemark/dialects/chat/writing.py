"""Writes a message of any dialect as a chat message, from its role, text, calls and media.

A conversation that came in one dialect and goes on in another passes here, and so do the bridges to upstreams that
speak chat completions only. Source: OpenAI API reference, "Create chat completion", ``messages``.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.core.conversation.messages import JsonValue, Message, Role, kind_of
from tidemark.dialects.bodies import encode_json

_PARTS = frozenset({"image_url", "input_audio", "file"})
"""Parts other than texts that a user's message may have."""
_SEALED = frozenset({"thinking", "redacted_thinking", "reasoning", "compaction", "compaction_summary"})
"""What a model wrote for itself, and only its provider can read."""


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
    """Return a plain text where there is no media, else a list of parts."""
    parts = [part for medium in message.media if (part := _part_of(medium, message.role)) is not None]
    if not parts:
        return message.text
    texts = [{"type": "text", "text": message.text}] if message.text else []
    return [*texts, *parts]


def _part_of(medium: Mapping[str, JsonValue], role: Role) -> Mapping[str, JsonValue] | None:
    """Return a medium as a part that servers accept; None for what a model wrote for itself.

    An answer may have texts only, and what the format lacks becomes a text: its own where it has one, else its type.
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
