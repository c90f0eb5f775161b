"""The benchmark of lossless forms: how much goes, of which traffic, and how long it takes beside reading JSON."""

from __future__ import annotations

import json

import pytest

from benchmarks.lossless import GOAL, coding, fastest, harm_of, hundred_kilobytes, measured, services
from tidemark.core.conversation.lossless import squeezed


def test_a_fifth_of_the_tokens_of_services_goes() -> None:
    """Half of these results have a form; tables, bare JSON and errors have none."""
    sums = measured(services)
    assert sums.saved >= GOAL
    assert sums.changed <= sums.results * 2 / 3


def test_results_of_a_coding_agent_lose_less_and_reads_of_files_nothing() -> None:
    """Only colours and repeated lines go."""
    sums = measured(coding)
    assert 0 < sums.saved < GOAL
    assert sums.changed < sums.results / 2


@pytest.mark.speed
def test_a_long_result_takes_some_times_what_reading_its_json_does() -> None:
    """Both are measured in turn, so that other load changes little."""
    text = hundred_kilobytes()
    assert squeezed(text) is not None
    assert fastest(lambda: squeezed(text)) < 15 * fastest(lambda: json.loads(text))


@pytest.mark.parametrize(
    ("text", "harm"),
    [
        ("A line.  \nAnother one.\n" * 30 + " " * 200, "blanks that may end a line of Markdown"),
        ("\x1b[31mold\x1b[0m \x1b[32mnew\x1b[0m\n" * 40, "colours"),
        ("the same line\n" * 60, "repeated lines"),
        (json.dumps([{"a": 1}] * 60, indent=2), ""),
        ("words that differ\nfrom those before\n" * 30, None),
    ],
)
def test_harm_has_a_name(text: str, harm: str | None) -> None:
    """What a reader may miss of a text that was no tool's result."""
    assert harm_of(text) == harm
