"""What only shows that somebody listens is no line of a summary; a short answer is one, with its question."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tidemark.core.conversation.messages import Message
from tidemark.core.ports import SummaryTask, TokenCounter
from tidemark.summarizers import ExtractiveSummarizer

MODEL = "gpt-4o"
Talk = Callable[..., tuple[Message, ...]]
ASIDES = (
    "Yikes.",
    "Mm-hmm.",
    "Deb!",
    "Roo.",
    "Darn. Nee.",
    "Four six seven eight.",
    "That's fair enough.",
    "Thanks, Deb!",
    "Genau.",
    "Oui, oui.",
    "ほら。",
    "嗯嗯。",
)
STATEMENTS = (
    "The barn roof came off in a storm.",
    "Ludmila draws the new box in Ghent.",
    "Das Dach der Scheune verlor im Sturm seine Ziegel.",
    "护国寺小吃店在西城区。",
)


async def summary_of(counter: TokenCounter, messages: tuple[Message, ...], bound: int = 400) -> str:
    """One summary, large enough for everything."""
    return (await ExtractiveSummarizer(counter).summarize(SummaryTask(messages, None, bound, MODEL))).text


@pytest.mark.anyio
@pytest.mark.parametrize("aside", ASIDES)
async def test_an_aside_is_no_line(counter: TokenCounter, talk: Talk, aside: str) -> None:
    """In any language, by its few words, of which none is a value."""
    text = await summary_of(counter, talk(STATEMENTS[0], aside, STATEMENTS[1], aside, "Go on with the box."))
    assert aside not in text
    assert "Ludmila" in text


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("On which day does the course begin?", "Tuesday."),
        ("How old is your neighbour's cat?", "42"),
        ("What is the name of your dog?", "Rex"),
        ("Um 13 Uhr im Büro?", "nein, 14 Uhr"),
        ("Shall I delete the old backup?", "Yes, delete it"),
        ("Which database should the service use?", "Postgres."),
        ("Wie heißt die Straße mit der Bäckerei?", "Lindenweg."),
        ("您想在哪里吃晚饭？", "北京烤鸭店。"),
    ],
)
async def test_a_short_answer_stands_with_its_question(
    counter: TokenCounter, talk: Talk, question: str, answer: str
) -> None:
    """One word alone would be an orphan; one with a number may stand alone."""
    text = await summary_of(counter, talk(question, answer, *STATEMENTS[:3], "Go on with the box."))
    line = next(line for line in text.split("\n") if answer.removeprefix("Yes, ") in line)
    assert question in line or any(sign.isdigit() for sign in answer)


@pytest.mark.anyio
@pytest.mark.parametrize(
    "statement",
    [
        "Never do that.",
        "Use Postgres.",
        "Room 7.",
        "src/app.py",
        "ana@example.com",
        "I met Bob.",
        "FACT: red.",
        "abc_1",
    ],
)
async def test_a_short_statement_with_a_value_a_name_or_a_rule_is_a_line(
    counter: TokenCounter, talk: Talk, statement: str
) -> None:
    """It says something, however short it is, and nobody need have asked."""
    text = await summary_of(counter, talk(STATEMENTS[0], "Fine.", statement, "Fine.", STATEMENTS[1], "Fine.", "Go on."))
    assert statement in text


@pytest.mark.anyio
async def test_the_name_of_a_speaker_tells_nothing(counter: TokenCounter, talk: Talk) -> None:
    """In a meeting's minutes each message begins with one."""
    names = ("Petra Holm", "Joel Abara")
    turns = [f"{names[place % 2]}: {text}" for place, text in enumerate((*STATEMENTS[:2], "Definitely.") * 3)]
    asked = ("Petra Holm: Which colour does the ring get?", "Joel Abara: Amber.")
    text = await summary_of(counter, talk(*turns, *asked, "Go on.", "Fine."))
    assert "Definitely" not in text
    assert "[Which colour does the ring get?] Joel Abara: Amber." in text


@pytest.mark.anyio
async def test_a_few_words_stand_beside_a_statement_of_their_message_only(counter: TokenCounter, talk: Talk) -> None:
    """Alone they would say nothing."""
    messages = talk(f"{STATEMENTS[0]} Poor cows.", "Hm.", STATEMENTS[1], "Hm.", "Go on with the box.")
    assert f"{STATEMENTS[0]} Poor cows." in await summary_of(counter, messages)
    for bound in range(10, 40):
        assert "User: Poor cows." not in await summary_of(counter, messages, bound)


@pytest.mark.anyio
async def test_a_question_goes_with_its_answer_into_the_next_summary(counter: TokenCounter, talk: Talk) -> None:
    """The brackets are no code, and stay one pair."""
    summary: str | None = None
    for said in (("What is the name of your dog?", "Rex"), (STATEMENTS[0], "Fine."), (STATEMENTS[1], "Fine.")):
        task = SummaryTask(talk(*said, "Go on."), summary, 400, MODEL)
        summary = (await ExtractiveSummarizer(counter).summarize(task)).text
    assert "Assistant: [What is the name of your dog?] Rex\n" in str(summary)


@pytest.mark.anyio
@settings(max_examples=examples(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.sampled_from(ASIDES + STATEMENTS), min_size=1, max_size=30))
async def test_asides_push_no_statement_out(counter: TokenCounter, talk: Talk, said: list[str]) -> None:
    """All statements are in, however many asides stand between them; of asides alone some stay."""
    text = await summary_of(counter, talk(*said, "Go on."))
    assert all(statement in text for statement in STATEMENTS if statement in said)
    if any(statement in said for statement in STATEMENTS):
        assert not any(f"User: {aside}" in text or f"\n {aside}" in text for aside in ASIDES)


MINUTES = (
    "Petra Holm: Then we must be quick.",
    "Joel Abara: Don't tell Nadia.",
    "Joel Abara: The seal comes from Lyon.",
    "Petra Holm: Never start without coffee.",
    "Petra Holm: Ludmila draws the new box in Ghent.",
    "Joel Abara: The barn roof came off in a storm.",
    "Joel Abara: The printer wants an answer by noon.",
    "Petra Holm: Wim orders two hundred lids from Bruges.",
    "Petra Holm: The invoice of May has the number 4471.",
    "Joel Abara: Customs opened one parcel in Calais.",
    "Joel Abara: Saskia photographs the new box on Tuesday.",
    "Petra Holm: The glue smells of fish since the heat.",
)
"""The same names begin messages of both roles."""


@pytest.mark.anyio
async def test_people_who_talk_among_themselves_give_no_rules(counter: TokenCounter, talk: Talk) -> None:
    """In minutes with names in both roles, what somebody must do is no rule, and in a few words no line."""
    text = await summary_of(counter, talk(*MINUTES, "Petra Holm: Who writes to Lyon?"))
    assert "quick" not in text
    assert "coffee" not in text
    assert "Ludmila draws" in text


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("said", "rule"),
    [
        ((*MINUTES, "Never deploy twice.", "Noted."), "Never deploy twice."),
        ((*MINUTES, "RULE: Never deploy twice.", "Noted."), "RULE: Never deploy twice."),
        (("Ana: Never deploy twice.", "Bot: Noted.") * 4 + STATEMENTS[:2], "Ana: Never deploy twice."),
        (("Note: Never deploy twice.", "Note: The box is new.") * 4 + STATEMENTS[:2], "Note: Never deploy twice."),
        (
            ("Ana: Never deploy twice.", "Sure.", "Ben: The box is new.", "Fine.") * 3
            + ("Ana: Well?", "Ana: You asked."),
            "Ana: Never deploy twice.",
        ),
        (("Task: Never deploy twice.", "Question: Which box?") * 4 + STATEMENTS[:2], "Task: Never deploy twice."),
        (
            ("Regel: Niemals zweimal deployen.", "Aufgabe: Gut.") * 4 + STATEMENTS[:2],
            "Regel: Niemals zweimal deployen.",
        ),
        (("Alice: Never kill my character.", "Bram: He nods.") * 5 + STATEMENTS[:2], "Alice: Never kill my character."),
    ],
)
async def test_who_addresses_the_assistant_gives_rules(
    counter: TokenCounter, talk: Talk, said: tuple[str, ...], rule: str
) -> None:
    """Whatever names there are: without a name, with a label, and if an assistant has a name of its own."""
    assert rule in await summary_of(counter, talk(*said, "Go on with the box."), 25)


@pytest.mark.anyio
async def test_each_line_of_minutes_tells_who_speaks(counter: TokenCounter, talk: Talk) -> None:
    """A role that is several people does not. Kept apart from its message's first sentence, a line has the name."""
    plain = ("Petra Holm: Well. Ludmila draws the new box in Ghent.", "Joel Abara: Fine. The seal comes from Lyon.") * 3
    names = [f"{text} Item {place} costs {place}7 euros." for place, text in enumerate(plain)]
    turns = [*names, *reversed(names)]
    text = await summary_of(counter, talk(*turns, "Go on with the box.", "Fine."), 60)
    lines = [line for line in text.split("\n") if "euros" in line]
    assert lines
    assert all("Petra Holm" in line or "Joel Abara" in line for line in lines)
    again = await ExtractiveSummarizer(counter).summarize(SummaryTask(talk("Hello.", "Hello."), text, 400, MODEL))
    assert [line for line in again.text.split("\n") if "euros" in line] == lines


@pytest.mark.anyio
async def test_a_role_that_is_one_person_needs_no_name(counter: TokenCounter, talk: Talk) -> None:
    """The line says whose it is."""
    turns = [f"Ana: Well. Item {place} costs {place}7 euros." for place in range(3)]
    replies = [f"Bot: Well. Item {place} weighs {place}9 pounds." for place in range(3)]
    text = await summary_of(counter, talk(*(part for pair in zip(turns, replies, strict=True) for part in pair)))
    assert "[Ana]" not in text
    assert "[Bot]" not in text
