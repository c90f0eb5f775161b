"""``make test`` does not collect the folders of which other targets run every test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MAKEFILE = (ROOT / "Makefile").read_text()
[NAMED] = re.findall(r"^ELSEWHERE := (.+)$", MAKEFILE, re.MULTILINE)
[DESELECTED] = re.findall(r'--ignore tests/%\) -m "(.+)" ', MAKEFILE)


@pytest.mark.parametrize("folder", NAMED.split())
def test_make_test_would_deselect_every_test_of_a_folder_that_it_ignores(folder: str) -> None:
    """By a mark that all tests of a file have, or of the folder; a test without one would be run by nobody."""
    marks = "|".join(DESELECTED.removeprefix("not ").split(" and not "))
    conftest = ROOT / "tests" / folder / "conftest.py"
    if conftest.exists() and re.search(
        rf"^            item\.add_marker\(pytest\.mark\.({marks})\)$", conftest.read_text(), re.MULTILINE
    ):
        return
    files = sorted((ROOT / "tests" / folder).rglob("test_*.py"))
    assert files
    for file in files:
        assert re.search(rf"^pytestmark = (\[\s*)?pytest\.mark\.({marks})\b", file.read_text(), re.MULTILINE), file
