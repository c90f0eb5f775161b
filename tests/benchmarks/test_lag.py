"""The table of `make bench-lag`: each body is sent several times, and the worst lag is held against the limit."""

from __future__ import annotations

from benchmarks.lag import Found, Row


def test_the_worst_round_counts_and_the_median_stands_beside_it() -> None:
    """One long wait is not hidden by two short ones; the median tells whether it was another process."""
    row = Row("a text", "/tidemark/count", 60.0, [Found(200, 1.0, lag) for lag in (20.0, 90.0, 30.0)])
    assert (row.median_ms, row.worst_ms) == (30.0, 90.0)
    assert str(row).split()[-2:] == ["30.0", "90.0"]
    assert [each["lag_ms"] for each in row.saved()["rounds"]] == [20.0, 90.0, 30.0]  # type: ignore[attr-defined]
