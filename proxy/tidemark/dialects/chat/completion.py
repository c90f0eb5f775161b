"""Writes answers of Tidemark's own in chat completions, and the chunks of a completion that was not streamed.

Source: OpenAI API reference, "The chat completion object" and "The chat completion chunk object".
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.report import OwnAnswer
from tidemark.dialects.bodies import encode_json
from tidemark.dialects.raw_json import decode_value

NO_TOKENS: Mapping[str, JsonValue] = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
"""The usage of an answer that no model gave, so nothing is billed."""
ID_PREFIX = "chatcmpl-tidemark-"
"""Begins the id of each completion of Tidemark's own."""
MOST_CHOICES = 128
"""The reference's maximum of ``n``."""


def completion(request: ModelRequest, answer: OwnAnswer) -> bytes:
    """Write the answer as one object; all of its ``n`` choices are the same."""
    message: JsonValue = {"role": "assistant", "content": answer.text, "refusal": None, "annotations": []}
    choices = [
        {"index": index, "message": message, "logprobs": None, "finish_reason": "stop"} for index in _choices(request)
    ]
    return encode_json({**_head("chat.completion", request, answer), "choices": choices, "usage": NO_TOKENS})


def event_stream(request: ModelRequest, answer: OwnAnswer) -> bytes:
    """Write the answer as a whole event stream; with ``include_usage`` the usage comes last, as in the reference."""
    includes_usage = _wants_usage(request)
    head = _head("chat.completion.chunk", request, answer) | ({"usage": None} if includes_usage else {})
    deltas: list[tuple[Mapping[str, JsonValue], str | None]] = [
        ({"role": "assistant", "content": "", "refusal": None}, None),
        ({"content": answer.text}, None),
        ({}, "stop"),
    ]
    chunks: list[Mapping[str, JsonValue]] = [
        {**head, "choices": [{"index": index, "delta": delta, "logprobs": None, "finish_reason": reason}]}
        for delta, reason in deltas
        for index in _choices(request)
    ]
    if includes_usage:
        chunks.append({**head, "choices": [], "usage": NO_TOKENS})
    return b"".join([b"data: " + encode_json(chunk) + b"\n\n" for chunk in chunks]) + b"data: [DONE]\n\n"


def chunks_of(completion: Mapping[str, JsonValue]) -> bytes:
    """Write a whole completion as the events of a stream that has begun.

    Each choice is one chunk; the usage comes after them, as in a stream with ``include_usage``.
    """
    head = {name: value for name, value in completion.items() if name not in ("object", "choices", "usage")}
    head["object"] = "chat.completion.chunk"
    choices = completion.get("choices")
    chunks: list[Mapping[str, JsonValue]] = [
        {**head, "choices": [_streamed_choice(choice)]}
        for choice in (choices if isinstance(choices, list) else ())
        if isinstance(choice, dict)
    ]
    if completion.get("usage"):
        chunks.append({**head, "choices": [], "usage": completion["usage"]})
    return b"".join([b"data: " + encode_json(chunk) + b"\n\n" for chunk in chunks]) + b"data: [DONE]\n\n"


def _streamed_choice(choice: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return a choice with its message as one delta, whose calls have the index that streams need."""
    message = choice.get("message")
    delta = dict(message) if isinstance(message, dict) else {}
    if isinstance(calls := delta.get("tool_calls"), list):
        delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(calls) if isinstance(call, dict)]
    return {**{name: value for name, value in choice.items() if name != "message"}, "delta": delta}


def _head(kind: str, request: ModelRequest, answer: OwnAnswer) -> dict[str, JsonValue]:
    return {"id": ID_PREFIX + answer.id, "object": kind, "created": int(answer.created_at), "model": request.model}


def _choices(request: ModelRequest) -> range:
    count = decode_value(request.fields.get("n", b"null"), "n")
    return range(min(max(count, 1), MOST_CHOICES) if isinstance(count, int) else 1)


def _wants_usage(request: ModelRequest) -> bool:
    options = decode_value(request.fields.get("stream_options", b"null"), "stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True
