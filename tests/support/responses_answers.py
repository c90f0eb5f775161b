"""The scripted upstream's responses. Source: OpenAI API reference, "Create a model response" and "Streaming events"."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

from tests.support.answers import JSON_HEADERS, SSE_HEADERS, Answer, Json, Received, Turn, halves, sse
from tests.support.chat_answers import error

__all__ = ["error", "failure", "response", "tell"]

CARRIED = (
    "instructions",
    "metadata",
    "previous_response_id",
    "reasoning",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
    "truncation",
)
"""Members of the request that a response repeats."""


def response(turn: Turn, request: Received) -> Json:
    """A whole response."""
    asked = request.json
    items = _items(turn, request.mark)
    usage = {
        "input_tokens": turn.input_tokens,
        "input_tokens_details": {"cached_tokens": 7, "cache_write_tokens": 0},
        "output_tokens": turn.output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": turn.input_tokens + turn.output_tokens,
    }
    standard: Json = {"metadata": {}, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "store": True}
    return {
        "id": f"resp_{request.mark}",
        "object": "response",
        "created_at": 1,
        "status": "completed",
        "model": "scripted",
        "error": None,
        "incomplete_details": None,
        **standard,
        **{member: asked[member] for member in CARRIED if asked.get(member) is not None},
        "output": items,
        "usage": usage,
        "unknown_field": {"kept": True},
    }


def tell(turn: Turn, request: Received) -> Answer:
    """A turn as this dialect tells it, streamed or not as asked."""
    told = response(turn, request)
    if not request.streams:
        return Answer([json.dumps(told, indent=1).encode()])
    number = count()

    def event(kind: str, **members: Any) -> bytes:
        return sse(kind, {"type": kind, **members, "sequence_number": next(number)})

    begun = {**told, "status": "in_progress", "output": [], "usage": None}
    pieces = [event("response.created", response=begun), event("response.in_progress", response=begun)]
    for index, item in enumerate(told["output"]):
        empty = {**item, **_EMPTY[item["type"]], "status": "in_progress"}
        pieces.append(event("response.output_item.added", output_index=index, item=empty))
        pieces += [
            event(kind, output_index=index, item_id=item["id"], **members) for kind, members in _steps(item, turn)
        ]
        pieces.append(event("response.output_item.done", output_index=index, item=item))
    pieces.append(event("response.completed", response=told))
    return Answer(pieces, headers=list(SSE_HEADERS))


def failure(message: str) -> bytes:
    """An error in the middle of a stream."""
    body = {"type": "error", "code": "server_error", "message": message, "param": None, "sequence_number": 99}
    return sse("error", body)


def counted(tokens: int) -> Answer:
    """The answer of ``/responses/input_tokens``."""
    return Answer([json.dumps({"object": "response.input_tokens", "input_tokens": tokens}).encode()], 200, JSON_HEADERS)


_EMPTY: dict[str, Json] = {"reasoning": {"summary": []}, "message": {"content": []}, "function_call": {"arguments": ""}}
"""What an item has not yet when it begins."""


def _items(turn: Turn, mark: str) -> list[Json]:
    """The output of a turn."""
    items: list[Json] = []
    if turn.thought:
        summary = [{"type": "summary_text", "text": turn.thought}]
        items.append({"id": f"rs_{mark}", "type": "reasoning", "summary": summary, "encrypted_content": "c2VhbGVk"})
    if turn.text:
        part = {"type": "output_text", "text": turn.text, "annotations": [], "logprobs": []}
        said = {"id": f"msg_{mark}", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
        items.append(said)
    for place, call in enumerate(turn.calls):
        ids = {"id": f"fc_{mark}_{place}", "call_id": f"call_{mark}_{place}"}
        named = {"name": call.name, "arguments": call.arguments, "status": "completed"}
        items.append({**ids, "type": "function_call", **named})
    return items


def _steps(item: Json, turn: Turn) -> list[tuple[str, Json]]:
    """The events between an item's beginning and its end."""
    if item["type"] == "function_call":
        delta, done = "response.function_call_arguments.delta", "response.function_call_arguments.done"
        pieces: list[tuple[str, Json]] = [(delta, {"delta": half}) for half in halves(item["arguments"])]
        return [*pieces, (done, {"arguments": item["arguments"], "name": item["name"]})]
    if item["type"] == "reasoning":
        at: Json = {"summary_index": 0}
        part = item["summary"][0]
        return [
            ("response.reasoning_summary_part.added", {**at, "part": {**part, "text": ""}}),
            ("response.reasoning_summary_text.delta", {**at, "delta": turn.thought}),
            ("response.reasoning_summary_text.done", {**at, "text": turn.thought}),
            ("response.reasoning_summary_part.done", {**at, "part": part}),
        ]
    place: Json = {"content_index": 0}
    part = item["content"][0]
    words = [("response.output_text.delta", {**place, "delta": word, "logprobs": []}) for word in turn.words]
    return [
        ("response.content_part.added", {**place, "part": {**part, "text": ""}}),
        *words,
        ("response.output_text.done", {**place, "text": turn.text, "logprobs": []}),
        ("response.content_part.done", {**place, "part": part}),
    ]
