"""Writes a message of any dialect as a chat message, from its role, text, calls and media.

A conversation that came in one dialect and goes on in another passes here, and so do the bridges to upstreams that
speak chat completions only. Source: OpenAI API reference, "Create chat completion", ``messages``.
"""

from __future__ import annotations

import json

from proxy.core.conversation.messages import JsonValue, Message


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
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _content(message: Message) -> JsonValue:
    """Return a plain text where there is no media, else a list of parts."""
    if not message.media or message.role == "assistant":
        return message.text
    texts = [{"type": "text", "text": message.text}] if message.text else []
    return [*texts, *message.media]
