"""Writes what Tidemark answers itself: responses, streamed or not, and errors.

Errors are OpenAI's envelope as a body, and the event ``error`` in a stream that has begun. Source: OpenAI API
reference, "The response object" and "Streaming events"; the fields of the SDK's ``ResponseErrorEvent``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.responses import REPEATED_MEMBERS
from tidemark.core.errors import TidemarkError, UpstreamError
from tidemark.core.report import OwnAnswer
from tidemark.dialects.bodies import encode_json, event_of, late_event
from tidemark.dialects.openai_errors import OpenAIErrors
from tidemark.dialects.raw_json import decode_value, read_json

ID = "resp_tidemark_"
MESSAGE_ID = "msg_tidemark_"
_NUMBER = re.compile(rb'"sequence_number"[ \t\n\r]*:[ \t\n\r]*(\d{1,15})')


def usage_of(input_tokens: int, output_tokens: int) -> Mapping[str, JsonValue]:
    """Return a response's ``usage`` with these counts, and with no tokens from a cache."""
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": input_tokens + output_tokens,
    }


NO_TOKENS: Mapping[str, JsonValue] = usage_of(0, 0)
"""The usage of an answer that no model gave, so nothing is billed."""


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
        name: decode_value(fields[name], name) if name in fields else default
        for name, default in REPEATED_MEMBERS.items()
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
        **{name: REPEATED_MEMBERS[name] if member is None else member for name, member in repeated.items()},
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


class ResponsesErrors(OpenAIErrors):
    """Writes errors; a request that is too long names ``input``."""

    messages_member = "input"

    def error_event(self, error: TidemarkError, previous: bytes = b"") -> bytes:
        """Write an error as an event of a stream that has begun.

        :param previous: the end of what the stream has sent, for the event's ``sequence_number``
        """
        body = json.loads(self.error(error))["error"]
        return error_event(body, previous)

    def late_reply_event(self, status: int, body: bytes) -> bytes:
        """Write an upstream's whole reply as an event; a page of HTML becomes an error in our words."""
        reply = read_json(body)
        if isinstance(reply, dict) and isinstance(reply.get("error"), dict) and reply.get("object") != "response":
            return error_event(reply["error"])
        if isinstance(reply, dict) and reply.get("object") == "response":
            kind = f"response.{reply.get('status') or 'completed'}"
            return late_event(kind, encode_json({"type": kind, "sequence_number": 0, "response": reply}))
        return self.error_event(UpstreamError(f"The upstream answered with status {status}."))


def error_event(error: dict[str, JsonValue], previous: bytes = b"") -> bytes:
    """Write the members of an error envelope as an event."""
    members = {name: error.get(name) for name in ("code", "message", "param")}
    body = {"type": "error", **members, "sequence_number": next_number(previous)}
    return late_event("error", encode_json(body))


def next_number(previous: bytes) -> int:
    """Return the number after the last ``sequence_number``; 0 if the stream has none."""
    numbers = _NUMBER.findall(previous)
    return int(numbers[-1]) + 1 if numbers else 0
