"""A body that goes on where an earlier one ended is parsed from there on, and says the same."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import InvalidRequest
from tidemark.dialects import prefix_reuse
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.chat.request import read_messages
from tidemark.dialects.raw_json import read_elements, read_members
from tidemark.dialects.request_parser import RequestParser

TEXTS = st.text(alphabet=st.sampled_from('ab "\\/\n\t[]{}:,é😀'), max_size=12)
TALK = st.lists(TEXTS, min_size=1, max_size=8)
LAYOUTS: list[dict[str, Any]] = [{}, {"separators": (",", ":")}, {"indent": 2}, {"ensure_ascii": False}]


def conversation_of(texts: list[str]) -> list[dict[str, str]]:
    """A conversation."""
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


def body(messages: list[dict[str, str]], layout: dict[str, Any], *, first: bool = True, **members: Any) -> bytes:
    """A request; the messages stand before or after the other members."""
    model = {"model": "m"}
    whole = {"messages": messages, **model, **members} if first else {**model, **members, "messages": messages}
    return json.dumps(whole, **layout).encode(errors="surrogatepass")


def content_of(request: ModelRequest) -> object:
    """All that a request says, to the byte and in order."""
    return (
        request.messages,
        list(request.fields.items()),
        request.body,
        request.model,
        request.stream,
        request.billed_members,
    )


@pytest.fixture(autouse=True)
def short_bodies_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every length is long enough."""
    monkeypatch.setattr(prefix_reuse, "LONG_BYTES", 0)


@settings(max_examples=examples(500))
@given(
    texts=TALK,
    turns=st.lists(st.tuples(st.integers(0, 8), TALK, st.booleans()), max_size=6),
    layout=st.sampled_from(LAYOUTS),
    first=st.booleans(),
)
def test_a_parser_that_knows_the_beginning_reads_the_same(
    texts: list[str], turns: list[tuple[int, list[str], bool]], layout: dict[str, Any], *, first: bool
) -> None:
    """Turns, forks and edits in any order and layout: as a parser reads it that has never seen anything."""
    parser = ChatDialect().parser
    for kept, more, stream in [(0, texts, False), *turns]:
        texts = [*texts[:kept], *more]
        sent = body(conversation_of(texts), layout, first=first, stream=stream)
        assert content_of(parser.parse_now(sent)) == content_of(ChatDialect().parser.parse_now(sent))


def test_only_what_is_new_is_parsed() -> None:
    """The known messages are the very tuple's; what was found of them comes along."""
    parser = ChatDialect().parser
    before = parser.parse_now(body(conversation_of(["a", "b"]), {})).hints
    assert before is not None
    before.facts.tokens["rules"] = (1, 2)
    after = parser.parse_now(body(conversation_of(["a", "b", "c"]), {}, stream=True)).hints
    assert after is not None
    assert after.shared_count == 2
    assert after.earlier.tokens == {"rules": (1, 2)}
    assert after.facts.tokens == {}


def test_hints_hold_for_its_own_messages_only() -> None:
    """Where messages were taken out of a request, nothing that was found by place is right any more."""
    request = ChatDialect().parser.parse_now(body(conversation_of(["a", "b"]), {}))
    assert request.hints is not None
    assert replace(request, messages=request.messages[1:]).hints is None


@pytest.mark.parametrize(
    "end",
    [
        b',"messages":[{"role":"user","content":"instead"}]}',
        b',"m\\u0065ssages":[null,{"role":"user","content":"instead"}]}',
        b',"m\\u0065ssages":[null]}',
        b',"message\\u0073":[null]}',
        b',"messages":[null]}',
        b',"x":{"messages":[null]},"messages":null}',
        b',"x":{"messages":[null]}}',
        b',"messages":"none"}',
        b',"model":"n"',
        b"} trailing",
        b',"x":' + b"[" * 5000 + b"]" * 5000 + b"}",
    ],
)
def test_what_comes_after_the_known_part_may_change_everything(end: bytes) -> None:
    """A name that stands twice, an error: told as a parser tells it that has never seen the beginning."""
    parser = ChatDialect().parser
    start = body(conversation_of(["a", "b"]), {})[:-1]
    parser.parse_now(start + b"}")

    def outcome(one: RequestParser[Message]) -> object:
        try:
            return content_of(one.parse_now(start + end))
        except InvalidRequest as error:
            return str(error), error.code, error.param

    assert outcome(parser) == outcome(ChatDialect().parser)


def test_the_same_array_in_another_member_is_not_taken_for_the_messages() -> None:
    """The first place where the bytes stand is not always the right one."""
    parser, talk = ChatDialect().parser, conversation_of(["a", "b"])
    for more in ([], conversation_of(["c"]), conversation_of(["c", "d"])):
        sent = json.dumps({"metadata": {"messages": talk}, "messages": talk + more, "model": "m"}).encode()
        assert content_of(parser.parse_now(sent)) == content_of(ChatDialect().parser.parse_now(sent))


def test_earlier_bodies_give_way_to_newer_ones() -> None:
    """As many as the bound allows, and the messages they hold are counted."""
    reuse = prefix_reuse.PrefixReuse("messages", 4000)
    parser = ChatDialect().parser
    for number in range(20):
        sent = body(conversation_of([f"{number} {'x' * 500}"]), {})
        request = parser.parse_now(sent)
        reuse.add(sent, dict(request.fields), request.messages)
        assert reuse.size_bytes <= 4000
    assert reuse.find(body(conversation_of([f"19 {'x' * 500}", "more"]), {})) is not None
    assert reuse.find(body(conversation_of([f"0 {'x' * 500}", "more"]), {})) is None


def test_the_messages_may_stand_in_any_member() -> None:
    """Each dialect names its own."""
    reuse, talk = prefix_reuse.PrefixReuse("input", 100_000), conversation_of(["a", "b"])
    sent = json.dumps({"messages": "none", "input": talk, "model": "m"}).encode()
    fields = read_members(sent)
    messages = read_messages(read_elements(fields["input"]))
    assert reuse.add(sent, fields, messages) is not None
    longer = json.dumps({"messages": "none", "input": [*talk, *conversation_of(["c"])], "model": "n"}).encode()
    earlier = reuse.find(longer)
    assert earlier is not None
    assert earlier.hints.messages == messages
    continuation = reuse.read_continuation(longer, earlier)
    assert continuation is not None
    assert continuation.fields == read_members(longer)
    assert continuation.new_messages == [json.dumps(conversation_of(["c"])[0]).encode()]
    twice = longer[:-1] + b', "input": []}'
    assert reuse.read_continuation(twice, earlier) is None


def test_bytes_that_are_no_utf8_are_refused_whatever_was_seen_before() -> None:
    """Also in a member that nobody reads, and after half a character, where two readers judged apart."""
    talk = conversation_of(["cut \ud83d here"])
    begun = json.dumps({"messages": talk, "model": "m"}).encode()
    gone_on = json.dumps({"messages": [*talk, *conversation_of(["more"])], "model": "m"}).encode()
    odd = gone_on[:-1] + b', "metadata": "\xff"}'
    knowing = ChatDialect().parser
    knowing.parse_now(begun)
    knowing.parse_now(gone_on)
    for parser in (knowing, ChatDialect().parser):
        for broken in (
            odd,
            begun[:-1] + b', "metadata": "\xff"}',
            b'{"model": "m", "x": "\xed\xa0\x80", "messages": []}',
        ):
            with pytest.raises(InvalidRequest, match="not valid UTF-8"):
                parser.parse_now(broken)
    assert knowing.parse_now(gone_on[:-1] + ', "metadata": "é"}'.encode()).messages == (
        knowing.parse_now(gone_on).messages
    )
