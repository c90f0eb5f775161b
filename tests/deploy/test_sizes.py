"""The README's table of what an installation takes is true of what is installed here."""

from __future__ import annotations

import re
import sys
from importlib.metadata import distributions

import pytest

from deploy.release import sizes
from tests.docs.pages import ROOT

ROWS = {
    row[1] or "": (int(row[2]), int(row[3]), float(row[4]))
    for row in re.finditer(
        r"^\| (?:none|`([a-z]+)`) \| (\d+) \| (\d+) \| ([\d.]+) \|$",
        (ROOT / "README.md").read_text("utf-8"),
        re.MULTILINE,
    )
}
"""Packages, megabytes and seconds, by extra."""
OTHER_PACKAGES = 3
"""So many more or fewer another version of Python takes."""
OTHER_MEGABYTES = 0.15
"""The share by which another machine's wheels are larger or smaller."""
MOST_TIMES = 4.0
"""Another machine, or a busy one, takes so much more CPU time."""


def test_the_table_has_each_extra() -> None:
    """And the base without any."""
    assert set(ROWS) == set(sizes.IMPORTED)


@pytest.mark.skipif(sys.platform != "linux", reason="the table is of Linux")
@pytest.mark.parametrize("extra", sorted(ROWS))
def test_packages_and_megabytes_are_those_of_the_table(extra: str) -> None:
    """What the metadata says is needed, and how large the files of all are."""
    packages, megabytes, _ = ROWS[extra]
    needed = sizes.needed(extra)
    assert abs(len(needed) - packages) <= OTHER_PACKAGES
    assert sizes.megabytes(needed) == pytest.approx(megabytes, rel=OTHER_MEGABYTES)
    assert needed <= {distribution.name.lower().replace("_", "-").replace(".", "-") for distribution in distributions()}


@pytest.mark.speed
@pytest.mark.parametrize("extra", sorted(ROWS))
def test_an_import_takes_no_longer_than_the_table_says(extra: str) -> None:
    """In CPU time, for the machine may be busy."""
    assert min(sizes.import_seconds(extra) for _ in range(2)) < ROWS[extra][2] * MOST_TIMES
