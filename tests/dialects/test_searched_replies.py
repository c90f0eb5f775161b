"""Replies of several rounds in Messages and Responses: the client gets one reply without a search.

``tests/dialects/chat/test_searched_rounds.py`` has the same of chat completions.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support import messages_answers, responses_answers
from tests.support.answers import Call, Received, Turn
from tidemark.core.conversation.request import Dialect, SearchedReply, SearchFunctionFormat
from tidemark.core.recall.search_function import FUNCTION_NAME
from tidemark.dialects.messages.dialect import MessagesDialect
from tidemark.dialects.responses.dialect import ResponsesDialect

DEFINITION = {"type": "function", "name": FUNCTION_NAME}
OWN = {"type": "function", "name": "weather"}


@dataclass(frozen=True)
class Format:
    """A dialect with the scripted upstream of its tests."""

    dialect: Dialect
    answers: Any
    path: str

    @property
    def function(self) -> SearchFunctionFormat:
        """The search function."""
        assert self.dialect.search_function is not None
        return self.dialect.search_function

    def pieces(self, turn: Turn, number: int = 0, *, stream: bool = True, tools: bool = True) -> list[bytes]:
        """A round as its upstream sends it."""
        said = [{"role": "user", "content": f"round {number}"}]
        member = "input" if self.dialect.name == "responses" else "messages"
        body: dict[str, Any] = {member: said, "stream": stream, "tools": [OWN, DEFINITION] if tools else [OWN]}
        request = Received(self.path, json.dumps(body).encode(), {})
        return [piece for piece in self.answers.tell(turn, request).pieces if isinstance(piece, bytes)]


MESSAGES = Format(MessagesDialect(), messages_answers, "/v1/messages")
RESPONSES = Format(ResponsesDialect(), responses_answers, "/v1/responses")
FORMATS = pytest.mark.parametrize("own", [MESSAGES, RESPONSES], ids=["messages", "responses"])

texts = st.text("abc .", max_size=8).filter(lambda text: not text or bool(text.strip()))
thoughts = st.sampled_from(["", "Hm."])
arguments = st.sampled_from(['{"query": "door"}', "{}"])
calls = st.lists(st.builds(Call, st.sampled_from(["weather", FUNCTION_NAME, "time"]), arguments), max_size=4).map(tuple)
searches = st.lists(st.builds(Call, st.just(FUNCTION_NAME), arguments), min_size=1, max_size=2).map(tuple)
searching = st.builds(Turn, texts, searches, thoughts)
last = st.builds(Turn, texts, calls, thoughts).filter(
    lambda turn: {call.name for call in turn.calls} != {FUNCTION_NAME}
)
replies = st.builds(lambda first, end: [*first, end], st.lists(searching, max_size=3), last)


def carried(reader: SearchedReply, rounds: list[list[bytes]]) -> bytes:
    """What the client gets of all rounds."""
    got = b""
    for place, pieces in enumerate(rounds):
        got += b"".join([reader.read(piece) for piece in pieces])
        assert (reader.calls is not None) == (place < len(rounds) - 1)
        if reader.calls is not None:
            reader.next_round()
    return got


def data_of(stream: bytes) -> list[dict[str, Any]]:
    """The events of a stream, decoded."""
    return [json.loads(line[6:]) for line in stream.splitlines() if line.startswith(b"data: {")]


def read(own: Format, stream: bytes) -> Any:
    """A stream as the relay reads it."""
    fold = own.dialect.fold_stream()
    fold.feed(stream)
    return fold.reply()


@FORMATS
@given(rounds=replies)
def test_a_stream_and_a_body_tell_the_same_reply(own: Format, rounds: list[Turn]) -> None:
    """All texts, the client's calls, and the tokens of all rounds; no search."""
    stream = carried(own.function.stream(), [own.pieces(turn, place) for place, turn in enumerate(rounds)])
    body = carried(own.function.whole(), [own.pieces(turn, place, stream=False) for place, turn in enumerate(rounds)])
    assert FUNCTION_NAME.encode() not in stream + body
    told, whole = read(own, stream), own.dialect.fold_body(body)
    assert told.complete
    assert whole.complete
    if any(turn.text for turn in rounds) or rounds[-1].calls:
        assert (told.message is None) == (whole.message is None)
    if told.message is not None and whole.message is not None:
        assert told.message.digest == whole.message.digest
        assert told.message.media == whole.message.media
        assert told.message.text == "\n".join([turn.text for turn in rounds if turn.text])
        kept = [call.name for call in rounds[-1].calls if call.name != FUNCTION_NAME]
        assert [call.name for call in told.message.calls] == kept
    assert own.dialect.usage(told.usage) == own.dialect.usage(whole.usage)
    assert own.dialect.usage(told.usage).output_tokens == 5 * len(rounds)


@FORMATS
@given(rounds=replies)
def test_a_stream_is_one_for_its_client(own: Format, rounds: list[Turn]) -> None:
    """It begins and ends once, and its parts are numbered from the first to the last."""
    events = data_of(carried(own.function.stream(), [own.pieces(turn, place) for place, turn in enumerate(rounds)]))
    kinds = [event["type"] for event in events]
    if own is MESSAGES:
        assert (kinds.count("message_start"), kinds.count("message_delta"), kinds.count("message_stop")) == (1, 1, 1)
        starts = [event["index"] for event in events if event["type"] == "content_block_start"]
        stops = [event["index"] for event in events if event["type"] == "content_block_stop"]
    else:
        assert (kinds.count("response.created"), kinds.count("response.completed")) == (1, 1)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        starts = [event["output_index"] for event in events if event["type"] == "response.output_item.added"]
        stops = [event["output_index"] for event in events if event["type"] == "response.output_item.done"]
        items = [event["item"] for event in events if event["type"] == "response.output_item.done"]
        assert events[-1]["response"]["output"] == items
        assert {event["response"]["id"] for event in events if "response" in event} == {events[0]["response"]["id"]}
    assert starts == stops == list(range(len(starts)))


@FORMATS
@given(rounds=replies, together=st.integers(1, 5))
def test_the_events_of_a_stream_may_come_together(own: Format, rounds: list[Turn], together: int) -> None:
    """However the network groups them."""
    streams = [own.pieces(turn, place) for place, turn in enumerate(rounds)]
    grouped = [[b"".join(one[at : at + together]) for at in range(0, len(one), together)] for one in streams]
    assert carried(own.function.stream(), grouped) == carried(own.function.stream(), streams)


@FORMATS
@given(turn=last.filter(lambda turn: all(call.name != FUNCTION_NAME for call in turn.calls)))
def test_a_reply_without_a_search_keeps_its_bytes(own: Format, turn: Turn) -> None:
    """Streamed or not, where it does not repeat the function. Thinking may come later, at once."""
    pieces = own.pieces(turn, tools=False)
    got = carried(own.function.stream(), [pieces])
    assert sorted(got.split(b"\n\n")) == sorted(b"".join(pieces).split(b"\n\n"))
    if not turn.thought:
        assert got == b"".join(pieces)
    whole = own.pieces(turn, stream=False, tools=False)
    assert own.function.whole().read(whole[0]) == whole[0]


@FORMATS
@given(turn=searching)
def test_a_reply_can_end_where_a_search_cannot_be_answered(own: Format, turn: Turn) -> None:
    """The client gets the text so far, and nothing to answer."""
    stream, whole = own.function.stream(), own.function.whole()
    told = b"".join([stream.read(piece) for piece in own.pieces(turn)]) + stream.end()
    whole.read(own.pieces(turn, stream=False)[0])
    reply, body = read(own, told), own.dialect.fold_body(whole.end())
    assert reply.complete
    assert body.complete
    if turn.text and reply.message is not None and body.message is not None:
        assert reply.message.text == body.message.text == turn.text
        assert not reply.message.calls
        assert not body.message.calls
    assert own.dialect.usage(reply.usage) == own.dialect.usage(body.usage)
    assert FUNCTION_NAME.encode() not in told


@FORMATS
@pytest.mark.parametrize("text", ["", "Let me look."])
def test_thinking_that_only_leads_to_a_search_is_not_the_clients(own: Format, text: str) -> None:
    """What leads to a text is; a provider refuses thinking that comes back without what it led to."""
    search, answer = Call(FUNCTION_NAME, "{}"), Turn("The door.", thought="I have it.")
    rounds = [Turn(text, (search,), thought="I must search."), answer]
    for stream in (True, False):
        reader = own.function.stream() if stream else own.function.whole()
        got = carried(reader, [own.pieces(turn, place, stream=stream) for place, turn in enumerate(rounds)])
        assert (b"I must search." in got) == bool(text)
        assert (b"I have it." in got) == (own is RESPONSES or not text), "the thinking of one round at most"


@FORMATS
def test_what_goes_back_to_the_model_has_its_thinking_whole(own: Format) -> None:
    """With the signature or the sealed text, and with the call and its result behind it."""
    reader = own.function.stream()
    for piece in own.pieces(Turn("Well.", (Call(FUNCTION_NAME, '{"query": "door"}'),), thought="Hm.")):
        reader.read(piece)
    assert reader.calls is not None
    raw = own.function.call_message(reader.calls)
    (message,) = own.dialect.parse_messages([raw])
    (call,) = message.calls
    assert json.loads(call.arguments) == {"query": "door"}
    (result,) = own.dialect.parse_messages([own.function.result(call.id, "Found.")])
    assert (result.role, result.answers, result.text) == ("tool", call.id, "Found.")
    assert (b'"signature":"c2lnbmVk"' if own is MESSAGES else b'"encrypted_content":"c2VhbGVk"') in raw


@FORMATS
def test_signs_of_life_pass(own: Format) -> None:
    """Comments also while a round ends in a search; nothing else of it does."""
    reader = own.function.stream()
    assert reader.read(b": alive\n\n") == b": alive\n\n"
    for piece in own.pieces(Turn(calls=(Call(FUNCTION_NAME, "{}"),))):
        reader.read(piece)
    assert reader.calls is not None
    assert reader.read(b": alive\n\n") == b": alive\n\n"
    assert reader.read(b"data: [DONE]\n\n") == b""


@FORMATS
def test_an_error_within_a_round_is_passed_on(own: Format) -> None:
    """In place of its end, or after it."""
    turn = Turn("Well.", (Call(FUNCTION_NAME, "{}"),))
    for end in (-1, None):
        reader = own.function.stream()
        for piece in own.pieces(turn)[:end]:
            reader.read(piece)
        assert b"overheated" in reader.read(own.answers.failure("overheated"))
        assert reader.calls is None
