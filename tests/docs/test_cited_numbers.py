"""``docs/promises.md``: every number that the code cites stands there, and every test that is named there exists."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import ROOT, quoted, text_of

PAGE = "docs/promises.md"
SELF = Path(__file__)
SOURCES = [
    file
    for folder in ("proxy", "tests", "benchmarks")
    for file in sorted((ROOT / folder).rglob("*"))
    if file.suffix in {".py", ".lua"} and file != SELF
]

CITED = re.compile(
    r"\b(?:FR|NFR|S[0-9])-(?:[A-Z]{1,2})?[0-9]+(?:\.[0-9]+)*[a-z]?\b"
    r"|\bS[0-9](?![\w-])"
    r"|\b[Pp]romises? [0-9]+(?:(?:,| and| to) [0-9]+)*"
    r"|\bopen questions? [0-9][a-z]?"
)
"""Numbers as comments cite them: ``FR-1.2.4``, ``NFR-7.1``, ``S0-4``, ``S2``, ``promise 8``, ``open question 3``."""

SOURCE = re.compile(r"S[0-9]")
"""A source as a whole, such as ``S2``; its scenarios are a file of tests."""

GONE = re.compile("|".join(("DESIGN" + r"\.md", "REQUIREMENTS" + r"\.md")))
"""Documents that are not part of the repository."""


def entries() -> dict[str, str]:
    """The first cell of every table row on the page, with the row's last cell."""
    rows = [row.strip("|").split("|") for row in text_of(PAGE).splitlines() if row.startswith("| ")]
    return {cells[0].strip(): cells[-1].strip() for cells in rows}


def numbers_in(text: str) -> Iterator[str]:
    """The numbers that a text cites, one by one; ``promises 1 and 2`` are two."""
    for match in CITED.finditer(re.sub(r"\s+", " ", text)):
        kind, _, rest = match[0].partition(" ")
        if kind.lower().startswith("promise"):
            yield from (f"promise {number}" for number in re.findall(r"[0-9]+", rest))
        elif kind.lower() == "open":
            yield f"open question {rest.split()[-1]}"
        else:
            yield match[0]


def is_listed(number: str, listed: set[str]) -> bool:
    """Whether a number stands on the page; a group, such as ``FR-1.2``, does where its members do."""
    return number in listed or any(entry.startswith(f"{number}.") for entry in listed)


def test_every_number_that_is_cited_is_on_the_page() -> None:
    """A reader who meets ``FR-5.3.1`` in a comment finds there what it demands."""
    listed = set(entries())
    cited = {number: source for source in SOURCES for number in numbers_in(source.read_text(encoding="utf-8"))}
    assert {number: source for number, source in cited.items() if not is_listed(number, listed)} == {}


def test_every_test_that_is_named_exists() -> None:
    """By file and function: ``tests/core/test_promises.py::test_off_changes_nothing``."""
    named = [name for name in quoted(text_of(PAGE)) if "::" in name]
    assert named
    missing = []
    for name in named:
        path, _, test = name.partition("::")
        file = ROOT / path
        if not file.exists() or not re.search(rf"def {test}\(", file.read_text(encoding="utf-8")):
            missing.append(name)
    assert missing == []


def test_every_entry_names_its_tests_or_says_that_there_is_none() -> None:
    """An empty cell would pass for a requirement that a test holds."""
    numbers = {
        number: cell for number, cell in entries().items() if CITED.match(number) and not SOURCE.fullmatch(number)
    }
    answered = re.compile(r"`tests/|not (?:yet|planned)")
    assert {number: cell for number, cell in numbers.items() if not answered.match(cell)} == {}


def test_the_promises_are_listed_in_order() -> None:
    """Code cites them by number, so that a number never changes its meaning."""
    assert [number for number in entries() if number.startswith("promise ")] == [f"promise {n}" for n in range(1, 12)]


def test_nothing_cites_a_document_that_the_repository_does_not_have() -> None:
    """Pages of ``docs/`` are cited in their place."""
    folders = [ROOT / name for name in ("proxy", "tests", "docs", "benchmarks")]
    files = [file for folder in folders for file in folder.rglob("*") if file.suffix in {".py", ".md", ".lua"}]
    files += ROOT.glob("*.md")
    assert [file for file in files if file != SELF and GONE.search(file.read_text(encoding="utf-8"))] == []
