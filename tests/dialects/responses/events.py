"""Replies of the Responses API, whole and as events, for the tests of this folder."""

from __future__ import annotations

import json
from typing import Any

REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAAA"}
CALL = {
    "type": "function_call",
    "id": "fc_1",
    "call_id": "call_1",
    "name": "look",
    "arguments": '{"at":1}',
    "status": "completed",
}
CUSTOM = {"type": "custom_tool_call", "id": "ctc_1", "call_id": "call_2", "name": "patch", "input": "*** Begin"}
USAGE = {
    "input_tokens": 11,
    "input_tokens_details": {"cached_tokens": 7, "cache_write_tokens": 0},
    "output_tokens": 5,
    "output_tokens_details": {"reasoning_tokens": 0},
    "total_tokens": 16,
}


def text_item(text: str) -> dict[str, Any]:
    """A message of a response."""
    part = {"type": "output_text", "text": text, "annotations": [], "logprobs": []}
    return {"type": "message", "role": "assistant", "id": "msg_1", "status": "completed", "content": [part]}


def response(output: list[dict[str, Any]], status: str = "completed", **members: Any) -> dict[str, Any]:
    """A whole response."""
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "error": None,
        "incomplete_details": None,
        "instructions": None,
        "model": "scripted",
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        "usage": USAGE if status in ("completed", "incomplete") else None,
        **members,
    }


def events_of(output: list[dict[str, Any]], *, final: str = "completed", **members: Any) -> list[dict[str, Any]]:
    """The events of a response with these items, in OpenAI's order."""
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": response([], "in_progress")},
        {"type": "response.in_progress", "response": response([], "in_progress")},
    ]
    for place, item in enumerate(output):
        events += _item_events(place, item)
    events.append({"type": f"response.{final}", "response": response(output, final, **members)})
    return [{"sequence_number": number, **event} for number, event in enumerate(events)]


def _item_events(place: int, item: dict[str, Any]) -> list[dict[str, Any]]:
    where = {"item_id": item["id"], "output_index": place}
    empty = {**item, "status": "in_progress"}
    middle: list[dict[str, Any]] = []
    if item["type"] == "message":
        text, empty = item["content"][0]["text"], {**empty, "content": []}
        where["content_index"] = 0
        part = {"type": "output_text", "annotations": [], "logprobs": []}
        middle.append({"type": "response.content_part.added", **where, "part": {**part, "text": ""}})
        words = text.split(" ")
        pieces = [f" {word}" if number else word for number, word in enumerate(words)]
        middle += [{"type": "response.output_text.delta", **where, "delta": piece, "logprobs": []} for piece in pieces]
        middle.append({"type": "response.output_text.done", **where, "text": text, "logprobs": []})
        middle.append({"type": "response.content_part.done", **where, "part": {**part, "text": text}})
    for kind, member, name in (
        ("function_call", "arguments", "response.function_call_arguments"),
        ("custom_tool_call", "input", "response.custom_tool_call_input"),
    ):
        if item["type"] == kind:
            value, empty = item[member], {**empty, member: ""}
            middle += [{"type": f"{name}.delta", **where, "delta": letter} for letter in value]
            middle.append({"type": f"{name}.done", **where, member: value, "name": item["name"]})
    added = {"type": "response.output_item.added", "output_index": place, "item": empty}
    return [added, *middle, {"type": "response.output_item.done", "output_index": place, "item": item}]


def sse(events: list[dict[str, Any]], *, named: bool = True, numbered: bool = True, done: bool = False) -> bytes:
    """The events as a stream, as different upstreams write it."""
    lines: list[str] = []
    for event in events:
        body = event if numbered else {name: value for name, value in event.items() if name != "sequence_number"}
        name = f"event: {event['type']}\n" if named else ""
        lines.append(f"{name}data: {json.dumps(body, ensure_ascii=False, separators=(',', ':'))}\n\n")
    return "".join([*lines, "data: [DONE]\n\n"] if done else lines).encode()
