"""Templates and models are compared by what survives, and by what they cost: in one table, from a real upstream."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from benchmarks.fidelity.__main__ import main
from tests.support.scripted import Received, ScriptedUpstream, error, says, whole
from tests.support.serving import Serving
from tidemark.upstream.litellm import load as load_litellm

SUMMARY = "They spoke about the harbour, one sentence after the other, and agreed on the table of the tides."
CONFIG = """
model_list:
  - {{model_name: big, litellm_params: {{model: openai/one-of-ours, api_base: "{base}"}}}}
  - {{model_name: cheap, litellm_params: {{model: openai/gpt-4o-mini, api_base: "{base}"}}}}
compaction: {{defaults: {{template: ./support.md, summarizer: {{model: {summarizer}}}}}}}
"""
OWN = "You summarize calls to a harbour office.\n\n## Ships\nWhat was said of ships.\n"
PRICE = 11 * 0.15e-6 + 5 * 0.6e-6
"""USD of one call of the scripted upstream's usage, by the prices of gpt-4o-mini."""


@pytest.fixture(scope="module", autouse=True)
def litellm() -> None:
    """Imported beforehand: pytest's filter of warnings is the whole process's."""
    load_litellm().result(60)


@pytest.fixture
def upstream() -> ScriptedUpstream:
    """An upstream that summarizes."""
    return ScriptedUpstream(says(SUMMARY))


@pytest.fixture
def base(upstream: ScriptedUpstream) -> Iterator[str]:
    """Its address."""
    with Serving(upstream) as served:
        yield f"{served.url}/v1"


@pytest.fixture
def folder(tmp_path: Path, base: str) -> Path:
    """A folder with a configuration, a template and a conversation of one corpus with one fact."""
    (tmp_path / "support.md").write_text(OWN)
    (tmp_path / "tidemark.yaml").write_text(CONFIG.format(base=base, summarizer="cheap"))
    said = [f"Sentence {number} is about the harbour and its {number + 20} old boats." for number in range(40)]
    turns = [{"speaker": ("Ana", "Ben")[n % 2], "text": text} for n, text in enumerate(["I have a red kayak.", *said])]
    asked = [{"question": "What does Ana have?", "answer": "a red kayak", "category": 4}]
    talk = {"speaker_a": "Ana", "speaker_b": "Ben", "session_1_date_time": "May", "session_1": turns}
    (tmp_path / "talk.json").write_text(json.dumps([{"conversation": talk, "qa": asked}]))
    return tmp_path


def run(folder: Path, *options: str, strategy: str = "llm") -> Result:
    """Measure the conversation at one budget."""
    words = ["--config", str(folder / "tidemark.yaml"), "--file", str(folder / "talk.json")]
    environ = {"TIDEMARK_DATA_DIR": str(folder / "data"), "OPENAI_API_KEY": "sk-mine"}
    return CliRunner().invoke(main, [*words, "--strategy", strategy, "--budgets", "50", *options], env=environ)


def figures(folder: Path, *options: str) -> list[dict[str, Any]]:
    """The figures of all facts, as JSON has them."""
    done = run(folder, *options, "--json")
    assert done.exit_code == 0, done.output
    return [figure for figure in json.loads(done.stdout)["figures"] if figure["kind"] == "all"]


def opening(request: Received) -> str:
    """The first sentence of what the summarizer was told to be."""
    return str(request.messages[0]["content"]).partition("\n")[0]


def test_the_configured_template_and_summarizer_are_measured(folder: Path, upstream: ScriptedUpstream) -> None:
    """Without options, what a server with this configuration would ask; the figure names both."""
    (figure,) = figures(folder)
    assert {(opening(one), one.json["model"]) for one in upstream.received} == {(OWN.partition("\n")[0], "gpt-4o-mini")}
    assert (figure["template"].partition("@")[0], figure["model"]) == ("support.md", "gpt-4o-mini")


@pytest.mark.parametrize("strategy", ["llm", "hybrid"])
def test_each_template_is_measured_with_each_model(folder: Path, upstream: ScriptedUpstream, strategy: str) -> None:
    """One table: a row for each pair, with tokens, cost, seconds and rejected answers."""
    done = run(folder, "--template", "support.md,coding", "--model", "cheap,big", strategy=strategy)
    assert done.exit_code == 0, done.output
    heads, *lines = [line.split() for line in done.stdout.splitlines()]
    assert heads[-7:] == ["template", "model", "asked", "answered", "USD", "seconds", "rejected"]
    rows = [line for line in lines if "all" in line]
    assert [(row[-7].partition("@")[0], *row[-6:-2], row[-1]) for row in rows] == [
        ("support.md", "cheap", "11", "5", f"{PRICE:.4f}", "0"),
        ("support.md", "big", "11", "5", "-", "0"),
        ("coding", "cheap", "11", "5", f"{PRICE:.4f}", "0"),
        ("coding", "big", "11", "5", "-", "0"),
    ]
    asked = [(opening(one).split()[2], one.json["model"]) for one in upstream.received]
    assert asked == [
        ("calls", "gpt-4o-mini"),
        ("calls", "one-of-ours"),
        ("programming", "gpt-4o-mini"),
        ("programming", "one-of-ours"),
    ]


def test_json_has_what_the_summaries_cost(folder: Path) -> None:
    """Of every kind of facts the same, because the summaries are the same."""
    (figure,) = figures(folder, "--model", "cheap")
    assert (figure["asked_tokens"], figure["answered_tokens"], figure["is_estimated"]) == (11, 5, False)
    assert figure["usd"] == pytest.approx(PRICE)
    assert figure["seconds"] > 0
    assert figure["rejected"] == 0


def test_tokens_that_the_upstream_does_not_say_are_counted_and_marked(folder: Path, upstream: ScriptedUpstream) -> None:
    """By the counter that decides on compactions."""
    upstream.script = says(SUMMARY, usage=False)
    (figure,) = figures(folder, "--model", "cheap")
    assert figure["is_estimated"]
    assert figure["asked_tokens"] > 300
    assert 15 < figure["answered_tokens"] < 40
    row = run(folder, "--model", "cheap").stdout.splitlines()[1].split()
    assert [cell[0] for cell in row[-5:-2]] == ["~", "~", "~"]


def test_a_rejected_answer_is_counted_and_the_deterministic_summary_measured(
    folder: Path, upstream: ScriptedUpstream
) -> None:
    """As a server does it by default; a warning says what was wrong, and how often."""
    upstream.script = says("I'm sorry, I cannot help with that.")
    done = run(folder, "--template", "general", "--json")
    assert done.exit_code == 0, done.output
    assert [figure["rejected"] for figure in json.loads(done.stdout)["figures"]] == [1, 1]
    assert "warning: 1 rejected: The summarizer (cheap, template general) gave no usable summary" in done.stderr


def test_an_upstream_that_refuses_ends_the_measure(folder: Path, upstream: ScriptedUpstream) -> None:
    """Nothing could be said of its model; the message names the summarizer and has the upstream's words."""
    upstream.script = lambda _: error(401, "bad key")
    done = run(folder)
    assert done.exit_code == 1
    assert str(done.exception).startswith("The summarizer (cheap, template support.md@")
    assert "status 401: bad key" in str(done.exception)
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--template", "general,brief"], "no summary template 'brief'; use one of general, technical, coding"),
        (["--template", ""], "concise, support.md"),
        (["--model", "cheap,nothing-like-it"], "Configured: big, cheap."),
    ],
)
def test_an_unknown_name_is_an_error_that_names_the_choices(
    folder: Path, upstream: ScriptedUpstream, options: list[str], told: str
) -> None:
    """Before anything is asked."""
    done = run(folder, *options)
    assert done.exit_code == 2
    assert told in " ".join(done.output.split())
    assert upstream.received == []


def test_what_asks_no_model_has_none_to_choose(folder: Path) -> None:
    """``extractive`` takes neither option, and its table has no further column."""
    assert run(folder, "--template", "coding", strategy="extractive").exit_code == 2
    done = run(folder, strategy="extractive")
    assert done.stdout.split("\n")[0].split()[-1] == "share"
    members = json.loads(run(folder, "--json", strategy="extractive").stdout)["figures"][0]
    assert set(members) == {"corpus", "kind", "budget", "ratio", "newest", "survivors", "facts", "survival"}


def test_the_plot_has_a_panel_for_each_pair(folder: Path) -> None:
    """Named by corpus, template and model."""
    plot = folder / "plot.svg"
    assert run(folder, "--template", "general,coding", "--model", "cheap", "--plot", str(plot)).exit_code == 0
    drawing = ET.fromstring(plot.read_bytes())  # noqa: S314 - our own text
    titles = [item.text for item in drawing.iter() if item.attrib.get("class") == "title"]
    assert titles == ["LoCoMo, general, cheap", "LoCoMo, coding, cheap"]


def test_the_small_model_of_auto_is_named(folder: Path, base: str) -> None:
    """A figure says which model wrote, not how it was chosen."""
    (folder / "tidemark.yaml").write_text(CONFIG.format(base=base, summarizer="auto"))
    for options in ([], ["--model", "auto"]):
        (figure,) = figures(folder, "--template", "general", *options)
        assert (figure["template"], figure["model"]) == ("general", "one-of-ours")


def test_a_configured_summarizer_that_is_not_served_is_an_error(folder: Path, base: str) -> None:
    """Else every figure would be the deterministic summary's."""
    (folder / "tidemark.yaml").write_text(CONFIG.format(base=base, summarizer="nothing-like-it"))
    done = run(folder)
    assert (done.exit_code, done.stdout) == (1, "")
    assert "'nothing-like-it' does not exist" in str(done.exception)


def test_every_round_asks_the_summarizer(folder: Path, upstream: ScriptedUpstream) -> None:
    """The generated conversations and the talks that are summarized round by round, which have their cost too."""
    upstream.script = lambda _: whole(SUMMARY)
    words = ["--config", str(folder / "tidemark.yaml"), "--strategy", "llm", "--budgets", "25"]
    done = CliRunner().invoke(main, [*words, "--json"], env={"TIDEMARK_DATA_DIR": str(folder / "data")})
    assert done.exit_code == 0, done.output
    spent = {figure["corpus"]: figure["asked_tokens"] for figure in json.loads(done.stdout)["figures"]}
    assert set(spent) == {"chat", "code", "needle", "languages", "10 rounds"}
    assert sum(spent.values()) == 11 * len(upstream.received)
    assert {opening(one) for one in upstream.received} == {OWN.partition("\n")[0]}
