"""The scripted upstream's messages. Source: Anthropic API reference, "Messages", "Streaming Messages" and "Errors"."""

from __future__ import annotations

import json
from typing import Any

from tests.support.answers import Answer, Headers, Json, Received, Turn, halves, sse

JSON_HEADERS: Headers = [(b"content-type", b"application/json"), (b"request-id", b"req_1")]
SSE_HEADERS: Headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"request-id", b"req_1")]
KINDS = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    529: "overloaded_error",
}
"""The type of an error by its status."""


def message(turn: Turn, request: Received) -> Json:
    """A whole message."""
    usage = {
        "input_tokens": turn.input_tokens - 7,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": 7,
        "output_tokens": turn.output_tokens,
        "service_tier": "standard",
    }
    return {
        "id": f"msg_{request.mark}",
        "type": "message",
        "role": "assistant",
        "model": "scripted",
        "content": _blocks(turn, request.mark),
        "stop_reason": "tool_use" if turn.calls else "end_turn",
        "stop_sequence": None,
        "usage": usage,
        "unknown_field": {"kept": True},
    }


def tell(turn: Turn, request: Received) -> Answer:
    """A turn as this dialect tells it, streamed or not as asked."""
    told = message(turn, request)
    if not request.streams:
        return Answer([json.dumps(told, indent=1).encode()], headers=list(JSON_HEADERS))
    begun = {**told, "content": [], "stop_reason": None, "usage": {**told["usage"], "output_tokens": 1}}
    pieces = [_event("message_start", message=begun)]
    for index, block in enumerate(told["content"]):
        pieces += _streamed_block(index, block, turn)
        if index == 0:
            pieces.insert(2, _event("ping"))
    ended = {"stop_reason": told["stop_reason"], "stop_sequence": None}
    pieces.append(_event("message_delta", delta=ended, usage={"output_tokens": turn.output_tokens}))
    return Answer([*pieces, _event("message_stop")], headers=list(SSE_HEADERS))


def error(status: int, text: str, *, code: str | None = None) -> Answer:
    """An error in Anthropic's envelope, which knows types and no codes."""
    kind = code or KINDS.get(status, "api_error")
    body = {"type": "error", "error": {"type": kind, "message": text}, "request_id": "req_1"}
    return Answer([json.dumps(body).encode()], status, list(JSON_HEADERS))


def failure(text: str) -> bytes:
    """An error in the middle of a stream."""
    return _event("error", error={"type": "overloaded_error", "message": text})


def counted(tokens: int) -> Answer:
    """The answer of ``/messages/count_tokens``."""
    return Answer([json.dumps({"input_tokens": tokens}).encode()], headers=list(JSON_HEADERS))


def _event(kind: str, **members: Any) -> bytes:
    return sse(kind, {"type": kind, **members})


def _blocks(turn: Turn, mark: str) -> list[Json]:
    """The content of a turn."""
    blocks: list[Json] = []
    if turn.thought:
        blocks.append({"type": "thinking", "thinking": turn.thought, "signature": "c2lnbmVk"})
    if turn.text:
        blocks.append({"type": "text", "text": turn.text})
    for place, call in enumerate(turn.calls):
        called = {"id": f"toolu_{mark}_{place}", "name": call.name, "input": json.loads(call.arguments)}
        blocks.append({"type": "tool_use", **called})
    return blocks


def _streamed_block(index: int, block: Json, turn: Turn) -> list[bytes]:
    """The events of one block."""
    deltas: list[Json]
    match block["type"]:
        case "thinking":
            empty = {**block, "thinking": "", "signature": ""}
            deltas = [{"type": "thinking_delta", "thinking": turn.thought}]
            deltas.append({"type": "signature_delta", "signature": block["signature"]})
        case "text":
            empty = {"type": "text", "text": ""}
            deltas = [{"type": "text_delta", "text": word} for word in turn.words]
        case _:
            empty = {**block, "input": {}}
            text = json.dumps(block["input"])
            deltas = [{"type": "input_json_delta", "partial_json": half} for half in halves(text)]
    start = _event("content_block_start", index=index, content_block=empty)
    steps = [_event("content_block_delta", index=index, delta=delta) for delta in deltas]
    return [start, *steps, _event("content_block_stop", index=index)]
