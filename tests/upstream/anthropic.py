"""Answers as Anthropic's Messages API sends them.

Source: docs.anthropic.com, "Streaming Messages" and "Errors".
"""

from __future__ import annotations

import json
from typing import Any

MESSAGES_URL = "https://api.anthropic.com/v1/messages"

START: dict[str, Any] = {
    "type": "message_start",
    "message": {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {
            "input_tokens": 25,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": 10,
            "output_tokens": 1,
        },
    },
}
TEXT: list[dict[str, Any]] = [
    START,
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "ping"},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": " world"}},
    {"type": "content_block_stop", "index": 0},
]
TOOL: list[dict[str, Any]] = [
    START,
    {
        "type": "content_block_start",
        "index": 0,
        "content_block": {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}},
    },
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "input_json_delta", "partial_json": '{"city":'},
    },
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "input_json_delta", "partial_json": ' "Paris"}'},
    },
    {"type": "content_block_stop", "index": 0},
]
OVERLOADED: list[dict[str, Any]] = [{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}]


def end(reason: str) -> list[dict[str, Any]]:
    """The last events of a complete stream."""
    return [
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": 15},
        },
        {"type": "message_stop"},
    ]


def events(items: list[dict[str, Any]]) -> bytes:
    """Server-sent events as Anthropic writes them."""
    return "".join(f"event: {item['type']}\ndata: {json.dumps(item)}\n\n" for item in items).encode()


def message(*content: dict[str, Any], stop_reason: str = "end_turn") -> dict[str, Any]:
    """A whole answer."""
    return {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "content": list(content),
        "stop_reason": stop_reason,
        "stop_sequence": None,
        "usage": {"input_tokens": 25, "output_tokens": 15},
    }


def error(kind: str, text: str) -> dict[str, Any]:
    """An error answer."""
    return {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_9"}
