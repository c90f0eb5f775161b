"""Generated conversations: what hypothesis draws from, and the values built of it.

Parallel tool calls, results out of order, empty and multi-part contents, system messages anywhere, single
messages far over every mark.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from hypothesis import strategies as st

from tidemark.core.conversation.messages import Message
from tidemark.core.planning.budget import CompactionPolicy, ModelProfile, ModelWindow
from tidemark.dialects.chat.message import parse_message

WORDS = st.text(alphabet='abcdefgh äé漢🙂\n"\\<>', max_size=40)
TEXTS = st.one_of(WORDS, st.just(""), st.integers(1, 400).map(lambda n: "word " * n))
# Strategies are made once: to make and check one for each value drawn takes longer than to draw the value.
MAYBE_TEXT = st.one_of(st.none(), TEXTS)
_PART = st.one_of(
    TEXTS.map(lambda text: {"type": "text", "text": text}),
    st.just({"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}),
)
BOOLEANS = st.booleans()
CONTENTS: st.SearchStrategy[Any] = st.one_of(TEXTS, st.lists(_PART, max_size=3), st.none())
"""Strings, lists of parts with and without an image, and nothing."""


def message(**value: Any) -> Message:
    """A message as it comes from a client."""
    return parse_message(json.dumps(value, ensure_ascii=False).encode(), value, 0)


def size(said: Message) -> int:
    """A token count that is good enough for rules: it depends on the bytes alone."""
    return 4 + len(said.raw) // 4


@cache
def up_to(most: int, least: int = 0) -> st.SearchStrategy[int]:
    """Integers between two bounds, made once for each pair of bounds."""
    return st.integers(least, most)


@cache
def orders(ids: tuple[str, ...]) -> st.SearchStrategy[list[str]]:
    """All orders of some ids."""
    return st.permutations(ids)


@cache
def turns(number: int) -> st.SearchStrategy[list[Message]]:
    """One exchange: the user's message, tool rounds, the answer; system messages stray in."""
    return _turns(number)


@st.composite
def _turns(draw: st.DrawFn, number: int) -> list[Message]:
    said = [message(role="user", content=draw(CONTENTS))]
    for round_number in range(draw(up_to(2))):
        ids = [f"call_{number}_{round_number}_{i}" for i in range(draw(up_to(3, 1)))]
        if draw(BOOLEANS):
            ids = ["call_0"]  # some servers use one id again and again
        calls = [{"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}} for one in ids]
        said.append(message(role="assistant", content=draw(MAYBE_TEXT), tool_calls=calls))
        said += [message(role="tool", tool_call_id=one, content=draw(TEXTS)) for one in draw(orders(tuple(ids)))]
    said.append(message(role="assistant", content=draw(TEXTS)))
    if draw(up_to(5)) == 0:
        said.insert(draw(up_to(1)), message(role="developer", content=draw(WORDS)))
    return said


@st.composite
def conversations(draw: st.DrawFn, max_turns: int = 8) -> list[Message]:
    """A whole conversation that ends with a message of the user."""
    said = [message(role="system", content=draw(WORDS)) for _ in range(draw(up_to(2)))]
    for number in range(draw(up_to(max_turns))):
        said += draw(turns(number))
    return [*said, message(role="user", content=draw(CONTENTS))]


def policies() -> st.SearchStrategy[CompactionPolicy]:
    """Policies within the ranges that the configuration allows."""
    return st.builds(
        CompactionPolicy,
        threshold=st.one_of(st.floats(0.3, 1.0), st.integers(200, 3000).map(float)),
        target=st.floats(0.1, 0.9),
        retention_tokens=st.integers(0, 2000),
        retention_ratio=st.floats(0, 0.9),
        keep_last_messages=st.integers(0, 5),
        max_summary_tokens=st.one_of(st.none(), st.integers(64, 600)),
        min_tokens=st.integers(0, 2000),
        min_gain=st.floats(0, 0.5),
    )


def profiles() -> st.SearchStrategy[ModelProfile]:
    """Small windows, so that short conversations pass them."""
    window = st.integers(300, 6000)
    return st.builds(
        ModelProfile,
        st.just("model"),
        st.builds(ModelWindow, window, st.one_of(st.none(), st.integers(16, 2000))),
        policies(),
    )


REPLIES: st.SearchStrategy[int | None] = st.sampled_from([64, None, 2000, 32_000])
"""The reply lengths that requests state: a short one, none, and those of agents that send one number to every model."""


def pairs(messages: Sequence[Message]) -> list[tuple[int, int]]:
    """Places of each result's call and of the result; the last call of an id before a result is the one it answers."""
    callers: dict[str, int] = {}
    found = []
    for place, said in enumerate(messages):
        if said.answers is not None and said.answers in callers:
            found.append((callers[said.answers], place))
        for call in said.calls:
            callers[call.id] = place
    return found


def orphans(messages: Sequence[Message]) -> list[int]:
    """Places of results that stand without their call."""
    answered = {place for _, place in pairs(messages)}
    return [place for place, said in enumerate(messages) if said.answers is not None and place not in answered]
