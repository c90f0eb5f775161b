"""Clients move their cache marks as a conversation grows, and a long body is still parsed from its new end on."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dialects.messages.anthropic_talk import CACHED, assistant, calls, result, text, user
from tests.support.examples import examples
from tidemark.core.conversation.request import ModelRequest
from tidemark.dialects import prefix_reuse
from tidemark.dialects.messages.dialect import MessagesDialect
from tidemark.tokens import LocalTokenCounter

LAYOUTS: list[dict[str, Any]] = [{}, {"separators": (",", ":")}, {"indent": 2}]
TURNS = st.lists(st.tuples(st.text("ab {}[],", min_size=1, max_size=9), st.integers(0, 2)), min_size=1, max_size=6)


@pytest.fixture(autouse=True)
def short_bodies_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every length is long enough."""
    monkeypatch.setattr(prefix_reuse, "LONG_BYTES", 0)


def talk_of(turns: list[tuple[str, int]]) -> list[dict[str, Any]]:
    """A talk; each turn is a question, with results of so many calls before it."""
    messages: list[dict[str, Any]] = []
    results: list[Any] = []
    for turn, (words, count) in enumerate(turns):
        messages.append(user(*results, text(words)))
        ids = [f"c{turn}_{number}" for number in range(count)]
        messages.append(assistant(text("So."), *(calls("f", call) for call in ids)))
        results = [result(call, words) for call in ids]
    return [*messages, user(*results, text("Well?"))]


def marked_body(messages: list[dict[str, Any]], marks: int, layout: dict[str, Any], system: str = "") -> bytes:
    """A request whose newest user messages have cache marks."""
    marked = [dict(message) for message in messages]
    for message in [message for message in marked if message["role"] == "user"][-marks:] if marks else ():
        *before, last = message["content"]
        message["content"] = [*before, {**last, "cache_control": CACHED}]
    return json.dumps({"model": "m", "max_tokens": 9, "messages": marked, "system": system}, **layout).encode()


def content_of(request: ModelRequest) -> object:
    """All that a request says."""
    return request.messages, dict(request.fields), request.body, request.billed_members


@settings(max_examples=examples(200))
@given(turns=TURNS, marks=st.lists(st.integers(0, 2), min_size=7, max_size=7), layout=st.sampled_from(LAYOUTS))
def test_a_parser_that_knows_the_beginning_reads_the_same(
    turns: list[tuple[str, int]], marks: list[int], layout: dict[str, Any]
) -> None:
    """Wherever the marks of each turn are."""
    parser = MessagesDialect().parser
    for count in range(1, len(turns) + 1):
        body = marked_body(talk_of(turns[:count]), marks[count], layout, system=f"head {count}")
        assert content_of(parser.parse_now(body)) == content_of(MessagesDialect().parser.parse_now(body))


@pytest.mark.parametrize("marks", [1, 2])
def test_all_but_the_marked_messages_are_taken_over(marks: int) -> None:
    """The hints say how many; what was known of the others is not used."""
    turns = [(f"turn {number}", 2) for number in range(6)]
    dialect = MessagesDialect()
    before = dialect.parser.parse_now(marked_body(talk_of(turns[:5]), marks, {}))
    after = dialect.parser.parse_now(marked_body(talk_of(turns), marks, {}))
    assert after.hints is not None
    taken_over = after.hints.shared_count
    marked = {1: 3, 2: 3 + 4}[marks]  # the last user message is two results and a text; before it are four more
    assert taken_over == len(before.messages) - marked
    assert after.messages[:taken_over] == before.messages[:taken_over]


async def test_counts_of_messages_that_changed_are_not_taken_over() -> None:
    """The client edits its newest question, which had a mark."""
    dialect, counter = MessagesDialect(), LocalTokenCounter()
    turns = [(f"turn {number}", 1) for number in range(4)]
    long = [*talk_of(turns)[:-1], user(text("word " * 500))]
    await counter.count(dialect.parser.parse_now(marked_body(long, 1, {})), "m")
    short = dialect.parser.parse_now(marked_body(talk_of(turns), 1, {}))
    fresh = MessagesDialect().parser.parse_now(short.body)
    assert short.hints is not None
    assert short.hints.shared_count > 0
    assert (await counter.count(short, "m")).messages == (await LocalTokenCounter().count(fresh, "m")).messages
