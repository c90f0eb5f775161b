"""What is nearly equal stands once with a mark, and nothing is folded that its mark could not tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.conversation.messages import Message
from tidemark.core.ports import SummaryTask, TokenCounter
from tidemark.summarizers import ExtractiveSummarizer
from tidemark.summarizers.folding import NO_MARK, Foldable, Mark, alike, mark_of, marked_end

MODEL = "gpt-4o"
Talk = Callable[..., tuple[Message, ...]]


def mark_text(texts: Sequence[str], *, is_output: bool = False, partial: bool = False) -> str | None:
    """The mark of some texts; None where they are not folded."""
    mark = mark_of([Foldable(text, NO_MARK) for text in texts], is_output=is_output, partial=partial)
    return None if mark is None else str(mark)


async def summarize(
    counter: TokenCounter, messages: tuple[Message, ...], bound: int, previous: str | None = None
) -> str:
    """One summary."""
    return (await ExtractiveSummarizer(counter).summarize(SummaryTask(messages, previous, bound, MODEL))).text


@pytest.mark.parametrize(
    ("numbers", "mark"),
    [
        (range(12), "[12 times, 0 to 11]"),
        ([4, 3, 5], "[3 times, 3 to 5]"),
        ([2, 3, 5, 6], "[4 times: 2, 3, 5, 6]"),
        ([7, 7, 8, 9], "[4 times, 7 to 9]"),
        (["08", "09", "10"], "[3 times, 08 to 10]"),
        ([1, 2], None),
        ([4711, 4832, 5020], None),
        (["0.5", "0.7", "0.9"], None),
    ],
)
def test_a_sentence_is_folded_where_the_mark_tells_all(numbers: Sequence[object], mark: str | None) -> None:
    """A row of numbers, in each place where the sentence has it; ticket numbers and measures are names of their own."""
    assert mark_text([f"Module {number} is fine, see `f{number}_17`." for number in numbers]) == mark


def test_a_sentence_with_two_values_is_not_folded() -> None:
    """No mark could say which values belong together, or that another number changed its place."""
    assert mark_text([f"Item {place} costs {place * 7} euros." for place in range(9)]) is None
    assert mark_text(["x1 y", "x2 y", "x y3"]) is None


def test_of_lines_of_a_tool_the_mark_may_tell_the_count_alone() -> None:
    """With one number that differs, or with several where a count is enough."""
    assert mark_text([f"row {place * 97}: ok" for place in range(9)], is_output=True) == "[8 more like it]"
    two = [f"{place}: took {place * 31} ms" for place in range(9)]
    assert mark_text(two, is_output=True) is None
    assert mark_text(two, is_output=True, partial=True) == "[8 more like it]"
    assert mark_text(["retrying"] * 5, is_output=True) == "[5 times]"


@given(st.lists(st.sampled_from(["a1", "a22", "a\n3", "a\n4", "b", "7", "é8", "é", "\ud800"])))
def test_texts_are_alike_if_they_are_the_same_without_digits(texts: list[str]) -> None:
    """Whatever stands in them, each with its place, and no place twice."""
    bare = ["".join(sign for sign in text if not sign.isdigit()) for text in texts]
    bare = [text.replace("\n", " ") for text in bare]
    groups = list(alike(texts))
    assert sorted(place for group in groups for place in group) == [
        place for place, text in enumerate(bare) if bare.count(text) > 1
    ]
    assert all(len({bare[place] for place in group}) == 1 for group in groups)


MARKS = st.builds(
    Mark,
    st.integers(3, 900),
    st.just(()) | st.just(("2", "3", "5")) | st.integers(0, 99).map(lambda low: tuple(map(str, range(low, low + 40)))),
    st.just(False),  # noqa: FBT003
    st.sampled_from([0, 12, 4000]),
) | st.builds(lambda times: Mark(times, is_partial=True), st.integers(3, 900))


@given(MARKS, st.sampled_from(["It is fine.", "called f(a=[1])", "Who [else]?"]))
def test_a_mark_is_read_back_as_it_was(mark: Mark, text: str) -> None:
    """The next summary counts on from there."""
    assert marked_end(f"{text} {mark}") == (text, mark)


@pytest.mark.parametrize(
    "text", ["a [b]", "[]", "a [12]", "a [12 times", "[2 lines; 3 times]", "a]", "x" * 500 + "]", "a [; 3 lines]"]
)
def test_other_brackets_are_no_marks(text: str) -> None:
    """They are what somebody said."""
    assert marked_end(text) == (text, NO_MARK)


def test_a_range_that_somebody_made_up_costs_nothing() -> None:
    """A user may write any number between brackets."""
    assert marked_end("It is fine. [3 times, 1 to 999999999]")[1].values == ()


@pytest.mark.anyio
async def test_later_rounds_count_on_from_an_earlier_summary(counter: TokenCounter, talk: Talk) -> None:
    """However many summaries there are, the sentence stands once, and its newest wording."""
    summary = None
    for start in (0, 4, 8):
        said = [
            text
            for place in range(start, start + 4)
            for text in (f"Look at pump {place}, please.", f"Pump {place} has no leak at its valve.")
        ]
        summary = await summarize(counter, talk(*said, "Is Ana there?", "She is in hall 3."), 300, summary)
    assert summary is not None
    assert summary.count("has no leak at its valve") == 1
    assert "Pump 11 has no leak at its valve. [12 times, 0 to 11]" in summary


@pytest.mark.anyio
async def test_rules_and_ticket_numbers_are_never_folded(counter: TokenCounter, talk: Talk) -> None:
    """Each of them is wanted in its own words."""
    rules = [f"Never open port {port}." for port in range(80, 84)]
    tickets = [f"Fix ticket OPS-{number}." for number in (812, 377, 590, 144)]
    text = await summarize(counter, talk(*[part for one in (*rules, *tickets) for part in (one, "Fine.")]), 300)
    assert [one for one in (*rules, *tickets) if one not in text] == []


@pytest.mark.anyio
async def test_an_answer_of_few_lines_stays_whole(counter: TokenCounter, talk: Talk) -> None:
    """Its rows are what was asked for, though they differ in numbers only."""
    rows = "\n".join(f"2026-0{month}: {month * 7919} orders" for month in range(1, 8))
    text = await summarize(counter, talk("How many orders?", {"role": "tool", "content": rows}, "See the list."), 300)
    assert all(str(month * 7919) in text for month in range(1, 8))


@pytest.mark.anyio
async def test_a_repeated_run_is_told_once_and_another_call_is_not_taken_for_it(
    counter: TokenCounter, talk: Talk
) -> None:
    """Of equal calls the newest result stands with the count; the results of unlike calls stand each."""

    def step(key: str, command: str, result: str) -> list[dict[str, object]]:
        call = {"id": key, "type": "function", "function": {"name": "sh", "arguments": f'{{"cmd": "{command}"}}'}}
        return [
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": key, "content": result},
        ]

    runs = [part for run in range(5) for part in step(f"a{run}", "make test", f"{80 + run} passed in {run * 3}.4 s")]
    sums = [
        part for name in ("lamps", "boats", "pumps") for part in step(name, f"count {name}", f"{len(name) * 83} rows")
    ]
    counts = [*step("x", "count hooks", "7012 rows"), *step("y", "count masts", "3371 rows")]
    text = await summarize(counter, talk("Test it.", *runs, *sums, *counts, "Done."), 400)
    assert "called sh(cmd=make test) [5 times]" in text
    assert "84 passed in 12.4 s [4 more like it]" in text
    assert "7012 rows" in text
    assert "3371 rows" in text


@pytest.mark.anyio
async def test_a_long_list_is_told_by_its_size_and_its_odd_line(counter: TokenCounter, talk: Talk) -> None:
    """Where nobody has taken it up, one line stands for those that are alike."""
    lines = [f"chunk {row}: {row * 7919 % 1000} of 1000 rows written" for row in range(300)]
    lines.insert(170, "disk quota: 3 GB left on volume ember")
    call = {"id": "c", "type": "function", "function": {"name": "sh", "arguments": '{"cmd": "load"}'}}
    messages = talk(
        "Load it.",
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "\n".join(lines)},
        "It is loaded, as far as I can tell.",
        "Thanks.",
    )
    text = await summarize(counter, messages, 1000)
    assert "called sh(cmd=load) [301 lines]" in text
    assert "disk quota: 3 GB left on volume ember" in text
    assert text.count("of 1000 rows written") == 1
    assert "[299 more like it]" in text


@pytest.mark.anyio
async def test_few_lines_of_a_log_are_told_apart(counter: TokenCounter, talk: Talk) -> None:
    """One of four numbers may be the cause; a line that stands for them would have one of them only."""
    counts = (36, 38, 4, 40)
    lines = [f"22:19:1{place} INFO pool ready: max_open={count} idle=2" for place, count in enumerate(counts)]
    log = "\n".join([*lines, *(f"{word} is read from the configuration of this cluster" for word in dir(str))])
    call = {"id": "a", "type": "function", "function": {"name": "logs", "arguments": '{"of": "writer"}'}}
    asked = {"role": "assistant", "content": None, "tool_calls": [call]}
    messages = talk("Why does it fail?", asked, {"role": "tool", "tool_call_id": "a", "content": log})
    text = await summarize(counter, messages, 400)
    assert "max_open=40 idle=2 [3 more like it]" not in text
    assert "max_open=4 idle=2" in await summarize(counter, messages, 4000)
