"""Asking: which sentences of a message ask for something, in any language."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.recall.asking import asking


@pytest.mark.parametrize(
    "text",
    [
        "When did Jolene's parents give her the console?",
        "what was the code of the door",
        "Tell me the name of her dog.",
        "Please list my gift cards.",
        "do you remember where I parked",
        "电话告诉我。",
        "何時に着きますか。",
        "Wann fährt der Zug nach Bern",
        "Où habite ma tante ?",
        "¿Cuándo nació mi hermana?",
        "Dime el nombre del médico",
        "Как зовут мою сестру",
        "متى يغادر القطار؟",
        "那这家饭店的电话是多少",
        "弟は何時に着きますか",
        "동생은 어디에서 일해요",
        "ร้านอยู่ที่ไหน",
    ],
)
def test_a_question_or_a_request_asks(text: str) -> None:
    """With its mark or without, as people type."""
    assert asking(text) == text


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Thanks!",
        "I went hiking with my dogs on Sunday.",
        "Yes, that's what I meant.",
        "See https://example.org/?page=2 for the rest.",
        "Ich war gestern in Bern.",
        "我昨天去了北京。",
        "昨日は京都に行きました。",
        "When I was young we had a dog.",
        "What a lovely day!",
        "Come on, give me a minute.",
        "Please never use tabs.",
        "Quand tu cites une source, mets toujours la cote.",
        "这件事谁都知道。",
    ],
)
def test_who_tells_something_asks_for_nothing(text: str) -> None:
    """Nothing is looked up for it, so the next question finds space."""
    assert not asking(text)


def test_only_the_sentence_that_asks_counts() -> None:
    """What is told around it has words of everything."""
    told = "I painted a lake on Friday. It was fun! Where did Ingrid keep her kiln? I forgot."
    assert asking(told) == "Where did Ingrid keep her kiln?"


@given(st.text(max_size=300), st.sampled_from(["Where is it?", "哪里？"]))
def test_a_question_is_found_behind_any_text(told: str, question: str) -> None:
    """On a line of its own."""
    assert asking(f"{told}\n{question}").endswith(question)
