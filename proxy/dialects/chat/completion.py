"""An answer of Tidemark's own in the format of chat completions, streamed or not.

Source: OpenAI API reference, "The chat completion object" and "The chat completion chunk object".
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from proxy.core.conversation.messages import JsonValue
from proxy.core.conversation.request import ModelRequest
from proxy.core.report import OwnAnswer
from proxy.dialects.raw_json import decode_value

NO_TOKENS: Mapping[str, JsonValue] = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
"""No model was asked, so nothing is billed."""
ID_PREFIX = "chatcmpl-tidemark-"
"""Completions of Tidemark's own are known by it."""
MOST_CHOICES = 128
"""The reference's maximum of ``n``."""


def completion(request: ModelRequest, answer: OwnAnswer) -> bytes:
    """The answer as one object; each of ``n`` choices is the same."""
    message: JsonValue = {"role": "assistant", "content": answer.text, "refusal": None, "annotations": []}
    choices = [
        {"index": index, "message": message, "logprobs": None, "finish_reason": "stop"} for index in _choices(request)
    ]
    return _dumped({**_head("chat.completion", request, answer), "choices": choices, "usage": NO_TOKENS})


def event_stream(request: ModelRequest, answer: OwnAnswer) -> bytes:
    """The answer as a whole stream of events; with ``include_usage`` the usage comes last, as the reference says."""
    wanted = _wants_usage(request)
    head = _head("chat.completion.chunk", request, answer) | ({"usage": None} if wanted else {})
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
    if wanted:
        chunks.append({**head, "choices": [], "usage": NO_TOKENS})
    return b"".join([b"data: " + _dumped(chunk) + b"\n\n" for chunk in chunks]) + b"data: [DONE]\n\n"


def _head(kind: str, request: ModelRequest, answer: OwnAnswer) -> dict[str, JsonValue]:
    return {"id": ID_PREFIX + answer.id, "object": kind, "created": int(answer.created_at), "model": request.model}


def _choices(request: ModelRequest) -> range:
    """The indices of the choices that are asked for."""
    asked = decode_value(request.fields.get("n", b"null"), "n")
    return range(min(max(asked, 1), MOST_CHOICES) if isinstance(asked, int) else 1)


def _wants_usage(request: ModelRequest) -> bool:
    options = decode_value(request.fields.get("stream_options", b"null"), "stream_options")
    return isinstance(options, dict) and options.get("include_usage") is True


def _dumped(value: JsonValue) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
