"""Replies of the Responses API are read, whole and streamed, however the upstream writes them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dialects.responses.events import CALL, CUSTOM, REASONING, USAGE, events_of, response, sse, text_item
from tidemark.core.conversation.reply import Reply
from tidemark.core.report import Usage
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.responses.dialect import ResponsesDialect

RESPONSES = ResponsesDialect()
OUTPUT: list[dict[str, Any]] = [REASONING, text_item("Fine weather, \N{SNOWMAN} and a \u2028 line."), CALL, CUSTOM]
STREAM = sse(events_of(OUTPUT))


def items_of(reply: Reply) -> list[dict[str, Any]]:
    """The stored items of a reply."""
    assert reply.message is not None
    items: list[dict[str, Any]] = json.loads(b"[" + reply.message.raw + b"]")
    return items


def folded(*pieces: bytes) -> Reply:
    """The reply of a stream that comes in these pieces."""
    fold = RESPONSES.fold_stream()
    for piece in pieces:
        fold.feed(piece)
    return fold.reply()


def assert_whole(reply: Reply) -> None:
    """Assert that everything of the reply was read."""
    assert reply.complete
    assert reply.error is None
    assert items_of(reply) == OUTPUT
    assert RESPONSES.usage(reply.usage) == Usage(11, 7, 5, 0)
    assert reply.message is not None
    assert [call.id for call in reply.message.calls] == ["call_1", "call_2"]


def test_a_whole_response_is_one_message_of_its_items() -> None:
    """As they came, in the order that a client echoes them in."""
    assert_whole(RESPONSES.fold_body(json.dumps(response(OUTPUT), indent=1).encode()))


@pytest.mark.parametrize("numbered", [True, False])
@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("done", [True, False])
def test_streams_are_read_with_and_without_names_numbers_and_done(*, named: bool, numbered: bool, done: bool) -> None:
    """llama.cpp sends no numbers, and litellm neither names nor numbers, and [DONE] at the end."""
    assert_whole(folded(sse(events_of(OUTPUT), named=named, numbered=numbered, done=done)))


@given(cuts=st.sets(st.integers(1, len(STREAM) - 1), max_size=12), ends=st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_a_stream_may_be_cut_anywhere(cuts: set[int], ends: bytes) -> None:
    """Within an event, a line end or a character."""
    stream = STREAM.replace(b"\n", ends)
    places = [0, *sorted(cuts), len(stream)]
    assert_whole(folded(*(stream[start:end] for start, end in pairwise(places))))


@given(cut=st.integers(1, len(STREAM) - 1))
def test_the_end_is_noticed_when_its_bytes_have_come(cut: int) -> None:
    """The turn is stored before they are released."""
    fold = RESPONSES.fold_stream()
    fold.feed(STREAM[:cut])
    assert not fold.ended
    fold.feed(STREAM[cut:])
    assert fold.ended


def test_events_one_by_one_are_read_like_the_whole() -> None:
    """Most pieces of the network are single events."""
    assert_whole(folded(*(sse([event]) for event in events_of(OUTPUT))))


@pytest.mark.parametrize("output", [[], None])
def test_items_come_from_their_events_where_the_last_event_is_thin(output: Any) -> None:
    """Some upstreams do not repeat them."""
    reply = folded(sse(events_of(OUTPUT)[:-1]), sse([{"type": "response.completed", "response": response(output)}]))
    assert_whole(reply)


@pytest.mark.parametrize("done", [True, False])
def test_items_are_told_apart_by_their_ids_where_they_have_no_places(*, done: bool) -> None:
    """llama.cpp numbers neither events nor items."""
    events = [event for event in events_of(OUTPUT) if done or not event["type"].endswith("item.done")]
    events[-1]["response"]["output"] = []
    unnumbered = [{name: member for name, member in event.items() if not name.endswith("_index")} for event in events]
    assert items_of(folded(sse(unnumbered)))[1]["content"][0]["text"] == OUTPUT[1]["content"][0]["text"]
    assert len(items_of(folded(sse(unnumbered)))) == len(OUTPUT)


def test_items_come_from_their_pieces_where_no_event_has_them_whole() -> None:
    """The least that an upstream may send."""
    events = [event for event in events_of(OUTPUT) if not event["type"].endswith((".done", "part.added"))]
    events[-1]["response"]["output"] = []
    reply, whole = folded(sse(events)), folded(STREAM)
    assert reply.complete
    assert reply.message is not None
    assert whole.message is not None
    assert (reply.message.digest, reply.message.text) == (whole.message.digest, whole.message.text)


def test_what_the_provider_ran_itself_is_in_the_same_turn_when_it_is_echoed() -> None:
    """A hosted shell has calls and results in one response; the client's own shell has messages between them."""
    call: dict[str, Any] = {"type": "shell_call", "id": "sh_1", "call_id": "call_9", "action": {"commands": ["ls"]}}
    result = {
        "type": "shell_call_output",
        "id": "o_1",
        "call_id": "call_9",
        "output": [{"stdout": "a b", "stderr": ""}],
    }
    output: list[dict[str, Any]] = [
        {**call, "environment": {"type": "container_reference"}},
        result,
        text_item("Two files."),
    ]
    reply = RESPONSES.fold_body(json.dumps(response(output)).encode())
    request = RESPONSES.parser.parse_now(json.dumps({"model": "m", "input": output}).encode())
    assert reply.message is not None
    assert [message.digest for message in request.messages] == [reply.message.digest]
    assert any(part.get("text") == "a b" for part in request.messages[0].media)
    own: list[dict[str, Any]] = [{**call, "environment": {"type": "local"}}, result, text_item("Two files.")]
    request = RESPONSES.parser.parse_now(json.dumps({"model": "m", "input": own}).encode())
    assert [message.role for message in request.messages] == ["assistant", "tool", "assistant"]
    odd = RESPONSES.fold_body(json.dumps(response(own)).encode()).message
    assert odd is not None
    assert RESPONSES.parse_messages([odd.raw])[0].role == "assistant"  # a stored reply stays one message


def test_a_refusal_is_a_text() -> None:
    """As in chat completions."""
    item = text_item("") | {"content": [{"type": "refusal", "refusal": "No."}]}
    reply = RESPONSES.fold_body(json.dumps(response([item])).encode())
    chat = ChatDialect().parse_messages([b'{"role": "assistant", "content": null, "refusal": "No."}'])[0]
    assert reply.message is not None
    assert reply.message.digest == chat.digest


@pytest.mark.parametrize("status", ["queued", "in_progress", "cancelled", "failed"])
def test_what_is_still_being_made_or_failed_is_no_complete_reply(status: str) -> None:
    """A background response is carried; its turn is not complete."""
    assert not RESPONSES.fold_body(json.dumps(response([], status)).encode()).complete


def test_a_reply_of_the_longest_length_is_complete() -> None:
    """As ``finish_reason: length`` is in chat completions."""
    body = response([text_item("Fine")], "incomplete", incomplete_details={"reason": "max_output_tokens"})
    assert RESPONSES.fold_body(json.dumps(body).encode()).complete
    assert folded(sse(events_of([text_item("Fine")], final="incomplete"))).complete


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "server_error", "message": "broken", "param": None, "sequence_number": 3},
        {"error": {"code": "server_error", "message": "broken", "param": None}},
        {"type": "response.failed", "response": response([], "failed", error={"code": "x", "message": "broken"})},
    ],
)
def test_an_error_within_a_stream_is_the_replys(event: dict[str, Any]) -> None:
    """In the form of the event, of the failed response, or of an envelope."""
    stream = sse(events_of([text_item("Fine")])[:5]) + b"data: " + json.dumps(event).encode() + b"\n\n"
    reply = folded(stream)
    assert not reply.complete
    assert isinstance(reply.error, dict)
    assert reply.error["message"] == "broken"


def test_an_early_end_leaves_an_incomplete_reply_with_what_came() -> None:
    """Without an error: the relay tells the client."""
    reply = folded(sse(events_of([text_item("Fine weather.")])[:5]))
    assert (reply.complete, reply.error) == (False, None)
    assert reply.message is not None
    assert reply.message.text == "Fine"


def test_halves_of_characters_are_read() -> None:
    """A strict decoder would refuse them; the client has received them anyway."""
    stream = STREAM.replace("\N{SNOWMAN}".encode(), rb"\ud83d")
    reply = folded(stream)
    assert reply.complete
    assert reply.message is not None
    assert "\N{REPLACEMENT CHARACTER}" in reply.message.text


@pytest.mark.parametrize("data", [b"", b"no json", b"[1]", b"{}", b'{"output": 1, "status": "completed"}', b"[" * 999])
def test_what_is_no_response_gives_an_empty_reply(data: bytes) -> None:
    """And no exception."""
    assert not RESPONSES.fold_body(data).complete
    assert not folded(b"data: " + data + b"\n\n").complete


def test_the_events_before_the_end_can_be_told_from_it() -> None:
    """They go to a client whose turn could not be stored."""
    before = sse(events_of(OUTPUT)[:-1])
    assert RESPONSES.before_end(STREAM) == before
    assert RESPONSES.before_end(STREAM[len(before) :]) == b""
    assert RESPONSES.before_end(before) == before


def test_usage_of_another_form_is_none() -> None:
    """An upstream may send anything in its place."""
    assert RESPONSES.usage({"input_tokens": "11", "input_tokens_details": None}) == Usage(None, None, None)
    assert RESPONSES.usage(USAGE) == Usage(11, 7, 5, 0)
