"""The figures of requests add up over workers and minutes, and a quantile can be read from any sum."""

from __future__ import annotations

import math
from bisect import bisect_left

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.traffic import (
    HOURS,
    MAX_WINDOW_SECONDS,
    MINUTES,
    OVERHEAD_BOUNDS,
    QUARTERS,
    TrafficFigures,
    level_for,
)
from tidemark.telemetry.gathering import OVERHEAD_SECONDS

SECONDS = st.floats(1e-4, 10.0)


def of(times: list[float]) -> TrafficFigures:
    """The figures of requests with these overheads."""
    figures = TrafficFigures(requests=len(times))
    for seconds in times:
        figures.overheads[bisect_left(OVERHEAD_BOUNDS, seconds)] += 1
    return figures


@given(st.lists(SECONDS, min_size=1), st.sampled_from([0.5, 0.95, 1.0]))
def test_a_quantile_lies_within_a_third_of_the_true_one(times: list[float], share: float) -> None:
    """It lies between the two bounds that the true one lies between."""
    true = sorted(times)[math.ceil(share * len(times)) - 1]
    got = of(times).overhead_quantile(share)
    assert got is not None
    place = bisect_left(OVERHEAD_BOUNDS, true)
    lower = OVERHEAD_BOUNDS[place - 1] if place else 0.0
    assert lower <= got <= OVERHEAD_BOUNDS[place]


@given(st.lists(SECONDS), st.lists(SECONDS))
def test_figures_of_two_workers_add_up_to_those_of_one(first: list[float], second: list[float]) -> None:
    """Overheads and counts alike, so the quantiles are equal too."""
    total = of(first)
    total.add(of(second))
    assert total == of(first + second)


def test_without_requests_there_is_no_quantile() -> None:
    """It is not zero: nobody waited."""
    assert TrafficFigures().overhead_quantile(0.5) is None


def test_an_overhead_above_all_bounds_counts_as_the_last_bound() -> None:
    """As in Prometheus."""
    assert of([60.0]).overhead_quantile(0.5) == OVERHEAD_BOUNDS[-1]


def test_the_bounds_of_the_metric_are_among_the_finer_ones() -> None:
    """So each count of the metric is a sum of finer counts."""
    assert set(OVERHEAD_SECONDS) <= set(OVERHEAD_BOUNDS)
    assert list(OVERHEAD_BOUNDS) == sorted(set(OVERHEAD_BOUNDS))


@pytest.mark.parametrize(
    ("window", "level", "points"),
    [(60, MINUTES, 1), (3600, MINUTES, 60), (86_400, QUARTERS, 96), (MAX_WINDOW_SECONDS, HOURS, 168)],
)
def test_a_window_is_read_from_the_finest_level_that_is_stored_so_long(window: int, level: object, points: int) -> None:
    """An hour in minutes, a day in quarters of an hour, a week in hours."""
    found = level_for(window)
    assert found is level
    assert window // found.seconds == points
    assert found.keep_seconds > found.longest_window
