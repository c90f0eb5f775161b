"""The code reads as plain English: short opening sentences, names that say what they are, no pictures."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.docs.language import ROOT, breaches, breaches_of_tests, class_names, opening, pictures_in_page
from tests.docs.pages import PAGES, name_of

PLAIN = (
    "__init__.py",
    "__main__.py",
    "app",
    "catalog",
    "cli",
    "compaction",
    "config",
    "core",
    "delivery",
    "demo",
    "dialects",
    "features",
    "integrations",
    "offload",
    "pipeline",
    "server",
    "store",
    "summarizers",
    "telemetry",
    "terminal",
    "tokens",
    "upstream",
    "worker",
)
"""The packages of ``proxy/`` that hold the rules."""


@pytest.mark.parametrize("package", PLAIN)
def test_a_package_reads_as_plain_english(package: str) -> None:
    """Every breach is listed with its file and line."""
    place = ROOT / "proxy" / "tidemark" / package
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    assert files
    assert [line for path in files for line in breaches(path)] == []


def test_the_benchmarks_read_as_plain_english() -> None:
    """A developer reads them as often as the proxy."""
    assert [line for path in sorted((ROOT / "benchmarks").rglob("*.py")) for line in breaches(path)] == []


def test_the_tests_have_no_pictures_and_their_helpers_have_plain_names() -> None:
    """What a test says of the code is read with the code; its local variables are its own."""
    assert [line for path in sorted((ROOT / "tests").rglob("*.py")) for line in breaches_of_tests(path)] == []


@pytest.mark.parametrize("page", [*PAGES, ROOT / "CONTRIBUTING.md"], ids=name_of)
def test_a_page_has_no_pictures_in_its_prose(page: Path) -> None:
    """``CONTRIBUTING.md`` lists some, to forbid them, as code words."""
    assert list(pictures_in_page(page)) == []


def test_code_and_links_of_a_page_are_not_its_prose(tmp_path: Path) -> None:
    """A picture word counts where a reader reads it as a sentence."""
    page = tmp_path / "page.md"
    page.write_text("No `road`, no [link](rooms.md).\n\n```sh\nls house\n```\nBut a door.\n", encoding="utf-8")
    assert list(pictures_in_page(page)) == [f"{page}:6: 'door' is a picture"]


def test_no_two_classes_share_a_name() -> None:
    """Wherever they stand under ``proxy/``."""
    assert [name for name, times in Counter(class_names(ROOT / "proxy" / "tidemark")).items() if times > 1] == []


def test_an_opening_sentence_ends_at_its_first_stop() -> None:
    """A line end is no stop, and neither is the dot of a version."""
    assert opening("Reads 1.5 lines\n    of text. Then more.") == "Reads 1.5 lines of text."
