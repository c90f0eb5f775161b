"""Sentences end where a reader would end them, in any language."""

from __future__ import annotations

import pytest

from tidemark.summarizers.sentences import sentences


@pytest.mark.parametrize(
    "text",
    [
        "Wir treffen Ravi am 16. Juli um 12:15 Uhr in Lagos.",
        "Vi ses den 3. maj klokken 14 i Aarhus.",
        "Sejdeme se 16. července v Praze.",
        "Das Büro ist im 10. Stock und der 2. Aufzug ist kaputt.",
        "Der 2. Weltkrieg endete 1945.",
    ],
)
def test_an_ordinal_number_ends_no_sentence(text: str) -> None:
    """The date stays with its place and its name."""
    assert list(sentences(f"{text} Gut so.")) == [text, "Gut so."]


def test_a_number_at_the_end_of_a_sentence_ends_it() -> None:
    """Where no month, no lower-case letter and no article says otherwise."""
    text = "I am 16. My dog is 7. Then we had 12. Only Python 3.11. No tabs."
    assert list(sentences(text)) == ["I am 16.", "My dog is 7.", "Then we had 12.", "Only Python 3.11.", "No tabs."]


def test_a_blank_ends_a_thai_sentence() -> None:
    """Not before a conjunction or a preposition, not beside a name or a number, and not where one is a condition."""
    met, joy, rain = "เราจะพบ Ines วันที่ 14 กรกฎาคม เวลา 9:15 ที่ Ghent", "ฉันดีใจกับคุณด้วย", "ถ้าฝนตก ฉันจะไม่ไป"
    assert list(sentences(f"ฟังดูดีมากเลย {joy}")) == ["ฟังดูดีมากเลย", joy]
    assert list(sentences(met)) == [met]
    assert list(sentences(rain)) == [rain]
