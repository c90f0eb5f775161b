"""Replies of the Messages API are folded into the message that a client sends back, whole or streamed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dialects.messages.anthropic_talk import (
    EVENTS,
    assistant,
    calls,
    delta,
    event,
    events_in,
    streamed_reply,
    streamed_text,
    text,
    thinking,
    whole_reply,
)
from tidemark.core.conversation.reply import Reply
from tidemark.dialects.messages.dialect import MessagesDialect

DIALECT = MessagesDialect()
CITATION = {
    "type": "char_location",
    "cited_text": "tide",
    "document_index": 0,
    "document_title": None,
    "start_char_index": 0,
    "end_char_index": 4,
}


def start(index: int, **block: Any) -> bytes:
    """The start of a block."""
    return event("content_block_start", index=index, content_block=block)


RICH = streamed_reply(
    [
        start(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="The tide "),
        delta(0, "thinking_delta", thinking="turns."),
        delta(0, "signature_delta", signature="c2lnbmVk"),
    ],
    [start(1, type="redacted_thinking", data="c2VhbGVk")],
    [*streamed_text("Let me look.", 2), delta(2, "citations_delta", citation=CITATION)],
    [
        start(3, type="tool_use", id="a", name="look", input={}),
        delta(3, "input_json_delta", partial_json=""),
        delta(3, "input_json_delta", partial_json='{"at": [1,'),
        delta(3, "input_json_delta", partial_json=" 2]}"),
    ],
    [start(4, type="tool_use", id="b", name="wait", input={})],
    reason="tool_use",
)
RICH_BLOCKS = [
    thinking("The tide turns."),
    {"type": "redacted_thinking", "data": "c2VhbGVk"},
    text("Let me look.", citations=[CITATION]),
    calls("look", "a", at=[1, 2]),
    calls("wait", "b"),
]


def folded(stream: bytes, size: int = 10_000) -> Reply:
    """A stream that comes in pieces of this size."""
    fold = DIALECT.fold_stream()
    for at in range(0, len(stream), size):
        fold.feed(stream[at : at + size])
    return fold.reply()


def blocks_of(reply: Reply) -> Any:
    """The content of a reply's message."""
    assert reply.message is not None
    return json.loads(reply.message.raw)["content"]


def test_the_events_of_these_tests_are_those_of_the_sdk() -> None:
    """Each of them, by its type."""
    for data in events_in(b"".join(RICH)):
        if data["type"] != "ping":
            EVENTS.validate_python(data)


@pytest.mark.parametrize("size", [1, 7, 100, 10_000])
def test_a_stream_of_every_delta_is_the_message_that_a_client_echoes(size: int) -> None:
    """Wherever the network cuts it."""
    reply = folded(b"".join(RICH), size)
    assert blocks_of(reply) == RICH_BLOCKS
    assert reply.complete
    whole = DIALECT.fold_body(whole_reply(*RICH_BLOCKS, stop_reason="tool_use"))
    assert reply.message is not None
    assert whole.message is not None
    assert reply.message.digest == whole.message.digest
    assert reply.message.digest == DIALECT.parse_messages([json.dumps(assistant(*RICH_BLOCKS)).encode()])[0].digest


@given(st.lists(st.integers(1, 400), max_size=12), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_cuts_and_line_ends_change_nothing(cuts: list[int], line_end: bytes) -> None:
    """The event-stream format allows any of them."""
    stream = b"".join(RICH).replace(b"\n", line_end)
    fold = DIALECT.fold_stream()
    for cut in cuts:
        fold.feed(stream[:cut])
        stream = stream[cut:]
    fold.feed(stream)
    reply = fold.reply()
    assert (blocks_of(reply), reply.complete) == (RICH_BLOCKS, True)


def test_input_is_what_was_read_from_the_cache_or_written_to_it_too() -> None:
    """The first event has the input, a later one the final output."""
    for reply in (folded(b"".join(RICH)), DIALECT.fold_body(whole_reply(text("Yes.")))):
        usage = DIALECT.usage(reply.usage)
        assert (usage.input_tokens, usage.cached_tokens, usage.output_tokens) == (21, 7, 5)
    assert DIALECT.usage({"input_tokens": "many", "output_tokens": True}).input_tokens is None
    lives = {"ephemeral_5m_input_tokens": 1, "ephemeral_1h_input_tokens": 2}
    usage = DIALECT.usage({"input_tokens": 1, "cache_creation_input_tokens": 3, "cache_creation": lives})
    assert (usage.cache_write_tokens, usage.hour_write_tokens) == (3, 2)


@pytest.mark.parametrize(
    "stream",
    [
        streamed_reply(streamed_text("Yes."), stops=False),
        streamed_reply(streamed_text("Yes."), reason=""),
        streamed_reply(streamed_text("Yes."))[:4],
    ],
)
def test_a_stream_without_its_end_or_its_reason_is_not_complete(stream: list[bytes]) -> None:
    """Its text is read all the same."""
    reply = folded(b"".join(stream))
    assert not reply.complete
    assert blocks_of(reply)[0]["text"] == "Yes."


def test_a_stream_without_its_beginning_is_complete() -> None:
    """llama.cpp sends no ``message_start`` where its first token is a part of an emoji."""
    reply = folded(b"".join(streamed_reply(streamed_text("Yes."))[1:]))
    assert (blocks_of(reply), reply.complete) == ([text("Yes.")], True)
    assert DIALECT.usage(reply.usage).input_tokens is None


def test_an_error_within_a_stream_is_the_replys_error() -> None:
    """And no end is waited for."""
    problem = {"type": "overloaded_error", "message": "Overloaded"}
    reply = folded(b"".join([*streamed_reply(streamed_text("Yes."))[:4], event("error", error=problem)]))
    assert (reply.error, reply.complete) == (problem, False)


def test_the_end_is_noticed_with_its_event_and_all_after_it_is_skipped() -> None:
    """The turn is stored before this event is released."""
    fold = DIALECT.fold_stream()
    stream = b"".join(streamed_reply(streamed_text("Yes.")))
    fold.feed(stream)
    assert fold.ended
    fold.feed(b"".join(streamed_text("No.")))
    assert blocks_of(fold.reply()) == [text("Yes.")]
    assert DIALECT.before_end(stream) == stream[: stream.rindex(b"event: message_stop")]
    assert DIALECT.before_end(b"".join(RICH[:3])) == b"".join(RICH[:3])


def test_an_input_that_was_cut_off_is_empty() -> None:
    """The reply ended at max_tokens."""
    cut = [start(0, type="tool_use", id="a", name="f", input={}), delta(0, "input_json_delta", partial_json='{"a": ')]
    assert blocks_of(folded(b"".join(streamed_reply(cut, reason="max_tokens")))) == [calls("f", "a")]


@pytest.mark.parametrize("data", [b"", b"[]", b"<html>", b'{"type": "message", "content": "Hi."}', b'{"content": []}'])
def test_a_body_that_is_no_message_has_none(data: bytes) -> None:
    """Nothing is stored of it."""
    reply = DIALECT.fold_body(data)
    assert (reply.message, reply.complete) == (None, False)


def test_an_unknown_delta_is_joined_with_its_block() -> None:
    """Texts are joined, lists extended, and the newest of all else counts."""
    pieces = [
        start(0, type="new", said="A"),
        delta(0, "new_delta", said="B", marks=[1]),
        delta(0, "new_delta", said="C", marks=[2], at=7),
    ]
    assert blocks_of(folded(b"".join(streamed_reply(pieces)))) == [
        {"type": "new", "said": "ABC", "marks": [1, 2], "at": 7}
    ]


def test_an_emoji_in_two_pieces_is_one() -> None:
    """JavaScript cuts between its halves."""
    halves = [
        start(0, type="text", text=""),
        delta(0, "text_delta", text="\ud83c"),
        delta(0, "text_delta", text="\udf0a"),
    ]
    assert blocks_of(folded(b"".join(streamed_reply(halves)))) == [text("🌊")]


def test_an_event_in_two_lines_of_data_is_one() -> None:
    """Lines of data are joined by line ends, also where no name of the event comes before them."""
    fold = DIALECT.fold_stream()
    fold.feed(b'data: {"type": "content_block_start", "index": 0,\n')
    fold.feed(b'data: "content_block": {"type": "text", "text": "Hi."}}\n\n')
    message = fold.reply().message
    assert message is not None
    assert message.text == "Hi."
