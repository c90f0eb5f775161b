"""A line of a summary carries its day if the line before it is of another one, in the talk's own words."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.conversation.messages import Message
from tidemark.core.ports import SummaryTask, TokenCounter
from tidemark.summarizers import ExtractiveSummarizer
from tidemark.summarizers.days import days_of, marked_day, with_mark
from tidemark.summarizers.transcript import join_lines, read_back

MODEL = "gpt-4o"
Talk = Callable[..., tuple[Message, ...]]
DAYS = ["8 May 2024", "May 8th, 2023", "12 June", "2024-05-08", "08.05.2023", "2023年5月8日", "8. Mai 2023"]
OTHER = "[1 May 1990] Hello."
"""A sole heading says nothing about a talk."""
SMALL_TALK = "That sounds lovely, tell me more when you can."
STORY = (
    "[8 May 2024, 13:56] Hello again!",
    SMALL_TALK,
    "Tomasz sold his accordion to a baker in Ghent for 410 euros.",
    "My sister Farida opened a bakery in Tallinn with her neighbour.",
    "(7:20 pm on 27 May, 2024) Hello again!",
    SMALL_TALK,
    "Keiko broke the loom, and Bram repaired it with a spoon from Porto.",
    "The regatta in Izmir was won by a dentist called Oluwaseun.",
)
"""Two days, each stated in a message that says nothing else."""


async def summary_of(
    counter: TokenCounter, messages: tuple[Message, ...], bound: int = 90, previous: str | None = None
) -> str:
    """One summary."""
    return (await ExtractiveSummarizer(counter).summarize(SummaryTask(messages, previous, bound, MODEL))).text


@pytest.mark.parametrize("day", DAYS)
@pytest.mark.parametrize(
    "heading",
    [
        "[{}] Hello.",
        "({}) Ana: Hello.",
        "[{}, 13:56] Hello.",
        "[1:56 pm on {}] Hello.",
        "[Date: 1:56 pm on {}] Hello.",
        "Session 3 - {}",
        "Session 3 (1:56 pm on {})",
        "--- {} ---",
    ],
)
def test_a_heading_states_a_day(heading: str, day: str) -> None:
    """In the forms in which talks are recorded and sent by messengers; its time is left out."""
    assert days_of([OTHER, heading.format(day), "And then?"]) == ["1 May 1990", day, day]


@pytest.mark.parametrize(
    "text",
    [
        "8 May 2024",
        "8 May 2024, 13:56",
        "Date: 8 May 2024",
        "8 May 2024 was a fine day.",
        "On 8 May 2024 I moved.",
        "yesterday",
        "[Monday] Hello.",
        "[8 May 2024 and later] Hello.",
        "[8 May 2024](https://example.org) is a link.",
        "[2024-02-11 10:12:03] ERROR: no space left",
        "2024-02-11 10:12:03 40 consumers",
        "## 12 June\nArrive in Porto.\n## 13 June\nMuseum.",
        "[3.11.2] Changes",
    ],
)
def test_what_may_be_no_heading_states_no_day(text: str) -> None:
    """An answer, a plan, a line of a log or of a text: a wrong day is worse than none."""
    assert days_of(["Your date of birth, please.", text]) == []


@pytest.mark.parametrize(
    "text",
    [
        "[1.2.24] released",
        "## 1.2.24",
        "## 08.05.2023",
        "[10.12.20] pip",
        "=== 1.2.34 ===",
        "[99/99/99] Hello.",
        "[2024-99-99] Hello.",
        "[3/4/12] Hello.",
    ],
)
def test_a_version_and_what_no_calendar_has_state_no_day(text: str) -> None:
    """Not even beside a day."""
    assert days_of([OTHER, text]) == []


def test_a_plan_states_no_day() -> None:
    """However many lines it has."""
    assert days_of(["8 May: dentist", "9 May: swimming", "10 May: haircut", "11 May: dentist"]) == []


@pytest.mark.parametrize(
    "text",
    [
        "[31 December 2030] Remember me to renew the passport",
        "[1 January 1999] Dear diary",
        "[2021-03-04 12:00:01] nginx: started",
        "(2024-05-08) The paper says",
        "Session 3 - 12 June",
    ],
)
def test_a_sole_heading_states_no_day_and_turns_no_time_back(text: str) -> None:
    """Not in a talk without days, and if it is of an earlier day or far ahead, not in one that has some."""
    assert days_of([text, "Hello.", text, "Hello."]) == []
    talk = [f"[{day} July 2024, 13:56] Hello." for day in (8, 9, 10, 11)]
    days = [f"{day} July 2024" for day in (8, 9, 10, 11)]
    assert days_of([*talk[:2], text, *talk[2:]]) == [*days[:2], days[1], *days[2:]]


@pytest.mark.parametrize("day", ["8/5/23", "08.05.23"])
def test_a_short_year_needs_a_time(day: str) -> None:
    """Without one, it is a version."""
    assert days_of([OTHER, f"[{day}, 13:56] Hello."]) == ["1 May 1990", day]
    assert days_of([OTHER, f"[{day}] Hello."]) == []


def test_the_month_stands_where_the_talk_goes_on() -> None:
    """Before the day or behind it; a year that is not stated ends, too."""
    for days in (["5/8/2023", "6/3/2023", "7/1/2023"], ["30/5/2023", "1/6/2023", "2/6/2023"]):
        assert days_of([f"[{day}] Hello." for day in days]) == days
    days = ["30 December", "2 January", "3 January"]
    assert days_of([f"[{day}] Hello." for day in days]) == days


def test_days_alone_are_headings_where_they_recur() -> None:
    """One may answer something, three that follow no question do not."""
    talk = ["8 May 2024", "Hello.", "9 May 2024, 13:56: Hello.", "Hi.", "10 May 2024", "When were you born?"]
    assert days_of([*talk, "1 May 1990"]) == ["8 May 2024"] * 2 + ["9 May 2024"] * 2 + ["10 May 2024"] * 3
    assert days_of(talk[:4]) == []


@given(st.lists(st.tuples(st.sampled_from(["User", "Assistant"]), st.sampled_from(["", *DAYS])), min_size=1))
def test_a_day_stands_once_and_is_read_back(said: list[tuple[str, str]]) -> None:
    """Each line is of the day of the newest mark before it."""
    days, day = [], ""
    for _, own in said:
        day = own or day
        days.append(day)
    text = join_lines([(speaker, f"line {place}") for place, (speaker, _) in enumerate(said)], days)
    lines = list(read_back(text))
    assert [line.text for line in lines] == [f"line {place}" for place in range(len(said))]
    assert days_of([""] * len(lines), [line.day for line in lines]) == (days if day else [])
    assert text.count("[") == len(
        [place for place, own in enumerate(days) if own and own != [*days[:1], *days][place]]
    ) + (days[0] != "")


@given(st.text(max_size=60), st.sampled_from(DAYS))
def test_a_mark_is_read_as_it_was_written(text: str, day: str) -> None:
    """Whatever follows it, unless that begins with white space."""
    assert marked_day(with_mark(f"x{text}", day)) == (day, f"x{text}")


@pytest.mark.parametrize("text", ["[1.2.24] released", "[1 January 1999] Dear diary", "[8 May 2024, 13:56] Hello."])
def test_a_bracket_of_the_talk_is_no_mark(text: str) -> None:
    """It stays in the second summary, and in the ones after it."""
    assert [line.text for line in read_back(join_lines([("User", text)]))] == [text]


@pytest.mark.parametrize("speaker", ["Open request", "User said"])
def test_a_request_and_a_rule_of_a_ledger_stay_word_for_word(speaker: str) -> None:
    """What the user wrote before them is no mark of a summary."""
    line = f"{speaker}: [8 May 2024] Never touch prod."
    assert [one.text for one in read_back(line)] == ["[8 May 2024] Never touch prod."]
    assert join_lines([(speaker, "[8 May 2024] Never touch prod.")]) == line


@pytest.mark.anyio
async def test_the_first_line_of_each_day_says_so(counter: TokenCounter, talk: Talk) -> None:
    """Within the bound, whichever lines were chosen; and in the next summary, too."""
    for bound in range(40, 120, 10):
        text = await summary_of(counter, talk(*STORY), bound)
        later = await summary_of(counter, talk("Ravi bought a kayak in Quito.", "It has 3 holes."), bound, text)
        for summary in (text, later):
            assert counter.count_text(summary, MODEL) <= bound
            before, _, after = summary.partition("27 May, 2024")
            assert summary.count("8 May 2024") <= 1
            assert "regatta" not in before
            assert "Keiko" not in before
            assert not re.search("Tomasz|Farida", after)


@pytest.mark.anyio
async def test_a_talk_that_states_no_day_has_none(counter: TokenCounter, talk: Talk) -> None:
    """Nothing is made of "yesterday", or of a day within a sentence."""
    said = [text.partition(") ")[2] or text for text in STORY[1:]]
    text = await summary_of(counter, talk(*said, "Yesterday, on 3 June, Paloma left Pune for Galway."))
    assert "[" not in text
