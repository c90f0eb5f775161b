"""What a compaction reads once: its sentences are the same for the strategy, the ledger and the loss receipt."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tidemark.core.conversation.messages import Message
from tidemark.core.phrases import Phrase, Reading
from tidemark.core.ports import SummaryTask, TokenCounter
from tidemark.summarizers import ExtractiveSummarizer, salience
from tidemark.summarizers.ledger import ledger_of, render_ledger
from tidemark.summarizers.receipts import details_of
from tidemark.summarizers.salience import candidates_of
from tidemark.summarizers.sentences import has_lead, sentences, without_lead, words_of, words_of_each

MODEL = "gpt-4o"
Talk = Callable[..., tuple[Message, ...]]
SAID = (
    "Thanks, that helps! Never touch port 80. My name is Ana.",
    "Great, we decided to keep the ledger on shelf 7. ValueError: no such file.",
    "Hola. Réponds toujours en français. 请始终用中文回答。",
    "Sure. It is at https://example.org/a and in src/app.py.",
)
TEXTS = st.lists(st.sampled_from([*SAID, "Error: it failed.", "1. One\n2. Two", "x" * 700]), min_size=1, max_size=6)
PREVIOUS = "User said: Avoid tabs.\nUser: We moved to Lyon.\n What is next?"


@pytest.mark.anyio
async def test_a_receipt_finds_read_what_the_strategy_has_read(counter: TokenCounter, talk: Talk) -> None:
    """Each message is split once; the open request is kept as a whole."""
    messages, reading = talk(*SAID), Reading()
    task = SummaryTask(messages, PREVIOUS, 200, MODEL, reading=reading)
    text = (await ExtractiveSummarizer(counter).summarize(task)).text
    split = (*messages[:2], messages[3])
    before = [reading.phrases(message.text, by_user=message.role == "user") for message in split]
    assert all(before)
    details_of(messages, PREVIOUS, text, reading)
    after = [reading.phrases(message.text, by_user=message.role == "user") for message in split]
    assert all(one is other for one, other in zip(before, after, strict=True))


def test_words_counted_a_few_pieces_at_a_time_weigh_the_same(talk: Talk, monkeypatch: pytest.MonkeyPatch) -> None:
    """A word of several messages is as common as it was."""
    messages = talk(*SAID * 4)
    at_once = candidates_of(messages, PREVIOUS, 300)
    monkeypatch.setattr(salience, "_AT_ONCE", 3)
    assert candidates_of(messages, PREVIOUS, 300) == at_once


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])  # the fixture has no state
@given(texts=TEXTS, bulk=st.booleans())
def test_what_was_read_before_changes_nothing(talk: Talk, texts: list[str], *, bulk: bool) -> None:
    """A summary, a ledger and a receipt are the same, whoever read the texts first."""
    messages, reading = talk(*texts), Reading()
    for _ in range(2):
        assert candidates_of(messages, PREVIOUS, 300, with_bulk=bulk, reading=reading) == candidates_of(
            messages, PREVIOUS, 300, with_bulk=bulk
        )
        ledger = ledger_of(messages, PREVIOUS, reading=reading)
        assert render_ledger(ledger.lines()) == render_ledger(ledger_of(messages, PREVIOUS).lines())
        details = details_of(messages, PREVIOUS, texts[0], reading)
        assert details == details_of(messages, PREVIOUS, texts[0])


def test_a_text_is_another_where_a_person_wrote_it() -> None:
    """Only a person states rules and facts, so the same words of an assistant are read apart."""
    reading = Reading()
    reading.keep("Never.", [Phrase("Never.", "Never.", ("never",), "directive")], by_user=True)
    assert reading.phrases("Never.", by_user=False) is None
    reading.clear()
    assert reading.phrases("Never.", by_user=True) is None


@given(text=st.text())
def test_the_words_of_lines_are_those_of_each_line(text: str) -> None:
    """Many lines are read at once, and their words are the same."""
    lines = sentences(text)
    assert words_of_each(lines) == [words_of(line) for line in lines]


@given(text=st.sampled_from(["Thank you. ", "OK, ", "o\u212a ", "\u017fure ", "of course ", "Hey hi ", "Oh.", "_hey "]))
def test_each_lead_is_recognized_by_its_first_word(text: str) -> None:
    """What is left out without a look at the pattern has no opening interjection."""
    sentence = text + "we go."
    assert without_lead(sentence) == sentence or has_lead(sentence, words_of(sentence))
