"""``make bench-growth``: what it takes for a fault, and that all its texts have the size that was asked for."""

from __future__ import annotations

import pytest

from benchmarks.growth import SIZES, TEXTS, Functions, fault_of, measured


@pytest.mark.parametrize(
    ("took", "fault"),
    [
        ([0.1, 0.2, 0.4, 0.8], ""),
        ([0.01, 0.02, 0.04, 0.09], ""),
        ([0.05, 0.2, 0.8, 3.2], "power 2.00"),
        ([1.0, 2.0, 4.0, 8.0], "for a megabyte"),
        ([70.0], "for a megabyte"),
    ],
)
def test_what_grows_faster_than_its_text_is_a_fault(took: list[float], fault: str) -> None:
    """And so is what is far too slow though it grows no faster."""
    found = fault_of(took, SIZES)
    assert fault in found
    assert bool(found) == bool(fault)


def test_every_text_has_the_size_that_was_asked_for() -> None:
    """Else the growth of the time would say nothing."""
    assert {len(text(size)) for text in TEXTS.values() for size in (1000, 2000)} == {1000, 2000}


def test_every_function_can_be_measured() -> None:
    """With a text of a few sentences."""
    for name, prepare in Functions():
        assert len(measured(prepare, TEXTS["language rules"], (300, 600))) == 2, name
