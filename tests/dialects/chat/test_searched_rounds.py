"""Replies of several rounds: whatever a model says and calls, the client gets one reply without a search."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.request import SearchedReply
from tidemark.core.recall.search_function import FUNCTION_NAME
from tidemark.dialects.chat.dialect import ChatDialect, ChatSearchFunction
from tidemark.dialects.chat.searched_replies import SearchedStream
from tidemark.dialects.searching import sum_of

Counts = dict[str, JsonValue]
DIALECT = ChatDialect()
DONE = b"data: [DONE]\n\n"
USAGE = {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12}


@dataclass(frozen=True)
class Round:
    """What the model says and calls in one round."""

    text: str
    calls: tuple[str, ...]
    thoughts: tuple[str, ...] = ()
    """Pieces of signed thinking."""


words = st.text("abc .\n", max_size=8)
thoughts = st.lists(words, max_size=2).map(tuple)
searching = st.builds(Round, words, st.lists(st.just(FUNCTION_NAME), min_size=1, max_size=2).map(tuple), thoughts)
names = st.lists(st.sampled_from(["weather", FUNCTION_NAME, "time"]), max_size=4).map(tuple)
last = st.one_of(
    st.builds(Round, words, st.just(()), thoughts),
    st.builds(
        Round, words, st.lists(st.sampled_from(["weather", FUNCTION_NAME, "time"]), max_size=4).map(tuple), thoughts
    ).filter(lambda one: set(one.calls) != {FUNCTION_NAME}),
)
replies = st.builds(lambda first, end: [*first, end], st.lists(searching, max_size=3), last)


def call(place: int, name: str) -> dict[str, Any]:
    """A call with an id of its own."""
    return {"id": f"c{place}", "type": "function", "function": {"name": name, "arguments": json.dumps({"at": place})}}


def event(**choice: Any) -> bytes:
    """One event of a stream."""
    chunk = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    return b"data: " + json.dumps({**chunk, "choices": [{"index": 0, **choice}]}).encode() + b"\n\n"


def blocks_of(one: Round) -> list[dict[str, str]]:
    """The thinking of a round, signed by it."""
    return [{"type": "thinking", "thinking": thought, "signature": f"{hash(one)}"} for thought in one.thoughts]


def events_of(one: Round) -> list[bytes]:
    """A round as a stream: text by characters, calls in three pieces each."""
    events = [event(delta={"role": "assistant", "content": ""})]
    events += [event(delta={"thinking_blocks": [block]}) for block in blocks_of(one)]
    events += [event(delta={"content": c}) for c in one.text]
    for place, name in enumerate(one.calls):
        whole = call(place, name)
        text = whole["function"]["arguments"]
        head = {**whole, "index": place, "function": {"name": name, "arguments": ""}}
        halves = [{"index": place, "function": {"arguments": half}} for half in (text[:3], text[3:])]
        events += [event(delta={"tool_calls": [piece]}) for piece in (head, *halves)]
    events.append(event(delta={}, finish_reason="tool_calls" if one.calls else "stop"))
    usage = json.dumps({"id": "x", "choices": [], "usage": USAGE}).encode()
    return [*events, b"data: " + usage + b"\n\n", DONE]


def body_of(one: Round) -> bytes:
    """A round that is not streamed."""
    message: dict[str, Any] = {"role": "assistant", "content": one.text or None}
    if one.calls:
        message["tool_calls"] = [call(place, name) for place, name in enumerate(one.calls)]
    if one.thoughts:
        message["thinking_blocks"] = blocks_of(one)
    reason = "tool_calls" if one.calls else "stop"
    return json.dumps(
        {"id": "x", "choices": [{"index": 0, "message": message, "finish_reason": reason}], "usage": USAGE}
    ).encode()


def carried(reader: SearchedReply, rounds: list[list[bytes]]) -> bytes:
    """What the client gets of all rounds."""
    got = b""
    for place, pieces in enumerate(rounds):
        got += b"".join([reader.read(piece) for piece in pieces])
        assert (reader.calls is not None) == (place < len(rounds) - 1)
        if reader.calls is not None:
            reader.next_round()
    return got


@given(replies)
def test_a_stream_and_a_body_tell_the_same_reply(rounds: list[Round]) -> None:
    """All texts, the client's calls, and the tokens of all rounds; no search."""
    function = ChatSearchFunction()
    stream = carried(function.stream(), [events_of(one) for one in rounds])
    body = carried(function.whole(), [[body_of(one)] for one in rounds])
    assert FUNCTION_NAME.encode() not in stream + body
    fold = DIALECT.fold_stream()
    fold.feed(stream)
    told, whole = fold.reply(), DIALECT.fold_body(body)
    assert told.message is not None
    assert whole.message is not None
    assert told.complete
    assert told.message.text == whole.message.text
    assert "".join(told.message.text.split()) == "".join("".join(one.text for one in rounds).split())
    own = tuple(name for name in rounds[-1].calls if name != FUNCTION_NAME)
    assert tuple(one.name for one in told.message.calls) == tuple(one.name for one in whole.message.calls) == own
    assert [one.arguments for one in told.message.calls] == [one.arguments for one in whole.message.calls]
    assert told.usage == whole.usage == {name: count * len(rounds) for name, count in USAGE.items()}
    assert stream.count(b"[DONE]") == 1


@given(replies)
def test_the_client_gets_signed_thinking_of_one_round_at_most(rounds: list[Round]) -> None:
    """Of the first round whose text it gets, else of the last: a provider refuses any other when it comes back."""
    function = ChatSearchFunction()
    stream = carried(function.stream(), [events_of(one) for one in rounds])
    body = json.loads(carried(function.whole(), [[body_of(one)] for one in rounds]))
    payloads = [line[6:] for line in stream.splitlines() if line.startswith(b"data: {")]
    deltas = [choice["delta"] for payload in payloads for choice in json.loads(payload)["choices"]]
    streamed = [block for delta in deltas for block in delta.get("thinking_blocks", ())]
    speaking = next((one for one in rounds if one.text), rounds[-1])
    assert streamed == body["choices"][0]["message"].get("thinking_blocks", []) == blocks_of(speaking)
    places = [place for place, delta in enumerate(deltas) if delta.get("content") or delta.get("tool_calls")]
    assert all("thinking_blocks" not in delta for delta in deltas[min(places, default=len(deltas)) :])


@given(replies, st.integers(1, 5))
def test_the_events_of_a_stream_may_come_together(rounds: list[Round], together: int) -> None:
    """However the network groups them."""
    alone = carried(SearchedStream(), [events_of(one) for one in rounds])
    grouped = [
        [b"".join(events[at : at + together]) for at in range(0, len(events), together)]
        for events in map(events_of, rounds)
    ]
    assert carried(SearchedStream(), grouped) == alone


@given(last.filter(lambda one: FUNCTION_NAME not in one.calls))
def test_a_reply_without_a_search_keeps_its_bytes(one: Round) -> None:
    """Streamed or not."""
    function = ChatSearchFunction()
    assert carried(function.stream(), [events_of(one)]) == b"".join(events_of(one))
    assert function.whole().read(body_of(one)) == body_of(one)


@given(searching)
def test_a_reply_can_end_where_a_search_cannot_be_answered(one: Round) -> None:
    """The client gets the text so far, and a reason to end that calls for nothing."""
    function = ChatSearchFunction()
    stream, whole = function.stream(), function.whole()
    told = b"".join([stream.read(piece) for piece in events_of(one)]) + stream.end()
    whole.read(body_of(one))
    choice = json.loads(whole.end())["choices"][0]
    assert choice["finish_reason"] == "stop"
    assert "tool_calls" not in choice["message"]
    fold = DIALECT.fold_stream()
    fold.feed(told)
    reply = fold.reply()
    assert reply.complete
    assert reply.message is not None
    assert reply.message.text == (choice["message"]["content"] or "")
    assert reply.usage == USAGE


def test_a_call_whose_name_comes_late_waits_for_it() -> None:
    """Some servers begin a call with its id alone."""
    for name, is_client in ((FUNCTION_NAME, False), ("weather", True)):
        reader = SearchedStream()
        head = event(delta={"tool_calls": [{"index": 0, "id": "c0", "type": "function"}]})
        assert reader.read(head) == b""
        got = reader.read(event(delta={"tool_calls": [{"index": 0, "function": {"name": name, "arguments": "{}"}}]}))
        assert (b'"c0"' in got) == is_client
        assert (name.encode() in got) == is_client


def test_comments_and_unknown_events_pass() -> None:
    """A server's signs of life, also while a round ends in a search."""
    reader = SearchedStream()
    assert reader.read(b": alive\n\ndata: [1]\n\n") == b": alive\n\ndata: [1]\n\n"
    for one in events_of(Round("", (FUNCTION_NAME,))):
        reader.read(one)
    assert reader.read(b": alive\n\n") == b": alive\n\n"


numbers = st.recursive(
    st.integers(0, 99), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=6
)
counts = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 99))


@given(counts, counts, counts)
def test_tokens_add_up_in_any_order(
    one: dict[str, JsonValue], two: dict[str, JsonValue], more: dict[str, JsonValue]
) -> None:
    """A member that one round lacks counts as nothing."""
    assert sum_of(one, two) == sum_of(two, one)
    assert sum_of(sum_of(one, two), more) == sum_of(one, sum_of(two, more))
    assert sum_of({}, one) == sum_of(one, {}) == one


@given(numbers, numbers)
def test_any_counts_can_be_added(one: JsonValue, two: JsonValue) -> None:
    """An upstream may send anything: a number where another round has an object."""
    assert set(sum_of({"a": one}, {"a": two})) == {"a"}
