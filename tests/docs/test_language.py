"""The code reads as plain English: short opening sentences, names that say what they are, no pictures."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.docs.language import ROOT, breaches, class_names, opening

PLAIN = (
    "__init__.py",
    "__main__.py",
    "app",
    "archive",
    "catalog",
    "cli",
    "compaction",
    "config",
    "demo",
    "integrations",
    "memory_flush",
    "offload",
    "telemetry",
    "tokens",
)
"""The packages of ``proxy/`` that hold the rules."""


@pytest.mark.parametrize("package", PLAIN)
def test_a_package_reads_as_plain_english(package: str) -> None:
    """Every breach is listed with its file and line."""
    place = ROOT / "proxy" / package
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
    assert files
    assert [line for path in files for line in breaches(path)] == []


def test_no_two_classes_share_a_name() -> None:
    """Wherever they stand under ``proxy/``."""
    assert [name for name, times in Counter(class_names(ROOT / "proxy")).items() if times > 1] == []


def test_an_opening_sentence_ends_at_its_first_stop() -> None:
    """A line end is no stop, and neither is the dot of a version."""
    assert opening("Reads 1.5 lines\n    of text. Then more.") == "Reads 1.5 lines of text."
