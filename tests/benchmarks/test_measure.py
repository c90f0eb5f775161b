"""The measure tells the truth: a fact is found where it stands, and nowhere else."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.fidelity.__main__ import main
from benchmarks.fidelity.cases import Case, Conversation, Fact
from benchmarks.fidelity.drawing import draw_figures
from benchmarks.fidelity.generated import generated_cases
from benchmarks.fidelity.locomo import locomo_cases
from benchmarks.fidelity.measuring import measure, measure_rounds
from benchmarks.fidelity.questions import question_cases
from benchmarks.fidelity.recalling import measure_recall
from benchmarks.fidelity.survival import surviving
from tidemark.core.errors import ConfigError
from tidemark.fidelity import Figure

MEETING = Fact("answer", ("Keiko", "the pottery fair"))


def standing(text: str, *, loose: bool = False) -> bool:
    """Return whether the meeting stands in a text."""
    case = Case("test", [], [MEETING], loose=loose)
    return surviving(case, case.facts, text.split("\n")) == [MEETING]


def test_a_fact_stands_in_one_line() -> None:
    """Case, articles and punctuation do not count."""
    assert standing("User: I met Keiko at the pottery fair.")
    assert standing("User: met KEIKO, pottery fair")


@pytest.mark.parametrize(
    "text", ["User: I met Keiko.\nUser: The pottery fair was nice.", "User: Keiko, the fair of pottery"]
)
def test_a_fact_does_not_stand_where_its_words_are_apart(text: str) -> None:
    """Neither two lines nor another order is enough."""
    assert not standing(text)


def test_a_loose_fact_stands_in_any_order_of_one_line() -> None:
    """LoCoMo's answers are written by others."""
    assert standing("User: Keiko, the fair of pottery", loose=True)
    assert not standing("User: Keiko\nUser: the pottery fair", loose=True)


def test_every_generated_fact_stands_in_its_conversation() -> None:
    """A fact that is not there could not survive."""
    for case in generated_cases():
        texts = [text for message in case.messages for text in message["content"].split("\n")]
        assert surviving(case, case.facts, texts) == list(case.facts)


def test_the_same_seed_makes_the_same_conversations() -> None:
    """Figures of two versions can be compared."""
    assert generated_cases() == generated_cases()


async def counted(body: bytes) -> bytes:
    """Count bytes for tokens."""
    return json.dumps({"input_tokens": len(body)}).encode()


async def test_a_compaction_that_keeps_everything_keeps_every_fact() -> None:
    """The top of the measure is 100 %."""

    async def nothing_done(body: bytes, max_tokens: int) -> bytes:
        return json.dumps({"summarized_messages": 0, "summary": "", "tokens_after": len(body)}).encode()

    figures = await measure(generated_cases(), nothing_done, counted, [10])
    assert {(figure.survival, figure.newest, figure.ratio) for figure in figures} == {(1.0, 1.0, 1.0)}


async def test_a_compaction_that_forgets_everything_keeps_no_fact() -> None:
    """The bottom of the measure is 0 %."""

    async def all_gone(body: bytes, max_tokens: int) -> bytes:
        count = len(json.loads(body)["messages"])
        return json.dumps({"summarized_messages": count, "summary": "Nothing.", "tokens_after": 9}).encode()

    figures = await measure(generated_cases(), all_gone, counted, [10])
    assert {(figure.survivors, figure.newest) for figure in figures} == {(0, 0.0)}


async def test_every_round_gets_the_summary_before_it() -> None:
    """A cascade is measured as the server runs it."""

    async def everything(previous: str | None, messages: Conversation, max_tokens: int) -> str:
        return "\n".join([*([previous] if previous else []), *(message["content"] for message in messages)])

    figures = await measure_rounds(everything, counted, [10], rounds=3)
    assert {figure.survival for figure in figures} == {1.0}
    assert {figure.corpus for figure in figures} == {"3 rounds"}


def talk(answer: str) -> bytes:
    """Return a file with one talk of two turns."""
    turns = [{"speaker": "Ana", "text": "I bought a red kayak."}, {"speaker": "Ben", "text": "Nice!"}]
    questions = [
        {"question": "What did Ana buy?", "answer": answer, "category": 4},
        {"question": "What did Ben buy?", "adversarial_answer": "a kayak", "category": 5},
    ]
    conversation = {"speaker_a": "Ana", "speaker_b": "Ben", "session_1_date_time": "May", "session_1": turns}
    return json.dumps([{"conversation": conversation, "qa": questions}]).encode()


def test_locomo_is_read_with_the_answers_that_stand_in_one_turn() -> None:
    """Other answers could not survive on one line."""
    (case,) = locomo_cases(talk("a red kayak"))
    assert case.messages[0] == {"role": "user", "content": "I bought a red kayak."}
    assert [fact.kind for fact in case.facts] == ["one turn"]
    assert locomo_cases(talk("a blue boat"))[0].facts == []


@pytest.mark.parametrize("text", [b"", b"{}", b"[1]", b'[{"qa": []}]'])
def test_another_file_is_no_locomo(text: bytes) -> None:
    """The error names the form that is needed."""
    with pytest.raises(ConfigError, match="no LoCoMo"):
        locomo_cases(text)


def test_the_command_prints_a_figure_for_each_kind_of_facts(tmp_path: Path) -> None:
    """A budget of 100 % changes nothing."""
    (tmp_path / "talk.json").write_bytes(talk("red kayak"))
    arguments = ["--file", str(tmp_path / "talk.json"), "--budgets", "100", "--json"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 0, done.output
    figures = json.loads(done.output)["figures"]
    assert [(figure["kind"], figure["survivors"]) for figure in figures] == [("all", 1), ("one turn", 1)]


def test_a_budget_that_is_no_percentage_is_refused() -> None:
    """The message says what is possible."""
    done = CliRunner().invoke(main, ["--budgets", "0"])
    assert done.exit_code == 2
    assert "percentages" in done.output


def test_a_plot_has_a_panel_for_each_corpus() -> None:
    """Each figure is a point; one without newest messages has no point for them."""
    figures = [
        Figure("<chat>", "all", 10, 0.1, 0.2, 5, 10),
        Figure("<chat>", "rule", 10, 0.1, 0.2, 1, 1),
        Figure("<chat>", "all", 25, 0.25, 0.5, 9, 10),
        Figure("10 rounds", "all", 10, 0.1, None, 4, 10),
    ]
    drawing = ET.fromstring(draw_figures(figures, "What survives"))  # noqa: S314 - our own text
    circles = [item.attrib["class"] for item in drawing.iter() if item.tag.endswith("circle")]
    assert circles == ["newest-point", "newest-point", "survival-point", "survival-point", "survival-point"]
    assert [item.text for item in drawing.iter() if item.attrib.get("class") == "title"] == ["<chat>", "10 rounds"]


def test_every_fact_that_is_asked_for_stands_in_its_talk() -> None:
    """Each has a question, and the sentence that answers it."""
    for case in question_cases(1):
        assert all(fact.question for fact in case.facts)
        texts = [message["content"] for message in case.messages]
        assert surviving(case, case.facts, texts) == case.facts


async def test_recall_finds_what_a_compaction_forgot() -> None:
    """Of a conversation that is wholly forgotten, the facts that a question names are back within the share."""

    async def forgets(body: bytes, max_tokens: int) -> bytes:
        covered = len(json.loads(body)["messages"])
        return json.dumps({"summary": "", "summarized_messages": covered, "tokens_after": 0}).encode()

    figures = await measure_recall(question_cases(1), forgets, counted, [10], share=5)
    survival = {(figure.corpus.partition(", ")[2], figure.kind): figure.survival for figure in figures}
    assert survival["0 % recalled", "all"] == 0
    assert survival["5 % recalled", "same words"] >= 0.95
    assert survival["5 % recalled", "other words"] >= 0.8


def test_a_share_of_recall_as_large_as_a_budget_is_refused() -> None:
    """Nothing would be left for the conversation."""
    done = CliRunner().invoke(main, ["--recall", "10", "--budgets", "10,25"])
    assert done.exit_code == 2
    assert "smallest budget" in done.output


def test_the_command_measures_recall() -> None:
    """A row without recall and one with it, at the same budget."""
    done = CliRunner().invoke(main, ["--recall", "5", "--budgets", "10", "--json"])
    assert done.exit_code == 0, done.output
    figures = [figure for figure in json.loads(done.output)["figures"] if figure["kind"] == "all"]
    assert [figure["corpus"] for figure in figures] == ["questions, 0 % recalled", "questions, 5 % recalled"]
    assert figures[1]["survival"] > figures[0]["survival"]
    assert all(figure["ratio"] <= 0.11 for figure in figures)
