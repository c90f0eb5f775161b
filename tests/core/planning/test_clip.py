"""Clipping: what cannot fit otherwise fits with the middle of tool results left out, and nothing else changes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from tests.core.histories import conversations, message, orphans, pairs, profiles, size
from tests.core.planning.test_plan import chat, summary_of
from tests.core.test_promises import FIXED, summarized
from tests.support.examples import examples
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.planning.assemble import assemble
from tidemark.core.planning.budget import CompactionPolicy, ModelProfile, ModelWindow, budget_for
from tidemark.core.planning.clip import LEAST_TOKENS, Clip, ClipFunctions, clipped, clips_for
from tidemark.core.planning.plan import plan
from tidemark.core.planning.situation import CannotFit, Compact, Mode, NoCompaction, PlanInput, ReuseSummary
from tidemark.dialects.chat.message import parse_message
from tidemark.dialects.chat.writing import replace_middle

MARK = "tokens clipped by Tidemark ...]"
LETTERS = st.text(alphabet='abc äé漢🙂\n"\\<>', min_size=1, max_size=20)
LARGE = st.builds(lambda piece, times: piece * times, LETTERS, st.integers(1, 800))


def text_size(text: str) -> int:
    """Tokens of a bare text, by the same rule as ``size``."""
    return len(json.dumps(text, ensure_ascii=False).encode()) // 4


def longest(text: str, most: int) -> str:
    """The longest beginning of that many tokens."""
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if text_size(text[:middle]) <= most else (low, middle - 1)
    return text[:low]


SCISSORS = ClipFunctions(size, text_size, longest, replace_middle)


def result(call: str, content: Any, **more: Any) -> Message:
    """What a tool gave."""
    return message(role="tool", tool_call_id=call, content=content, **more)


def calling(*ids: str) -> Message:
    """An assistant that calls a tool for each id at once."""
    calls = [{"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}} for one in ids]
    return message(role="assistant", content=None, tool_calls=calls)


@st.composite
def heavy(draw: st.DrawFn) -> list[Message]:
    """A conversation that ends inside one turn: parallel calls and what they gave, perhaps with a call too many."""
    said = draw(conversations(max_turns=3))
    ids = [f"heavy_{i}" for i in range(draw(st.integers(1, 6)))]
    parts = st.lists(LARGE.map(lambda text: {"type": "text", "text": text, "cache_control": None}), max_size=4)
    answered = draw(st.permutations(ids))
    results = [result(one, draw(st.one_of(LARGE, parts))) for one in answered]
    called = calling(*ids, "never_answered") if draw(st.booleans()) else calling(*ids)
    return [*said, called, *results[: draw(st.integers(1, len(results)))]]


def situation(
    messages: Sequence[Message], profile: ModelProfile, summary: PrefixSummary | None = None, mode: Mode = "auto"
) -> PlanInput:
    """A request as the pipeline sees it."""
    known = 40 if summary else 0
    budget = budget_for(profile, 64)
    return PlanInput(messages, [size(one) for one in messages], FIXED, budget, profile.policy, mode, summary, known)


def cut(given_: PlanInput, clips: Sequence[Clip]) -> PlanInput:
    """The situation after the clips were performed."""
    messages = list(given_.messages)
    for one in clips:
        messages[one.place] = clipped(messages[one.place], given_.tokens[one.place], one.max_tokens, SCISSORS)
    return replace(given_, messages=messages, tokens=[size(one) for one in messages])


@given(heavy(), profiles(), st.sampled_from(["auto", "force"]))
@settings(max_examples=examples(300), deadline=None)
def test_clipping_makes_fit_what_did_not_and_changes_nothing_else(
    messages: list[Message], profile: ModelProfile, mode: Mode
) -> None:
    """Promises 2, 3 and 4: it fits, the newest is as it was, pairs are whole, only results became smaller."""
    before = situation(messages, profile, mode=mode)
    clips = clips_for(before)
    assert clips == clips_for(before), "the same request is clipped in the same way"
    if clips:
        event("clipped")
        assert isinstance(plan(before), CannotFit), "only where nothing else helps"
    else:
        return
    after = cut(before, clips)
    places = {one.place for one in clips}
    for place, (was, now) in enumerate(zip(before.messages, after.messages, strict=True)):
        if place not in places:
            assert now is was
            continue
        assert was.role == "tool"
        assert (now.role, now.answers, now.name, now.calls) == (was.role, was.answers, was.name, was.calls)
    assert after.messages[-1].raw == messages[-1].raw
    for one in clips:
        assert size(after.messages[one.place]) <= one.max_tokens < before.tokens[one.place]
    planned = plan(after)
    assert not isinstance(planned, CannotFit)
    forwarded = after.messages
    if isinstance(planned, Compact):
        forwarded = assemble(after.messages, summarized(after.messages, planned))
    assert FIXED + sum(map(size, forwarded)) <= before.budget.limit
    assert len(orphans(forwarded)) <= len(orphans(messages))
    there = {id(one) for one in forwarded}
    assert all(
        id(after.messages[told]) in there for call, told in pairs(after.messages) if id(after.messages[call]) in there
    )


@given(st.one_of(LARGE, st.lists(LARGE, min_size=1, max_size=5)), st.integers(LEAST_TOKENS, 600))
@settings(max_examples=examples(300), deadline=None)
def test_a_clipped_result_keeps_both_ends_and_all_other_members(said: str | list[str], most: int) -> None:
    """Head and tail of the original around one visible mark; other members keep their bytes and their order."""
    parts = [{"type": "text", "x": 1.50, "text": one} for one in said] if isinstance(said, list) else said
    was = message(role="tool", extra={"b": 1, "a": [1.0, 2e3]}, content=parts, tool_call_id="a", name="look")
    assume(size(was) > most)
    now = clipped(was, size(was), most, SCISSORS)
    assert size(now) <= most
    assert now.text.count(MARK) == 1
    head, tail = now.text.split("[... ")[0].rstrip("\n"), now.text.split(MARK)[1].lstrip("\n")
    assert was.text.startswith(head)
    assert was.text.endswith(tail)
    if most >= 2 * LEAST_TOKENS:
        assert head or was.text.startswith("\n")
        assert tail or was.text.endswith("\n")
    before, after = json.loads(was.raw), json.loads(now.raw)
    assert list(before) == list(after)
    assert was.raw[: was.raw.index(b'"content"')] == now.raw[: now.raw.index(b'"content"')]
    assert now.raw.endswith(b'"tool_call_id": "a", "name": "look"}')
    if isinstance(said, list):
        assert all(part["type"] == "text" and part["x"] == 1.5 for part in after["content"])


def test_what_is_written_in_no_common_way_is_kept_as_it_is_written() -> None:
    """White space, escapes, numbers and further members are the client's; half a character can be sent."""
    raw = '{ "role" :"tool", "n":1.0e0, "content" : "' + "ab \\ud83d" * 300 + '" ,"tool_call_id":"\\u0061" }'
    was = parse_message(raw.encode(), json.loads(raw), 0)
    now = clipped(was, size(was), 80, SCISSORS)
    assert now.raw.startswith(b'{ "role" :"tool", "n":1.0e0, "content" : "')
    assert now.raw.endswith(b'" ,"tool_call_id":"\\u0061" }')
    assert MARK in now.text


PROFILE = ModelProfile("m", ModelWindow(2000), CompactionPolicy(min_tokens=0))
LIMIT = budget_for(PROFILE, 64).limit


def test_the_largest_result_is_clipped_first_and_no_more_than_is_needed() -> None:
    """Of results of 3,000, 500 and 400 tokens only the first is clipped, to the first rung that is enough."""
    said = [message(role="user", content="go"), calling("a", "b", "c", "d")]
    said += [result("b", "x" * 2000), result("a", "y" * 12_000), result("c", "z" * 1600), result("d", "done")]
    assert clips_for(situation(said, PROFILE)) == (Clip(3, LIMIT // 4),)


def test_sizes_are_rungs_of_a_ladder_that_hangs_on_the_limit_alone() -> None:
    """Halves of the limit; so a little more or less in the request does not change what is clipped."""
    sizes = set()
    for number in range(2, 40):
        ids = [f"c{i}" for i in range(number)]
        said = [message(role="user", content="go"), calling(*ids), *[result(one, one * 400) for one in ids]]
        sizes |= {one.max_tokens for one in clips_for(situation(said, PROFILE))}
    assert sizes
    assert sizes <= {LIMIT >> step for step in range(1, 6)}
    assert min(sizes) >= LEAST_TOKENS


def test_in_a_loop_that_cannot_be_cut_results_only_get_smaller_and_most_stay_as_they_are() -> None:
    """A call that is never answered keeps its turn open. The fewest results change, so most of the prefix is frozen."""
    said = [message(role="user", content="go"), message(role="assistant", content="First."), calling("never")]
    profile = replace(PROFILE, window=ModelWindow(20_000))
    before: dict[int, int] = {}
    changed: list[float] = []
    for number in range(110):
        said += [calling(f"c{number}"), result(f"c{number}", f"line {number} " * 160)]
        clips = {one.place: one.max_tokens for one in clips_for(situation(said, profile))}
        assert all(clips[place] <= most for place, most in before.items())
        if before:
            changed.append(sum(before.get(place) != most for place, most in clips.items()) / number)
        before = clips
    assert len(changed) > 50
    assert sum(changed) / len(changed) < 0.15


@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_only_results_are_clipped(role: str) -> None:
    """What a person, the model or the operator said is never cut."""
    said = [message(role="user", content="go"), calling("a"), message(role=role, content="x" * 20_000)]
    assert clips_for(situation([*said, result("a", "ok")], PROFILE)) == ()


def test_a_newest_message_that_is_too_large_by_itself_is_refused_as_ever() -> None:
    """It is never altered, a tool result neither; nor is anything clipped in vain."""
    said = [message(role="user", content="go"), calling("a", "b"), result("a", "x" * 9000), result("b", "y" * 9000)]
    assert clips_for(situation(said, PROFILE)) == ()
    assert isinstance(plan(situation(said, PROFILE)), CannotFit)


def test_a_result_with_an_image_is_left_alone() -> None:
    """What of its tokens is text is not known, so nothing can be promised of it."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9000}}
    said = [message(role="user", content="go"), calling("a", "b"), result("a", [image]), result("b", "ok")]
    assert clips_for(situation(said, PROFILE)) == ()


def test_oversize_error_clips_nothing() -> None:
    """``oversize: error``: the client is told, as for any other message."""
    profile = replace(PROFILE, policy=replace(PROFILE.policy, oversize="error"))
    said = [message(role="user", content="go"), calling("a", "b"), result("a", "x" * 9000), result("b", "ok")]
    assert clips_for(situation(said, PROFILE))
    assert clips_for(situation(said, profile)) == ()


def test_results_of_the_legacy_role_are_clipped_too() -> None:
    """``function``: one call, one result; a call that another one waits for keeps them in the newest turn."""
    call = {"name": "look", "arguments": "{}"}
    said = [message(role="user", content="go"), calling("never"), message(role="assistant", function_call=call)]
    said += [message(role="function", name="look", content="x" * 9000), message(role="assistant", content="ok")]
    (one,) = clips_for(situation(said, PROFILE))
    assert said[one.place].answers == "function:look"


def test_a_summary_that_is_there_is_used_on() -> None:
    """Promise 5: what is clipped after a summary leaves the summary's bytes alone."""
    said = [*chat(3), calling("a", "b"), result("a", "x" * 9000), result("b", "ok")]
    before = situation(said, PROFILE, summary_of(2))
    clips = clips_for(before)
    assert clips
    assert isinstance(plan(cut(before, clips)), ReuseSummary)


def test_off_clips_nothing() -> None:
    """``X-Tidemark-Summarize: off``: the request goes out as it is."""
    said = [message(role="user", content="go"), calling("a", "b"), result("a", "x" * 9000), result("b", "ok")]
    before = situation(said, PROFILE, mode="off")
    assert clips_for(before) == ()
    assert isinstance(plan(before), NoCompaction)
