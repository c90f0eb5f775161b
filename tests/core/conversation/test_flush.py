"""What leaves the context: exactly what the summary is made of, told on one line in the client's own bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.core.histories import conversations, size
from tidemark.core.conversation.flush import Flush, document, flush_key, leaving
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import chain_of
from tidemark.core.conversation.summary import MaskedResults, PrefixSummary, SummaryRecipe
from tidemark.core.planning.assemble import assemble
from tidemark.dialects.chat.message import parse_message

RECIPE = SummaryRecipe("extractive", "", 1)


def summary(messages: Sequence[Message], covered: int, absorbed: Sequence[bytes] = ()) -> PrefixSummary:
    """A summary of the first ``covered`` messages."""
    prefix = chain_of("t", messages).at(covered)
    return PrefixSummary(prefix, covered, "It\nwas.", RECIPE, "extractive", "automatic", 1.0, absorbed=tuple(absorbed))


def flush(messages: Sequence[Message], new: PrefixSummary, before: PrefixSummary | None = None) -> Flush:
    """What leaves when ``new`` takes the place of ``before``."""
    first, gone = leaving(messages, [size(one) for one in messages], new, before)
    return Flush("t", "c", "m", chain_of("t", messages), new, first, gone)


@st.composite
def compacted(draw: st.DrawFn) -> tuple[list[Message], PrefixSummary, PrefixSummary | None]:
    """A conversation, a summary of it, and perhaps one that was in use before; some system messages taken in."""
    messages = draw(conversations())
    said = [one for one in messages if not one.is_system]
    covered = draw(st.integers(0, len(said) - 1))
    begins = next(place for place, one in enumerate(messages) if not one.is_system)
    systems = sorted({one.digest for one in messages[begins:] if one.is_system})
    absorbed = draw(st.lists(st.sampled_from(systems), unique=True)) if systems else []
    before = None
    if covered > 1 and draw(st.booleans()):
        told = draw(st.lists(st.sampled_from(absorbed), unique=True)) if absorbed else []
        before = summary(messages, draw(st.integers(1, covered - 1)), told)
    return messages, summary(messages, covered, absorbed), before


@given(compacted())
def test_what_leaves_is_what_was_forwarded_before_and_is_not_now(
    case: tuple[list[Message], PrefixSummary, PrefixSummary | None],
) -> None:
    """Message by message and in order; the summaries themselves are no messages of the client."""
    messages, new, before = case
    gone = [one.message for one in flush(messages, new, before).leaving]
    if not new.covered:
        assert gone == []
        return
    earlier = list(assemble(messages, before)) if before else list(messages)
    now = {id(one) for one in assemble(messages, new)}
    own = {id(one) for one in messages}
    assert [id(one) for one in gone] == [id(one) for one in earlier if id(one) in own and id(one) not in now]


@given(compacted())
def test_what_had_left_before_can_be_taken_off(
    case: tuple[list[Message], PrefixSummary, PrefixSummary | None],
) -> None:
    """Where a summary was made without knowing of the one before it: then the same leaves as if that had been known."""
    messages, new, before = case
    whole = flush(messages, new)
    assert (whole.after(before) if before else whole) == flush(messages, new, before)


@given(compacted())
def test_nothing_is_taken_off_twice(case: tuple[list[Message], PrefixSummary, PrefixSummary | None]) -> None:
    """What is left belongs to what leaves, in its order, and the key stays."""
    messages, new, before = case
    rest = flush(messages, new, before)
    again = rest.after(before) if before else rest
    assert again == rest
    assert rest.after(new).leaving == ()
    assert rest.after(new).key == rest.key


@given(compacted())
def test_the_document_is_one_line_of_json_with_the_clients_messages(
    case: tuple[list[Message], PrefixSummary, PrefixSummary | None],
) -> None:
    """Whatever the client wrote."""
    messages, new, before = case
    told = flush(messages, new, before)
    line = document(told, 2.5)
    assert b"\n" not in line
    assert b"\r" not in line
    read = json.loads(line)
    assert read["messages"] == [json.loads(one.message.raw) for one in told.leaving]
    assert read["key"] == told.key
    assert (read["first"], read["last"], read["at"]) == (told.first, new.covered, 2.5)
    assert read["tokens"]["messages"] == sum(size(one.message) for one in told.leaving)


def test_messages_that_were_sent_over_many_lines_are_told_on_one() -> None:
    """White space between the parts of a JSON text may be any; inside of strings nothing is changed."""
    value: dict[str, Any] = {"role": "user", "content": "two\nlines"}
    said = parse_message(json.dumps(value, indent=2).replace("\n", "\r\n").encode(), value, 0)
    newest = parse_message(b'{"role": "user", "content": "x"}', {"role": "user", "content": "x"}, 0)
    line = document(flush([said, newest], summary([said, newest], 1)), 0.0)
    assert b"\n" not in line
    assert json.loads(line)["messages"] == [value]


def test_keys_differ_by_conversation_prefix_and_range() -> None:
    """And by nothing else, so that the same messages have one key in every process."""
    keys = {flush_key(family, prefix, covered) for family in "ab" for prefix in (b"1", b"2") for covered in (1, 2)}
    assert len(keys) == 8
    assert flush_key("a", b"1", 1) == flush_key("a", b"1", 1)


@given(compacted())
def test_masks_let_nothing_leave_and_keep_nothing_from_leaving_later(
    case: tuple[list[Message], PrefixSummary, PrefixSummary | None],
) -> None:
    """All messages behind the summary before them still go out, so the next one gives them all, and none twice."""
    messages, new, before = case
    absorbed = before.absorbed if before else ()
    masks = replace(new, made_by="mask", absorbed=absorbed, masked=MaskedResults(before, ()))
    assert flush(messages, masks, before).leaving == ()
    behind, upon = flush(messages, new, masks), flush(messages, new, before)
    assert (behind.first, behind.leaving) == (upon.first, upon.leaving)
    assert upon.after(masks).leaving == upon.leaving
