"""The official SDKs' own pydantic models, which read every body and event of the three dialects."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anthropic.types import ErrorResponse as AnthropicError
from anthropic.types import Message, MessageCreateParams, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import CompletionCreateParams
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_create_params import ResponseCreateParams
from pydantic import TypeAdapter

from tests.support.answers import Json

WHOLE: Mapping[str, TypeAdapter[Any]] = {
    "chat": TypeAdapter(ChatCompletion),
    "responses": TypeAdapter(Response),
    "messages": TypeAdapter(Message),
}
EVENT: Mapping[str, TypeAdapter[Any]] = {
    "chat": TypeAdapter(ChatCompletionChunk),
    "responses": TypeAdapter(ResponseStreamEvent),
    "messages": TypeAdapter(RawMessageStreamEvent),
}
REQUEST: Mapping[str, TypeAdapter[Any]] = {
    "chat": TypeAdapter(CompletionCreateParams),
    "responses": TypeAdapter(ResponseCreateParams),
    "messages": TypeAdapter(MessageCreateParams),
}
ANTHROPIC_ERROR = TypeAdapter(AnthropicError)


def events_of(body: bytes) -> list[Json]:
    """The events of a stream, pings left out, which the SDKs leave out too."""
    lines = [line[6:] for line in body.splitlines() if line.startswith(b"data: {")]
    return [event for event in map(json.loads, lines) if event.get("type") != "ping"]


def check_answer(dialect: str, body: bytes, *, streams: bool, failed: bool) -> None:
    """Fail unless the SDK's models read an answer strictly."""
    if failed:
        error = json.loads(body)
        if dialect == "messages":
            ANTHROPIC_ERROR.validate_python(error)
        assert error["error"]["message"]
        assert error["error"]["type"]
    elif streams:
        events = events_of(body)
        assert events
        for event in events:
            EVENT[dialect].validate_json(json.dumps(event), strict=True)
    else:
        WHOLE[dialect].validate_json(body, strict=True)
