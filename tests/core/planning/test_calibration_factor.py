"""Calibration: quick to learn, bounded, and never on the wrong side of the safety margin."""

from __future__ import annotations

from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.planning.budget import MARGIN_RATIO, CompactionPolicy, ModelProfile, ModelWindow, budget_for
from tidemark.core.planning.calibration import (
    LEAST,
    MOST,
    SAFE,
    UNCALIBRATED,
    CalibratedBudget,
    Calibration,
    calibration_key,
    in_local_tokens,
)

REPLIES = st.lists(st.tuples(st.integers(-5, 200_000), st.integers(-5, 900_000)), max_size=20)


def after(replies: list[tuple[int, int]], start: Calibration = UNCALIBRATED) -> Calibration:
    """The calibration after some replies: our count and the provider's."""
    for counted, told in replies:
        start = start.learned(counted, told, 1.0)
    return start


@given(st.floats(1.0, 3.0), st.lists(st.integers(100, 100_000), min_size=5, max_size=5))
def test_five_replies_teach_any_density_to_one_percent(density: float, sizes: list[int]) -> None:
    """Whatever the requests' sizes (below 100 tokens the rounding of ``usage`` alone can be 1 %), for any next one."""
    learned = after([(size, round(density * size)) for size in sizes])
    for size in (40, 1000, 100_000):
        told = CalibratedBudget(budget_for(ModelProfile("m", ModelWindow(), CompactionPolicy()), None), learned.applied)
        assert abs(told.provider_tokens(size) - density * size) <= 0.01 * density * size + 1


def test_a_change_of_the_tokenizer_is_learned_as_fast() -> None:
    """After fifty replies at 1.0 five of the same size at 1.46 are enough."""
    learned = after([(1000, 1000)] * 50 + [(1000, 1460)] * 5)
    assert abs(learned.factor - 1.46) <= 0.0146 * 1.01


@given(REPLIES)
def test_a_factor_is_bounded_whatever_is_told(replies: list[tuple[int, int]]) -> None:
    """Zero, negative and absurd numbers included; what is applied stays within the safety margin."""
    learned = after(replies)
    assert LEAST <= learned.factor <= MOST
    assert SAFE <= learned.applied <= MOST
    assert learned.replies == sum(counted > 0 and told > 0 for counted, told in replies)


@given(REPLIES, st.integers(1000, 2_000_000), st.integers(1, 100_000))
def test_a_wrong_factor_never_overflows(replies: list[tuple[int, int]], window: int, reply: int) -> None:
    """What fits the divided limit fits the window beside the reply, were our own count the true one."""
    budget = budget_for(ModelProfile("m", ModelWindow(window), CompactionPolicy()), min(reply, window // 2))
    marks = in_local_tokens(budget, after(replies).applied)
    assert marks.limit <= budget.limit + MARGIN_RATIO * budget.window
    assert marks.low_water <= marks.high_water <= marks.limit


@given(st.floats(SAFE, MOST), st.integers(1000, 2_000_000))
def test_what_fits_the_marks_fits_the_budget(factor: float, window: int) -> None:
    """Promise 4 in the provider's tokens: no rounding leads over a mark."""
    measure = CalibratedBudget(budget_for(ModelProfile("m", ModelWindow(window), CompactionPolicy()), None), factor)
    for one in fields(measure.marks):
        if one.name == "price":  # no number of tokens
            continue
        assert measure.provider_tokens(getattr(measure.marks, one.name)) <= getattr(measure.budget, one.name)


def test_without_calibration_the_budget_is_the_very_one() -> None:
    """FR-1.1.5: local counts decide, and nothing is computed anew."""
    measure = CalibratedBudget(budget_for(ModelProfile("m", ModelWindow(), CompactionPolicy()), None))
    assert measure.marks is measure.budget
    assert measure.provider_tokens(1234) == 1234


@pytest.mark.parametrize(
    ("fingerprint", "model", "url", "tools"),
    [(b"b", "p:m", "u", b"[1]"), (b"a", "p:n", "u", b"[1]"), (b"a", "p:m", "v", b"[1]"), (b"a", "p:m", "u", b"[2]")],
)
def test_keys_tell_apart_whoever_and_whatever_differs(fingerprint: bytes, model: str, url: str, tools: bytes) -> None:
    """Promise 8: the credential first of all; then model, upstream and tool set."""
    one = calibration_key(b"a", "p:m", "u", [b"[1]"])
    assert calibration_key(fingerprint, model, url, [tools]) != one
    assert calibration_key(b"a", "p:m", "u", []).tools == ""


def test_a_factor_is_never_so_small_that_the_configured_margin_would_not_cover_a_mistake() -> None:
    """FR-1.2.4c: with no margin, a thinner tokenizer widens nothing."""
    learned = Calibration(100, 60, 5, 0.0)
    assert (learned.within(0.0), learned.within(0.25), learned.within(0.9)) == (1.0, 0.8, 0.6)
