"""The scripted person of the demo."""

from __future__ import annotations

from proxy.demo.script import script


def test_the_script_has_forty_turns() -> None:
    """The demo's default conversation is forty different questions."""
    assert len({question.text for question in script(40)}) == 40


def test_a_shorter_conversation_is_a_beginning_of_the_longer_one() -> None:
    """`--turns N` asks the first N questions, so that runs of different lengths can be compared."""
    assert script(7) == script(40)[:7]


def test_a_longer_conversation_goes_round_again() -> None:
    """More turns than the script has begin again with its first question."""
    assert script(43)[40:] == script(3)


def test_every_fact_that_is_asked_for_was_told_long_before() -> None:
    """A late question asks only for a word that one of the first six turns has said."""
    told = " ".join(question.text for question in script(6)).lower()
    asked = [(number, question) for number, question in enumerate(script(40)) if question.expects]
    assert asked
    assert all(number > 30 and question.expects in told for number, question in asked)
