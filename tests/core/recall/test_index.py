"""Ranking: the messages that bear on a question come first, in every script and whatever is added later."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.histories import TEXTS, message
from tidemark.core.conversation.messages import Message
from tidemark.core.recall.index import MessageIndex, ranked, terms_of

TALKS = st.lists(TEXTS, max_size=12)


def talk_of(*texts: str) -> list[Message]:
    """Messages of a user and an assistant in turn."""
    return [message(role=("user", "assistant")[place % 2], content=text) for place, text in enumerate(texts)]


def indexed(messages: Sequence[Message]) -> MessageIndex:
    """An index of messages."""
    index = MessageIndex()
    index.add(messages)
    return index


def best(question: str, *texts: str) -> list[int]:
    """The places of texts in the order of their worth for a question."""
    index = indexed(talk_of(*texts))
    return ranked(index.scores(question, index.count), index.count)


FILLER = ("The weather is fine.", "Nothing new here.", "We had soup.", "The bus was late.", "A quiet day.")


@pytest.mark.parametrize(
    ("question", "fact"),
    [
        ("What is my sister allergic to?", "My sister's allergies: peanuts and kiwis."),
        ("Which commit fixed the parser?", "The parser was repaired in commit 9fe3a1c."),
        ("What failed in parse_header?", "There is an off-by-one in parse_header."),
        ("Wo wohnt die Großmutter?", "Meine Grossmutter wohnt in Lüneburg."),
        ("Où habite Élodie ?", "elodie a déménagé à Rennes."),
        ("Где живёт бабушка?", "Бабушка живёт в Казани."),
        ("我姐姐对什么过敏?", "我姐姐对花生过敏。"),
        ("妹のアレルギーは何ですか", "妹は落花生のアレルギーがあります"),
        ("น้องสาวแพ้อะไร", "น้องสาวของฉันแพ้ถั่วลิสง"),
        ("여동생이 무엇에 알레르기가 있나요?", "여동생은 땅콩 알레르기가 있어요"),
        ("ما الذي تعاني أختي من حساسية تجاهه؟", "أختي تعاني من حساسية الفول السوداني"),
    ],
)
def test_a_message_about_the_question_comes_first(question: str, fact: str) -> None:
    """Words meet by their beginnings, without case and accents; pairs of characters where no spaces are."""
    assert best(question, *FILLER[:3], fact, *FILLER[3:])[0] == 3


def test_an_answer_follows_its_question() -> None:
    """A message gains 0.6 of the previous one's score: answers seldom repeat the words of their questions."""
    order = best("Who repaired the bicycle?", *FILLER[:2], "Who will repair my bicycle?", "Ask Benedikt.", *FILLER[2:])
    assert order[:2] == [2, 3]


def test_the_newer_of_two_equal_messages_comes_first() -> None:
    """The newest value of a fact is the one that holds."""
    order = best("port", "port", *FILLER, "port", FILLER[0])
    assert order.index(6) < order.index(0)


@given(TALKS, TALKS, st.text(max_size=40))
def test_later_messages_change_no_score(before: list[str], after: list[str], question: str) -> None:
    """An index that goes further answers for its first messages as a new one does: any worker ranks alike."""
    longer, shorter = indexed(talk_of(*before, *after)), indexed(talk_of(*before))
    assert longer.scores(question, len(before)) == shorter.scores(question, len(before))


@given(TALKS, TALKS)
def test_an_index_grows_as_if_it_was_made_at_once(before: list[str], after: list[str]) -> None:
    """What a later summary covers is added; the index is the same."""
    messages = talk_of(*before, *after)
    grown = indexed(messages[: len(before)])
    grown.add(messages[len(before) :])
    question = " ".join(before + after)
    assert grown.scores(question, len(messages)) == indexed(messages).scores(question, len(messages))


@given(TALKS, st.text(max_size=40))
def test_ranking_names_each_message_once_and_no_other(texts: list[str], question: str) -> None:
    """Places are of indexed messages, and the order is the same each time."""
    order = best(question, *texts)
    assert len(set(order)) == len(order)
    assert all(0 <= place < len(texts) for place in order)
    assert order == best(question, *texts)


@given(st.text())
def test_terms_are_cut_of_any_text(text: str) -> None:
    """Half characters, marks and data included; a term is never empty."""
    assert all(terms_of(text))


def test_arguments_of_calls_are_indexed() -> None:
    """A path that only a call names is found."""
    call = {"id": "1", "type": "function", "function": {"name": "read", "arguments": '{"path": "billing/invoice.py"}'}}
    messages = [
        *talk_of(*FILLER[:2]),
        message(role="assistant", content=None, tool_calls=[call]),
        *talk_of(*FILLER[2:]),
    ]
    index = indexed(messages)
    assert ranked(index.scores("What was in billing/invoice.py?", index.count), index.count)[0] == 2


@pytest.mark.parametrize(
    "texts", [[], ["word"] * 10_000, ["QUJD" * 20_000], ["ERROR " * 50_000, ""]], ids=["none", "words", "base64", "log"]
)
def test_unusual_messages_are_indexed(texts: list[str]) -> None:
    """Nothing, ten thousand words, base64 and a log: a ranking comes, and its memory is bounded."""
    index = indexed(talk_of(*texts))
    assert index.size < 2_000_000
    ranked(index.scores("What is the word in the log ERROR QUJD?", index.count), index.count)
