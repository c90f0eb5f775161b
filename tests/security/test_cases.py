"""Every attack and fault that was found has a test, which is there; ``cases.txt`` says which."""

from __future__ import annotations

import re
from pathlib import Path

TABLE = Path(__file__).with_name("cases.txt")
TESTS = Path(__file__).parents[1]
FINDINGS = {*("H1", "H2", "H3"), *(f"M{number}" for number in range(1, 9)), *(f"L{number}" for number in range(1, 9))}
FAULTS = {f"F{number}" for number in (1, 3, 4, 5, 6, 7, 8, 9, 11)}
"""Those of Part 5 that are faults; F2, F10 and F12 are costs, which benchmarks measure."""


def rows() -> list[tuple[str, str, str]]:
    """The name of each finding, its file and its test."""
    lines = [line for line in TABLE.read_text(encoding="utf-8").splitlines() if not line.startswith("#")]
    return [
        (line.split()[0], *line.rpartition(": ")[2].split("::"))  # type: ignore[misc]
        for line in lines
    ]


def test_every_finding_has_a_row() -> None:
    """None was forgotten, and a new one is added here first."""
    assert {name for name, _, _ in rows()} - {"F"} == FINDINGS | FAULTS


def test_every_named_test_is_there() -> None:
    """Whoever renames a test renames it in ``tests/security/cases.txt``, and whoever deletes one names another."""
    missing = [
        f"{file}::{test}"
        for _, file, test in rows()
        if not (TESTS / file).is_file()
        or not re.search(rf"^ *(?:async )?def {test}\(", (TESTS / file).read_text(encoding="utf-8"), re.MULTILINE)
    ]
    assert missing == []
