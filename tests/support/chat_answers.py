"""The scripted upstream's chat completions. Source: OpenAI API reference, "Create chat completion"."""

from __future__ import annotations

import json
from typing import Any

from tests.support.answers import JSON_HEADERS, SSE_HEADERS, Answer, Headers, Json, Received, Turn, halves

DONE = b"data: [DONE]\n\n"


def whole(text: str | None, *, usage: bool = True, finish: str = "stop", **message: Any) -> Answer:
    """A chat completion that is not streamed."""
    said = {"role": "assistant", "content": text, "refusal": None, "annotations": [], **message}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "message": said, "logprobs": None, "finish_reason": finish}],
        "unknown_field": {"kept": True},
    }
    if usage:
        counts = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
        body["usage"] = {**counts, "prompt_tokens_details": {"cached_tokens": 7}}
    return Answer([json.dumps(body, indent=1).encode()])


def event(**members: Any) -> bytes:
    """One event of a stream."""
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    return b"data: " + json.dumps({**head, **members}).encode() + b"\n\n"


def chunk(**choice: Any) -> bytes:
    """One event of a stream, with one choice."""
    return event(choices=[{"index": 0, **choice}])


def streamed(text: str, *, pace: float = 0.0, done: bool = True, finish: bool = True) -> Answer:
    """A stream of the words of ``text``."""
    pieces: list[bytes | float] = [chunk(delta={"role": "assistant", "content": ""}, finish_reason=None)]
    for word in Turn(text).words:
        pieces.append(chunk(delta={"content": word}, finish_reason=None))
        if pace:
            pieces.append(pace)
    if finish:
        pieces.append(chunk(delta={}, finish_reason="stop"))
    if done:
        pieces.append(DONE)
    return Answer(pieces, headers=list(SSE_HEADERS))


def error(status: int, message: str, *, code: str | None = None, headers: Headers | None = None) -> Answer:
    """An error in OpenAI's envelope, which chat completions and responses share."""
    body = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}
    return Answer([json.dumps(body, indent=2).encode()], status, [*JSON_HEADERS, *(headers or [])])


def failure(message: str) -> bytes:
    """An error in the middle of a stream."""
    body = {"error": {"message": message, "type": "server_error", "param": None, "code": None}}
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def tell(turn: Turn, request: Received) -> Answer:
    """A turn as this dialect tells it, streamed or not as asked."""
    calls = [
        {
            "id": f"call_{request.mark}_{place}",
            "type": "function",
            "function": {"name": c.name, "arguments": c.arguments},
        }
        for place, c in enumerate(turn.calls)
    ]
    asked = request.json.get("stream_options") or {}
    if not request.streams:
        more: Json = {"reasoning_content": turn.thought} if turn.thought else {}
        if calls:
            more["tool_calls"] = calls
        return whole(turn.text or None, finish="tool_calls" if calls else "stop", **more)
    pieces = [chunk(delta={"role": "assistant", "content": ""}, finish_reason=None)]
    if turn.thought:
        pieces.append(chunk(delta={"reasoning_content": turn.thought}, finish_reason=None))
    if turn.text:
        pieces += [chunk(delta={"content": word}, finish_reason=None) for word in turn.words]
    for place, call in enumerate(calls):
        pieces += _call(place, call)
    pieces.append(chunk(delta={}, finish_reason="tool_calls" if calls else "stop"))
    if asked.get("include_usage"):
        total = turn.input_tokens + turn.output_tokens
        counts: Json = {"prompt_tokens": turn.input_tokens, "completion_tokens": turn.output_tokens}
        counts |= {"total_tokens": total, "prompt_tokens_details": {"cached_tokens": 7}}
        pieces.append(event(choices=[], usage=counts))
    return Answer([*pieces, DONE], headers=list(SSE_HEADERS))


def _call(place: int, call: Json) -> list[bytes]:
    """The events of one call: its head, and its arguments in two pieces."""
    head = {**call, "index": place, "function": {"name": call["function"]["name"], "arguments": ""}}
    steps = [{"index": place, "function": {"arguments": half}} for half in halves(call["function"]["arguments"])]
    return [chunk(delta={"tool_calls": [step]}, finish_reason=None) for step in (head, *steps)]
