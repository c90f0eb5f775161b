"""What Tidemark answers itself in the Responses API is valid by the official SDK's own models."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai.types.responses import Response, ResponseErrorEvent, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.dialects.responses.events import events_of, response, sse, text_item
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import ContextLengthExceeded, InvalidRequest, UpstreamError
from tidemark.core.report import OwnAnswer
from tidemark.dialects.responses.dialect import ResponsesDialect

RESPONSES = ResponsesDialect()
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
ANSWER = OwnAnswer(text="3 messages,\n12 tokens", id="abc", created_at=1.5)


def request(**members: Any) -> ModelRequest:
    """A request."""
    body = {"model": "small", "input": "Hi.", **members}
    return RESPONSES.parser.parse_now(json.dumps(body).encode())


def events_in(stream: bytes) -> list[dict[str, Any]]:
    """The data of each event; its name is its type."""
    events: list[dict[str, Any]] = []
    for block in stream.decode().strip().split("\n\n"):
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        events.append(event)
    return events


@pytest.mark.parametrize(
    "members", [{}, {"instructions": "Be brief.", "tools": [], "metadata": {"a": "b"}, "temperature": None}]
)
def test_an_answer_is_a_valid_response(members: dict[str, Any]) -> None:
    """It repeats what the request asked for, as every response does."""
    read = Response.model_validate(json.loads(RESPONSES.answer(request(**members), ANSWER)), strict=True)
    assert (read.output_text, read.model, read.status) == (ANSWER.text, "small", "completed")
    assert read.instructions == members.get("instructions")


def test_an_answers_events_are_valid_and_in_order() -> None:
    """From ``response.created`` to ``response.completed``, numbered without a gap."""
    events = events_in(RESPONSES.answer_events(request(stream=True), ANSWER))
    read = [EVENT.validate_python(event, strict=True) for event in events]
    assert [event.sequence_number for event in read] == list(range(len(read)))
    assert (read[0].type, read[-1].type) == ("response.created", "response.completed")
    assert read[-1].response.output_text == ANSWER.text


def test_an_own_answer_is_read_like_an_upstreams() -> None:
    """The turn that it is in can be found again."""
    whole = RESPONSES.fold_body(RESPONSES.answer(request(), ANSWER))
    fold = RESPONSES.fold_stream()
    fold.feed(RESPONSES.answer_events(request(), ANSWER))
    streamed = fold.reply()
    assert whole.message is not None
    assert streamed.message is not None
    assert whole.message.digest == streamed.message.digest


def test_an_error_within_a_stream_is_a_valid_event_that_continues_the_numbers() -> None:
    """The client's order of events has no gap."""
    previous = sse(events_of([text_item("Fine weather.")])[:5])
    event = events_in(RESPONSES.error_event(UpstreamError("It broke."), previous))[0]
    read = ResponseErrorEvent.model_validate(event, strict=True)
    assert (read.sequence_number, read.message, read.code) == (5, "It broke.", "upstream_error")


@pytest.mark.parametrize("previous", [b"", b'data: {"type": "response.created"}\n\n'])
def test_an_error_begins_the_numbers_where_an_upstream_has_none(previous: bytes) -> None:
    """llama.cpp sends none."""
    assert events_in(RESPONSES.error_event(UpstreamError("It broke."), previous))[0]["sequence_number"] == 0


def test_an_error_is_openais_envelope_with_this_apis_member() -> None:
    """``input`` is too long, not ``messages``."""
    error = json.loads(RESPONSES.error(ContextLengthExceeded("Too long.")))["error"]
    assert (error["param"], error["code"]) == ("input", "context_length_exceeded")
    error = json.loads(RESPONSES.error(InvalidRequest("No.", param="input[0]")))["error"]
    assert error["param"] == "input[0]"


def test_a_late_reply_is_an_event() -> None:
    """A whole response ends the stream; an envelope and a page of HTML become errors."""
    whole = json.dumps(response([text_item("Fine.")])).encode()
    assert EVENT.validate_python(events_in(RESPONSES.late_reply_event(200, whole))[0]).type == "response.completed"
    envelope = b'{"error": {"message": "slow", "type": "x", "param": null, "code": "rate_limit"}}'
    event = events_in(RESPONSES.late_reply_event(429, envelope))[0]
    assert (event["type"], event["code"], event["message"]) == ("error", "rate_limit", "slow")
    assert events_in(RESPONSES.late_reply_event(502, b"<html>"))[0]["code"] == "upstream_error"
