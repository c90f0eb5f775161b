"""A rule that the user takes back does not outlive it, and every other rule stays word for word, round after round."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from math import log2

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.histories import message
from tests.support.examples import examples
from tests.support.growth import growth_of
from tidemark.core.ports import SummaryTask
from tidemark.summarizers import ExtractiveSummarizer
from tidemark.summarizers.ledger import RULE, ledger_of, render_ledger
from tidemark.summarizers.revoking import related_rules, revocation_of
from tidemark.summarizers.sentences import words_of
from tidemark.tokens import LocalTokenCounter

MODEL, BOUND = "gpt-4o", 700
REVOKED = (
    ("Always answer in French.", "Forget French, answer in English from now on."),
    ("Never use tabs for indentation.", "Forget the rule about tabs, use tabs from now on."),
    ("Always deploy with Ansible.", "Don't use Ansible any more, always deploy with Terraform."),
    ("Please always include tests.", "You no longer need to include tests."),
    ("Never push to main.", "Pushing to main is allowed now."),
    ("Always cite sources.", "Sources are no longer needed."),
    ("Always log to port 5514.", "Please ignore the rule about port 5514."),
    ("Never mention Halvorsen.", "Actually, never mind Halvorsen - you may name him."),
    ("Lösche niemals Protokolle.", "Protokolle löschen ist jetzt erlaubt."),
    ("Verwende immer Leerzeichen.", "Vergiss Leerzeichen, ab jetzt Tabulatoren."),
    ("Toujours utiliser Docker.", "Oublie Docker, utilise Podman."),
    ("Siempre usa Mongo.", "Olvida Mongo, usa SQLite."),
    ("Always use port 8080.", "From now on use port 9090 instead of port 8080."),
    ("Immer Makefiles verwenden.", "Ab jetzt Skripte statt Makefiles."),
    ("Always round half even.", "I changed my mind about rounding: round half up, not half even."),
    ("Always partition the ledger by day.", "Change of plan: partition the ledger by hour, not by day."),
    ("Immer mit Yarn bauen.", "Ich habe es mir anders überlegt mit Yarn: nimm pnpm."),
    ("Toujours tester avec Jest.", "J'ai changé d'avis sur Jest: tester avec Vitest."),
    ("Siempre compila con Maven.", "He cambiado de idea sobre Maven: compila con Gradle."),
)
"""Rules, and what takes each back."""
SMALL_TALK = (
    "The harbour was quiet today.",
    "What do lamps cost?",
    "I sold the old boat.",
    "Ana painted the fence green.",
)


def answered(texts: Sequence[str]) -> tuple[object, ...]:
    """A user's texts, each answered."""
    return tuple(
        part
        for text in texts
        for part in (message(role="user", content=text), message(role="assistant", content="All right."))
    )


def revokes(rule: str, statement: str) -> bool | None:
    """Whether a statement takes a rule back whole; None where it has nothing to do with it."""
    revocation = revocation_of(statement, words_of(statement))
    return next((is_whole for _, is_whole in related_rules([rule], revocation)), None) if revocation else None


@pytest.mark.parametrize(("rule", "statement"), REVOKED)
def test_a_rule_is_taken_back(rule: str, statement: str) -> None:
    """By naming what it is about."""
    assert revokes(rule, statement) is True


@pytest.mark.parametrize(
    "rule", ["Never mention the budget.", "Never drop the users table.", "Always answer in German."]
)
@pytest.mark.parametrize(
    "statement",
    [
        "Never mind!",
        "Forget it.",
        "Don't forget the budget.",
        "Drop the users table.",
        "Is the budget ok?",
        "The budget is fine.",
        "I no longer live there.",
        "No more questions.",
        "I will not change my mind about the budget.",
        "Should I change my mind about the budget?",
        "Change of plan: we meet at noon.",
        "I took the train instead of the budget car.",
        "Ya no sé.",
    ],
)
def test_what_only_sounds_like_it_takes_nothing_back(rule: str, statement: str) -> None:
    """A small word about the same thing is no permission."""
    assert not revokes(rule, statement)


def test_a_rule_of_which_little_is_named_stays_beside_the_statement() -> None:
    """It may be another matter; both are kept, in their order."""
    rule, statement = "Never buy milk with lactose from the corner shop.", "Forget the milk."
    assert revokes(rule, statement) is False
    ledger = ledger_of(answered([rule, statement]), "")  # type: ignore[arg-type]
    assert list(ledger.entries[RULE]) == [rule, statement]


@pytest.mark.speed
def test_a_run_of_spaces_is_read_as_one_space() -> None:
    """The patterns tried every place in it: one sentence took as long as forty others."""
    spaces, words = "Actually," + " " * 225 + "ok", "Ok so and but " * 17
    sentences = [words, spaces]
    growth = growth_of(lambda place: revocation_of(sentences[place - 1], ["ok"]), [1, 2], most=log2(5))
    assert growth < log2(5)
    assert revocation_of("Forget   the rule \t about  tabs.", ["forget"]) == revocation_of(
        "Forget the rule about tabs.", ["forget"]
    )


def test_a_safety_rule_is_never_dropped() -> None:
    """A model that made the user say so would have its way otherwise."""
    assert revokes("SAFETY: never open the valve.", "Forget the valve.") is False


@pytest.mark.parametrize("times", [2, 3, 4, 5])
@pytest.mark.parametrize("apart", [False, True])
def test_the_newest_of_rule_and_revocation_holds(times: int, *, apart: bool) -> None:
    """However often each is said again in the same words, in one round or in several."""
    rule, statement = REVOKED[1]
    texts = [(rule, statement)[turn % 2] for turn in range(times)]
    extract: str | None = None
    summarizer = ExtractiveSummarizer(LocalTokenCounter())
    for part in [[text, "What do lamps cost?"] for text in texts] if apart else [[*texts, "What do lamps cost?"]]:
        extract = asyncio.run(summarizer.summarize(SummaryTask(answered(part), extract, BOUND, MODEL))).text  # type: ignore[arg-type]
    assert extract
    assert (rule in extract) == (texts[-1] == rule)
    if rule in extract and statement in extract:
        assert extract.index(rule) > extract.index(statement)


@st.composite
def rounds(draw: st.DrawFn) -> tuple[list[list[str]], list[str], list[str]]:
    """Texts of some rounds; the rules that stay, and those that are taken back later, in the same round or another."""
    pairs = draw(st.lists(st.sampled_from(REVOKED), min_size=1, max_size=6, unique=True))
    count = draw(st.integers(2, 4))
    texts: list[list[str]] = [[draw(st.sampled_from(SMALL_TALK))] for _ in range(count)]
    standing: list[str] = []
    gone: list[str] = []
    for rule, statement in pairs:
        begin = draw(st.integers(0, count - 1))
        texts[begin].append(rule)
        end = draw(st.none() | st.integers(begin, count - 1))
        if end is not None:
            texts[end].append(statement)
        again = draw(st.none() | st.integers(end, count - 1)) if end is not None else None
        if again is not None:
            texts[again].append(rule)
        (standing if end is None or again is not None else gone).append(rule)
    for part in texts:
        part.append(draw(st.sampled_from(SMALL_TALK)))
    return texts, standing, gone


@given(rounds())
@settings(max_examples=examples(60))
def test_only_what_is_in_force_survives_a_cascade(drawn: tuple[list[list[str]], list[str], list[str]]) -> None:
    """In sentences of the conversation, and in the ledger that stands before a model's prose."""
    texts, standing, gone = drawn
    summarizer = ExtractiveSummarizer(LocalTokenCounter())
    extract: str | None = None
    ledger = ""
    for part in texts:
        messages = answered(part)
        extract = asyncio.run(summarizer.summarize(SummaryTask(messages, extract, BOUND, MODEL))).text  # type: ignore[arg-type]
        ledger = render_ledger(ledger_of(messages, ledger).lines())  # type: ignore[arg-type]
    for summary in (extract, ledger):
        assert summary
        assert [rule for rule in gone if rule in summary] == []
        assert [rule for rule in standing if rule.removeprefix("Please ") not in summary] == []
