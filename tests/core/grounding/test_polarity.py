"""When two sentences say the same, and when one denies what the other affirms."""

from __future__ import annotations

import pytest

from proxy.core.grounding.polarity import agree, content_terms


def agreed(sentence: str, other: str) -> bool:
    """Whether they agree about what both speak of."""
    return agree(sentence, other, content_terms(sentence) & content_terms(other))


@pytest.mark.parametrize(
    ("sentence", "other"),
    [
        ("Deploy on Friday.", "Never deploy on Friday."),
        ("The user allows deploying on Friday.", "Don't deploy on Friday."),
        ("The nightly build passed.", "The nightly build did not pass."),
        ("Retry at least five times.", "Retry at most five times."),
        ("Run the tests after the migration.", "Run the tests before the migration."),
        ("Never push, and always deploy on Friday.", "Never deploy on Friday."),
        ("The team may deploy on Friday, but not on Sunday.", "Never deploy on Friday."),
        ("Freitags darf man ausliefern.", "Freitags nie ausliefern."),
        ("Répondre toujours en anglais.", "Ne pas répondre en anglais."),
        ("Borrar la base los viernes.", "Nunca borrar la base los viernes."),
        ("周五部署服务。", "不要在周五部署服务。"),
        ("금요일에 배포하세요", "금요일에 배포하지 마세요"),
    ],
)
def test_a_turned_negation_or_an_opposite_is_no_agreement(sentence: str, other: str) -> None:
    """Either way round."""
    assert not agreed(sentence, other)
    assert not agreed(other, sentence)


@pytest.mark.parametrize(
    ("sentence", "other"),
    [
        ("The user forbids deploying on Friday.", "Never deploy on Friday."),
        ("Deployments on Friday are prohibited.", "Please do not deploy on Friday!"),
        ("Never deploy without tests.", "Always deploy with tests."),
        ("Always run the tests, but never deploy on Friday.", "Never deploy on Friday."),
        ("Never push and deploy on Friday.", "Never deploy on Friday."),
        ("Do not forget: never deploy on Friday.", "Never deploy on Friday."),
        ("Kein Ausliefern am Freitag.", "Am Freitag nie ausliefern."),
        ("禁止周五部署服务。", "不要在周五部署服务。"),
    ],
)
def test_other_words_for_the_same_agree(sentence: str, other: str) -> None:
    """Two negations are none, and a negation reaches over an "and" but not over a "but"."""
    assert agreed(sentence, other)
    assert agreed(other, sentence)
