"""Writes an answer of Tidemark's own as a response, streamed or not.

Source: OpenAI API reference, "The response object" and "Streaming events".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.report import OwnAnswer
from tidemark.dialects.bodies import encode_json, event_of
from tidemark.dialects.raw_json import decode_value

ID = "resp_tidemark_"
MESSAGE_ID = "msg_tidemark_"


def usage_of(input_tokens: int, output_tokens: int) -> Mapping[str, JsonValue]:
    """Return a response's ``usage`` of these counts, nothing of which came from a cache."""
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input_tokens + output_tokens,
    }


NO_TOKENS: Mapping[str, JsonValue] = usage_of(0, 0)
"""The usage of an answer that no model gave, so nothing is billed."""
_DEFAULTS: Mapping[str, JsonValue] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": False,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
}
"""Members of the request that a response repeats, with their defaults."""


def response_body(request: ModelRequest, answer: OwnAnswer) -> bytes:
    """Write the answer as one response."""
    return encode_json(_response(request, answer, "completed"))


def event_stream(request: ModelRequest, answer: OwnAnswer) -> bytes:
    """Write the answer as a whole event stream, in the order of a response with one message."""
    item, part = _item(answer, "in_progress"), _part("")
    in_item: dict[str, JsonValue] = {"item_id": item["id"], "output_index": 0, "content_index": 0}
    events: list[tuple[str, Mapping[str, JsonValue]]] = [
        ("response.created", {"response": _response(request, answer, "in_progress")}),
        ("response.in_progress", {"response": _response(request, answer, "in_progress")}),
        ("response.output_item.added", {"output_index": 0, "item": {**item, "content": []}}),
        ("response.content_part.added", {**in_item, "part": part}),
        ("response.output_text.delta", {**in_item, "delta": answer.text, "logprobs": []}),
        ("response.output_text.done", {**in_item, "text": answer.text, "logprobs": []}),
        ("response.content_part.done", {**in_item, "part": _part(answer.text)}),
        ("response.output_item.done", {"output_index": 0, "item": _item(answer, "completed")}),
        ("response.completed", {"response": _response(request, answer, "completed")}),
    ]
    return b"".join([event(kind, number, members) for number, (kind, members) in enumerate(events)])


def event(kind: str, number: int, members: Mapping[str, JsonValue]) -> bytes:
    """Write one event of a stream.

    :param number: counts the stream's events from 0
    """
    body = encode_json({"type": kind, "sequence_number": number, **members})
    return event_of(kind, body)


def _response(request: ModelRequest, answer: OwnAnswer, status: str) -> dict[str, JsonValue]:
    is_over = status == "completed"
    output: list[JsonValue] = [_item(answer, status)] if is_over else []
    members = response_object(request.fields, status, output, NO_TOKENS if is_over else None)
    return {**members, "id": ID + answer.id, "created_at": int(answer.created_at)}


def response_object(
    fields: Mapping[str, bytes], status: str, output: Sequence[JsonValue], usage: JsonValue
) -> dict[str, JsonValue]:
    """Return the members of a response, with those of its request that a response repeats.

    :param fields: the request's members; the caller adds ``id`` and ``created_at``
    """
    repeated = {
        name: decode_value(fields[name], name) if name in fields else default for name, default in _DEFAULTS.items()
    }
    return {
        "id": "",
        "object": "response",
        "created_at": 0,
        "status": status,
        "background": False,
        "error": None,
        "incomplete_details": None,
        "model": decode_value(fields["model"], "model"),
        "output": list(output),
        **{name: _DEFAULTS[name] if member is None else member for name, member in repeated.items()},
        "usage": usage,
    }


def _item(answer: OwnAnswer, status: str) -> dict[str, JsonValue]:
    content = [_part(answer.text)] if status == "completed" else []
    return {
        "id": MESSAGE_ID + answer.id,
        "type": "message",
        "status": status,
        "role": "assistant",
        "content": content,
    }


def _part(text: str) -> dict[str, JsonValue]:
    return {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
