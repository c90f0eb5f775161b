"""Tidemark's own answers and errors are those that Anthropic's SDK reads, as a body and as events."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from anthropic.types import APIErrorObject, ErrorResponse, Message
from hypothesis import given
from hypothesis import strategies as st

from tests.dialects.messages.anthropic_talk import (
    EVENTS,
    calls,
    events_in,
    request_body,
    text,
    thinking,
    user,
    whole_reply,
)
from tidemark.core import errors
from tidemark.core.report import OwnAnswer
from tidemark.dialects.messages.dialect import MessagesDialect

DIALECT = MessagesDialect()
REQUEST = asyncio.run(DIALECT.parse(request_body([user("/context")])))
ANSWER = OwnAnswer("Total tokens: 7", "abc", 1.0)


def test_an_own_answer_is_a_message() -> None:
    """Its id says who gave it, and nothing is billed."""
    message = Message.model_validate_json(DIALECT.answer(REQUEST, ANSWER), strict=True)
    assert (message.id, message.model, message.stop_reason) == ("msg_tidemark_abc", "claude-x", "end_turn")
    assert (message.content[0].type, message.usage.input_tokens) == ("text", 0)


def test_an_own_answer_is_a_whole_stream() -> None:
    """Folded again, it is the same message."""
    stream = DIALECT.answer_events(REQUEST, ANSWER)
    kinds = [EVENTS.validate_python(data).type for data in events_in(stream)]
    assert kinds == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    fold = DIALECT.fold_stream()
    fold.feed(stream)
    reply = fold.reply()
    assert reply.complete
    assert reply.message is not None
    assert reply.message.text == ANSWER.text


def test_a_whole_reply_becomes_events_where_a_stream_has_begun() -> None:
    """Every block comes as its deltas."""
    blocks = [thinking("Hm."), text("Yes."), calls("f", "a", x=[1])]
    fold = DIALECT.fold_stream()
    stream = DIALECT.late_reply_event(200, whole_reply(*blocks, stop_reason="tool_use"))
    for data in events_in(stream):
        EVENTS.validate_python(data)
    fold.feed(stream)
    reply = fold.reply()
    assert reply.message is not None
    assert json.loads(reply.message.raw)["content"] == blocks
    assert (reply.complete, DIALECT.usage(reply.usage).input_tokens) == (True, 21)


WORDS = st.text(min_size=1, max_size=20)
BLOCKS = st.lists(
    st.one_of(
        WORDS.map(text),
        WORDS.map(thinking),
        st.builds(lambda name, arguments: calls(name, "a", **arguments), WORDS, st.dictionaries(st.just("x"), WORDS)),
        WORDS.map(lambda data: {"type": "redacted_thinking", "data": data}),
        WORDS.map(lambda found: {"type": "web_search_tool_result", "tool_use_id": "s", "content": [{"title": found}]}),
    ),
    min_size=1,
    max_size=5,
)


@given(blocks=BLOCKS, size=st.integers(1, 500))
def test_a_message_and_its_events_are_read_as_the_same(blocks: list[Any], size: int) -> None:
    """Of every kind of block, and wherever the network cuts the events."""
    body = whole_reply(*blocks)
    whole, fold, stream = DIALECT.fold_body(body), DIALECT.fold_stream(), DIALECT.late_reply_event(200, body)
    for at in range(0, len(stream), size):
        fold.feed(stream[at : at + size])
    streamed = fold.reply()
    assert whole.message is not None
    assert streamed.message is not None
    assert json.loads(streamed.message.raw) == json.loads(whole.message.raw)
    assert (streamed.message.digest, streamed.complete) == (whole.message.digest, whole.complete)


@pytest.mark.parametrize(
    ("status", "body", "kind", "message"),
    [
        (529, b'{"type":"error","error":{"type":"overloaded_error","message":"O"}}', "overloaded_error", "O"),
        (429, b'{"error": {"message": "Slower.", "code": "rate"}}', "rate_limit_error", "Slower."),
        (400, b'{"error": "No."}', "invalid_request_error", "No."),
        (500, b'{"error": {"message": "Oops."}}', "api_error", "Oops."),
        (502, b"<html>Bad gateway</html>", "api_error", "The upstream answered with status 502."),
    ],
)
def test_a_late_error_is_an_error_event(status: int, body: bytes, kind: str, message: str) -> None:
    """In whichever envelope the upstream wrote it."""
    stream = DIALECT.late_reply_event(status, body)
    assert b"event: error\n" in stream
    error = ErrorResponse.model_validate(events_in(stream)[0]).error
    assert (error.type, error.message) == (kind, message)


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (200, whole_reply(text("\ud83d"))),
        (500, b'{"error": {"message": "\\ud83d"}}'),
        (500, b'{"type": "error", "error": {"type": "api_error", "message": "\\ud83d"}}'),
    ],
)
def test_a_late_reply_may_have_halves_of_characters(status: int, body: bytes) -> None:
    """Models cut emoji in two where their answer ends; the half stays an escape."""
    stream = DIALECT.late_reply_event(status, body)
    assert rb"\ud83d" in stream
    assert events_in(stream)


@pytest.mark.parametrize(
    ("error", "kind", "param"),
    [
        (errors.InvalidRequest("No.", param="messages.0.role"), "invalid_request_error", "messages.0.role"),
        (errors.ModelNotFound("No."), "not_found_error", "model"),
        (errors.ConversationNotFound("No."), "not_found_error", None),
        (errors.DialectNotServed("No."), "invalid_request_error", None),
        (errors.NotAuthenticated("No."), "authentication_error", None),
        (errors.ForeignPage("No."), "permission_error", None),
        (errors.BodyTooLarge("No."), "request_too_large", None),
        (errors.ImportLimit("No."), "rate_limit_error", None),
        (errors.ServerBusy("No."), "overloaded_error", None),
        (errors.UpstreamStalled("No."), "timeout_error", None),
        (errors.UpstreamBroken("No."), "api_error", None),
        (errors.TidemarkError("No."), "api_error", None),
    ],
)
def test_an_error_has_anthropics_type_and_tidemarks_code(
    error: errors.TidemarkError, kind: str, param: str | None
) -> None:
    """As a body and as an event."""
    body = json.loads(DIALECT.error(error))
    assert body == {"type": "error", "error": {"type": kind, "message": "No.", "code": error.code, "param": param}}
    if kind != "request_too_large":  # it is in the reference, and not among the SDK's types
        ErrorResponse.model_validate(body)
    stream = DIALECT.error_event(error)
    assert stream.startswith(b"\n\nevent: error\ndata: ")
    assert events_in(stream) == [body]


def test_a_request_that_is_too_long_is_told_in_anthropics_words() -> None:
    """Claude Code looks for them, and compacts its own history then."""
    error = json.loads(DIALECT.error(errors.ContextLengthExceeded("The context has 9 tokens.")))["error"]
    assert error["message"] == "prompt is too long: The context has 9 tokens."
    assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
    APIErrorObject.model_validate(error | {"type": "api_error"})
