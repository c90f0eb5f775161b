"""A stream's counts: asked for in one member, and taken out again without another byte."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.growth import MOST_GROWTH, growth_of
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.chat.stream_counts import ChatStreamCounts

COUNTS = ChatStreamCounts()
USAGE = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
MESSAGES = b'"messages":[{"role":"user","content":"hi"}]'


def event(value: Any, *, line_end: bytes = b"\n", compact: bool = True) -> bytes:
    """One event of a stream."""
    separators = (",", ":") if compact else (", ", ": ")
    return b"data: " + json.dumps(value, separators=separators).encode() + 2 * line_end


def chunk(text: str, **members: Any) -> dict[str, Any]:
    """A chunk with a piece of text; ``members`` come last."""
    return {"id": "c", "choices": [{"index": 0, "delta": {"content": text}, "finish_reason": None}], **members}


@pytest.mark.parametrize(
    ("sent", "asking"),
    [
        (
            b'{"model":"m",' + MESSAGES + b"}",
            b'{"model":"m",' + MESSAGES + b',"stream_options":{"include_usage":true}}',
        ),
        (
            b'{ "model" : "m" , ' + MESSAGES + b" }\n ",
            b'{ "model" : "m" , ' + MESSAGES + b' ,"stream_options":{"include_usage":true}}',
        ),
        (
            b'{"model":"m","stream_options":null,' + MESSAGES + b"}",
            b'{"model":"m","stream_options":{"include_usage":true},' + MESSAGES + b"}",
        ),
        (
            b'{"model":"m","stream_options":{"include_usage":false,"x":1.50},' + MESSAGES + b"}",
            b'{"model":"m","stream_options":{"include_usage":true,"x":1.50},' + MESSAGES + b"}",
        ),
        (
            b'{"model":"m","stream_options":{"include_obfuscation":false},' + MESSAGES + b"}",
            b'{"model":"m","stream_options":{"include_obfuscation":false,"include_usage":true},' + MESSAGES + b"}",
        ),
        (b'{"model":"m","stream_options":{"include_usage":true},' + MESSAGES + b"}", None),
        (b'{"model":"m","stream_options":"what",' + MESSAGES + b"}", None),
    ],
)
async def test_the_question_is_one_member_beside_the_clients_bytes(sent: bytes, asking: bytes | None) -> None:
    """None where the client asks itself, or where what it wrote is the upstream's to judge."""
    request = await ChatDialect().parse(sent)
    asked = COUNTS.asking(request)
    assert (asked.body if asked else None) == asking
    if asked is not None:
        assert asked.dialect.body_with(asked, asked.messages, model="n").count(b'"stream_options"') == 1
        assert asked.messages is request.messages


SHOWN: list[tuple[Any, Any]] = [
    (chunk("a", usage=None), chunk("a")),
    (chunk("a", usage=None, obfuscation="x,}"), chunk("a", obfuscation="x,}")),
    (chunk("a", usage=None, service_tier=None, n=-1.5, ok=True), chunk("a", service_tier=None, n=-1.5, ok=True)),
    (chunk("a", usage=None, x=[1]), chunk("a", x=[1])),
    ({"usage": None, **chunk("a")}, chunk("a")),
    ({"usage": None}, {}),
    ({"id": "c", "usage": None, **chunk("a")}, {"id": "c", **chunk("a")}),
    (chunk("a", usage=USAGE), chunk("a", usage=USAGE)),
    (chunk('"usage":null}'), chunk('"usage":null}')),
    (chunk(',"usage":null}', usage=None), chunk(',"usage":null}')),
    (chunk(',"usage'), chunk(',"usage')),
    (chunk("a", x={"y": 1, "usage": None}), chunk("a", x={"y": 1, "usage": None})),
    (chunk("a", x={"usage": None}, usage=None), chunk("a", x={"usage": None})),
    ({"id": "c", "choices": [{"index": 0, "usage": None}]}, {"id": "c", "choices": [{"index": 0, "usage": None}]}),
    ({"id": "c", "choices": [], "usage": USAGE}, None),
    ({"id": "c", "usage": USAGE}, None),
    ({"id": "c", "choices": [], "prompt_filter_results": []}, {"id": "c", "choices": [], "prompt_filter_results": []}),
]


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
@pytest.mark.parametrize(("sent", "shown"), SHOWN)
def test_counts_are_left_out_and_all_other_bytes_stay(sent: Any, shown: Any, line_end: bytes, *, compact: bool) -> None:
    """The chunk of the counts, and a null in the others, wherever it stands; nothing deeper and no text."""
    events = [event(one, line_end=line_end, compact=compact) if one is not None else b"" for one in (sent, shown)]
    before, after = event(chunk("before"), line_end=line_end), b": comment" + 2 * line_end
    done = b"data: [DONE]" + 2 * line_end
    assert COUNTS.leave_out(before + events[0] + after + done) == before + events[1] + after + done
    assert COUNTS.leave_out(events[0].rstrip()) == events[1].rstrip(), "the last event may lack its empty line"


TEXTS = st.text() | st.sampled_from(
    ['"usage":null}', ',"usage":null', '\\","usage":null}', '{"usage": {}}', "usage", '"usage"']
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["usage", "x", '"usage"', ',"usage":null']), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(st.tuples(st.dictionaries(st.sampled_from("abc"), VALUES, max_size=3), st.booleans()), max_size=5))
def test_what_is_left_is_what_would_have_come(chunks: list[tuple[dict[str, Any], bool]]) -> None:
    """Whatever a chunk holds: a null ``usage`` at its end is the one thing that goes."""
    asked = b"".join(event({"choices": [1], **value, **({"usage": None} if has else {})}) for value, has in chunks)
    plain = b"".join(event({"choices": [1], **value}) for value, _ in chunks)
    assert COUNTS.leave_out(asked) == plain


@given(st.binary(max_size=200))
def test_any_bytes_are_taken(noise: bytes) -> None:
    """An upstream may send anything; what is no event of this dialect stays."""
    for sent in (noise, b'data: {"usage"' + noise, b'data: {"usage":null,' + noise + b"\n\n"):
        found = COUNTS.leave_out(sent)
        assert found == sent or b"usage" in sent


def test_a_long_run_of_members_takes_no_long_time() -> None:
    """Nothing is searched twice: half a megabyte is done in the time of a few decodings."""
    sent = b'data: {"usage":null,' + b'"a":"b",' * 60_000 + b'"c":[]}\n\n'
    assert COUNTS.leave_out(sent) == sent.replace(b'"usage":null,', b"", 1)


@pytest.mark.speed
@pytest.mark.parametrize("end", [b',"x":{}}', b"}", b',"x":1}', b""])
@pytest.mark.parametrize("unit", [b',"usage":null', b',"usage":null,"a":1', b',"a":",","usage":null', b"\t,"])
def test_no_event_is_slow_to_read(unit: bytes, end: bytes) -> None:
    """A broken upstream may repeat the member: 200 KB of them took twenty seconds."""

    def read(count: int) -> None:
        COUNTS.leave_out(b'data: {"a":1,"usage":null' + unit * count + end + b"\n\n")

    assert growth_of(read, (500, 1000, 2000, 4000)) < MOST_GROWTH


def test_a_repeated_null_is_left_out_too() -> None:
    """Where it stands twice, nothing of it stays."""
    sent = b'data: {"choices":[],"usage":null,"a":1,"usage":null}\n\n'
    assert COUNTS.leave_out(sent) == b'data: {"choices":[],"a":1}\n\n'


def test_a_refusal_that_names_the_member_is_one_of_the_question() -> None:
    """Any other refusal is the client's."""
    assert COUNTS.is_refused(b'{"error":{"message":"Unrecognized request argument supplied: stream_options"}}')
    assert COUNTS.is_refused(b'{"detail":[{"type":"extra_forbidden","loc":["body","stream_options","include_usage"]}]}')
    assert not COUNTS.is_refused(b'{"error":{"message":"Unknown model."}}')
