"""Folding an answer into the message that was said."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionChunk

from tests.core.histories import message
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.chat.reply import StreamFold, fold_body, fold_stream


def event(**choice: Any) -> bytes:
    """One chunk of a stream."""
    return b"data: " + json.dumps({"choices": [{"index": 0, **choice}]}).encode() + b"\n\n"


FINISHED = event(delta={}, finish_reason="stop")


@given(st.lists(st.text(max_size=8), max_size=12), st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_a_streamed_text_is_the_whole_text(pieces: list[str], line_end: bytes) -> None:
    """What was folded has the identity of what the client will echo, whatever ends the lines."""
    data = b"".join(event(delta={"content": piece}) for piece in pieces) + FINISHED + b"data: [DONE]\n\n"
    folded = fold_stream(data.replace(b"\n", line_end), json.loads)
    assert folded.complete
    assert folded.message is not None
    assert folded.message.digest == message(role="assistant", content="".join(pieces)).digest


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.sampled_from([*'ab"\\\n\x7f漢😀', "\ud83d"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)


@given(st.text(max_size=5) | st.just("half \ud83d"), st.dictionaries(st.text(max_size=3), VALUES, max_size=4))
def test_an_answer_is_kept_as_one_encoder_writes_it(text: str, beside: dict[str, Any]) -> None:
    """The upstream's members, all of them, in its order and in one form, whatever is in them."""
    said = {"content": text, **beside, "role": "assistant"}
    folded = fold_body(json.dumps({"choices": [{"message": said}]}).encode(), json.loads).message
    assert folded is not None
    whole = {"role": "assistant", **said}
    try:
        written = json.dumps(whole, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        written = json.dumps(whole).encode()
    assert folded.raw == written


@given(st.lists(st.integers(0, 2), max_size=20))
def test_parallel_calls_are_put_together_by_their_index(order: list[int]) -> None:
    """Arguments arrive in pieces, interleaved."""
    opening = [
        event(
            delta={
                "tool_calls": [
                    {"index": i, "id": f"c{i}", "type": "function", "function": {"name": "f", "arguments": ""}}
                ]
            }
        )
        for i in range(3)
    ]
    pieces = [
        event(delta={"tool_calls": [{"index": i, "function": {"arguments": str(n)}}]}) for n, i in enumerate(order)
    ]
    folded = fold_stream(b"".join([*opening, *pieces, FINISHED]), json.loads)
    assert folded.message is not None
    wanted = ["".join(str(n) for n, i in enumerate(order) if i == which) for which in range(3)]
    assert [call.arguments for call in folded.message.calls] == wanted
    assert [call.id for call in folded.message.calls] == ["c0", "c1", "c2"]


def test_an_empty_finish_reason_is_none() -> None:
    """Some servers write ``""`` until there is one."""
    assert not fold_stream(event(delta={"content": "a"}, finish_reason=""), json.loads).complete


def test_an_error_is_not_taken_back_by_a_null() -> None:
    """Some servers write ``"error": null`` in every chunk."""
    data = b'data: {"error": {"code": 500}}\n\ndata: {"error": null}\n\n'
    assert fold_stream(data, json.loads).error == {"code": 500}


@pytest.mark.parametrize(
    ("data", "is_complete"),
    [
        (event(delta={"content": "a"}) + b"data: [DONE]\n\n", True),
        (event(delta={"content": "a"}) + b"data: [DONE]\n", True),
        (event(delta={"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f"}}]}) + b"data: [DONE]\n\n", True),
        (event(delta={"content": "a"}), False),
        (event(delta={"role": "assistant", "content": ""}) + b"data: [DONE]\n\n", False),
        (event(delta={"content": "a"}) + b'data: {"error": {"code": 500}}\n\ndata: [DONE]\n\n', False),
        (b"data: [DONE]\n\n", False),
        (b"", False),
    ],
)
def test_a_stream_without_a_finish_reason_is_complete_if_it_says_something_and_done(
    data: bytes, *, is_complete: bool
) -> None:
    """Clients stop at ``[DONE]``, and some servers never say why an answer ended; an early end has neither."""
    assert fold_stream(data, json.loads).complete is is_complete


def test_an_error_in_the_stream_is_kept_and_is_no_completion() -> None:
    """The upstream's own error event."""
    folded = fold_stream(event(delta={"content": "a"}) + b'data: {"error": {"code": 500}}\n\n' + FINISHED, json.loads)
    assert folded.error == {"code": 500}
    assert not folded.complete


def test_the_usage_is_taken_from_the_chunk_that_has_it() -> None:
    """OpenAI's last chunk has no choices; others repeat ``usage: null``."""
    data = (
        event(delta={"content": "a"})
        + FINISHED
        + b'data: {"choices": [], "usage": {"prompt_tokens": 3}}\n\ndata: {"choices": [], "usage": null}\n\n'
    )
    assert fold_stream(data, json.loads).usage == {"prompt_tokens": 3}


def test_only_the_first_choice_goes_on() -> None:
    """``n`` above 1: the conversation's identity follows choice 0."""
    other = b"data: " + json.dumps({"choices": [{"index": 1, "delta": {"content": "no"}}]}).encode() + b"\n\n"
    folded = fold_stream(event(delta={"content": "yes"}) + other + FINISHED, json.loads)
    assert folded.message is not None
    assert folded.message.text == "yes"


def test_every_choice_must_be_finished() -> None:
    """``n`` above 1: what broke off in choice 1 is not complete, though choice 0 is."""
    other = {"index": 1, "delta": {"content": "no"}}
    data = event(delta={"content": "yes"}) + b"data: " + json.dumps({"choices": [other]}).encode() + b"\n\n" + FINISHED
    assert not fold_stream(data, json.loads).complete
    assert fold_stream(data + event(index=1, delta={}, finish_reason="length"), json.loads).complete


def test_comments_fields_and_broken_events_are_passed_over() -> None:
    """WHATWG HTML 9.2: comments and unknown fields carry no data; several data lines are one payload."""
    data = b": hi\n\nevent: x\nid: 1\n\ndata: {no json\n\ndata: {\ndata: }\n\n" + FINISHED
    assert fold_stream(data, json.loads).complete


@pytest.mark.parametrize(
    "data", [b"", b"no json", b"[]", b"{}", b'{"choices": []}', b'{"choices": [{"message": 7}]}', b'{"choices": 7}']
)
def test_a_body_that_is_no_completion_gives_no_message(data: bytes) -> None:
    """Whatever an upstream answers, folding does not fail."""
    assert fold_body(data, json.loads).message is None


NAMES = ["choices", "delta", "message", "tool_calls", "function", "custom", "function_call", "name", "arguments"]
NAMES += ["id", "index", "type", "role", "content", "text", "audio", "refusal", "usage", "error", "finish_reason"]
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.just("\ud83d"),
    lambda deeper: (
        st.lists(deeper, max_size=3)
        | st.dictionaries(st.sampled_from(NAMES), deeper, max_size=4)
        | st.tuples(deeper, st.sampled_from([3, 12, 80])).map(lambda drawn: nested(*drawn))
    ),
    max_leaves=15,
)


def nested(value: Any, depth: int) -> Any:
    """The value below so many objects and lists."""
    for _ in range(depth):
        value = {"content": [value]}
    return value


@pytest.mark.parametrize("decode", [json.loads, msgspec.json.decode])
@given(values=st.lists(ANYTHING, max_size=3))
def test_folding_never_fails(decode: Any, values: list[Any]) -> None:
    """An upstream's nonsense is carried to the client; here it is only read."""
    shapes: list[Callable[[Any], Any]] = [
        lambda value: value,
        lambda value: {"choices": [{"delta": value}]},
        lambda value: {"choices": [{"delta": {"tool_calls": [value]}, "message": {"tool_calls": [value]}}]},
        lambda value: {"choices": [{"delta": {"content": value}, "message": {"content": value}, "index": value}]},
    ]
    for shape in shapes:
        bodies = [json.dumps(shape(value)).encode() for value in values]
        for body in bodies:
            fold_body(body, decode)
        fold_stream(b"".join(b"data: " + body + b"\n\n" for body in bodies) + FINISHED, decode)


@pytest.mark.parametrize("decode", [json.loads, msgspec.json.decode])
@pytest.mark.parametrize("depth", [450, 900, 3000, 100_000])
@pytest.mark.parametrize("shape", [b"[%s]", b'{"a":%s}'], ids=["lists", "objects"])
@pytest.mark.parametrize("member", [b"extra", b"content", b"tool_calls", b"audio"])
def test_an_event_nested_too_deeply_is_passed_over(decode: Any, depth: int, shape: bytes, member: bytes) -> None:
    """What no decoder reads says nothing; what was said around it stays."""
    head, tail = shape.split(b"%s")
    deep = b'{"choices": [{"index": 0, "delta": {"%s": %s}}]}' % (member, head * depth + b"1" + tail * depth)
    folded = fold_stream(event(delta={"content": "fine"}) + b"data: " + deep + b"\n\n" + FINISHED, decode)
    assert folded.complete
    assert folded.message is None or folded.message.text == "fine"
    fold_body(deep.replace(b"delta", b"message"), decode)


def streams() -> st.SearchStrategy[bytes]:
    """Streams of all line ends, with comments, broken events, quoted and real ends of the stream."""
    events = st.sampled_from(
        [
            event(delta={"content": "a 漢🙂 data: [DONE]"}),
            event(delta={"tool_calls": [{"index": 0, "id": "c", "function": {"name": "f", "arguments": "{"}}]}),
            FINISHED,
            b": hi\n\n",
            b"data: {no json\n\n",
            b'event: x\ndata: {"usage":\ndata: {"prompt_tokens": 3}}\n\n',
            b"data: [DONE]\n\n",
            b"data: {}\ndata: [DONE]\ndata: {}\n\n",
            b"\n",
            b'data: {"error": {"code": 500}}',
        ]
    )
    line_ends = st.sampled_from([b"\n", b"\r\n", b"\r"])
    return st.builds(lambda parts, end: b"".join(parts).replace(b"\n", end), st.lists(events, max_size=8), line_ends)


@given(streams(), st.lists(st.integers(0, 600), max_size=12))
def test_a_stream_says_the_same_however_it_is_cut(data: bytes, cuts: list[int]) -> None:
    """The network cuts where it likes: inside a line end, a letter, an event."""
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    whole, cut = StreamFold(json.loads), StreamFold(json.loads)
    whole.feed(data)
    for start, end in itertools.pairwise(places):
        cut.feed(data[start:end])
    assert cut.ended == whole.ended
    assert cut.reply() == whole.reply() == fold_stream(data, json.loads)


def test_the_end_is_seen_as_soon_as_its_line_is_over() -> None:
    """Before the empty line, so that the turn is stored before the client takes the stream for finished."""
    fold = StreamFold(json.loads)
    seen = []
    for piece in (b'data: {"a": "data: [DONE]', b'\n"}\n\nda', b"ta: [DO", b"NE]", b"\n", b"\n", FINISHED):
        fold.feed(piece)
        seen.append(fold.ended)
    assert seen == [False, False, False, False, True, True, True]
    assert not fold.reply().complete


def test_a_whole_reply_becomes_chunks_where_a_stream_has_begun() -> None:
    """A client of a stream reads deltas; every choice has its own, and the counts and the end come last."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said: list[Any] = [
        {"index": 0, "message": {"role": "assistant", "content": "Hi.", "tool_calls": [call]}, "finish_reason": "stop"},
        {"index": 1, "message": {"role": "assistant", "content": "Ho."}, "finish_reason": "stop"},
    ]
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    head = {"id": "c", "created": 1, "model": "m"}
    body = json.dumps({**head, "object": "chat.completion", "choices": said, "usage": usage}).encode()
    stream = ChatDialect().late_reply_event(200, body)
    *chunks, end = [line[6:] for line in stream.splitlines() if line.startswith(b"data: ")]
    assert end == b"[DONE]"
    read = [ChatCompletionChunk.model_validate_json(chunk, strict=True) for chunk in chunks]
    assert [[choice.delta.content for choice in chunk.choices] for chunk in read] == [["Hi."], ["Ho."], []]
    fold = ChatDialect().fold_stream()
    fold.feed(stream)
    reply, whole = fold.reply(), ChatDialect().fold_body(body)
    assert reply.message is not None
    assert whole.message is not None
    assert (reply.message.digest, reply.complete, reply.usage) == (whole.message.digest, True, usage)
