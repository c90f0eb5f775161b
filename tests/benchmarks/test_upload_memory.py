"""An upload takes no more memory than a short one, whatever its size and however its form is ordered."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from benchmarks.uploads import CASES, LIMIT_MB, MEGABYTE, Case, measure, served

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")]


@pytest.fixture(scope="module")
def place() -> Iterator[tuple[int, int]]:
    """Port and process id of a Tidemark before an upstream that keeps nothing."""
    with served() as place:
        yield place


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_upload_of_64_megabytes_is_never_in_memory(place: tuple[int, int], case: Case) -> None:
    """The bound is that for 500 MB, and the upstream has every byte."""
    assert measure(*place, case, 64 * MEGABYTE) <= LIMIT_MB
