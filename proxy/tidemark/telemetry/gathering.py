"""Adds up the figures of requests in plain numbers, until ``metrics.py`` adds them to its series.

A request adds to some twenty series, and each of them takes a lock and performs checks. Scrapes are much rarer than
requests, so the series are updated for each scrape.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from tidemark.core.events import RequestServed
from tidemark.core.report import Action
from tidemark.core.traffic import OVERHEAD_BOUNDS, TrafficFigures

REQUEST_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
FIRST_BYTE_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
OVERHEAD_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""Each is one of ``OVERHEAD_BOUNDS``, between which overheads are counted."""
MAX_COUNT = 10**12
"""The most that one second adds to a figure. An upstream may send any number, and the store counts in 64 bits."""


class DurationCounts:
    """The counts of a histogram of times: the number below each bound, and the sum."""

    __slots__ = ("_bounds", "counts", "number", "seconds")

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        """The number of times between each bound and the one before, and last the number above all bounds."""
        self.number = 0
        self.seconds = 0.0

    def add(self, seconds: float) -> None:
        self.number += 1
        self.seconds += seconds
        self.counts[bisect_left(self._bounds, seconds)] += 1

    def between(self, bounds: Sequence[float]) -> DurationCounts:
        """Return the counts between fewer bounds, which are all among the own ones."""
        fewer = DurationCounts(bounds)
        fewer.number, fewer.seconds = self.number, self.seconds
        for bound, count in zip((*self._bounds, math.inf), self.counts, strict=True):
            fewer.counts[bisect_left(bounds, bound)] += count
        return fewer


class RequestTotals:
    """The totals of requests with equal labels.

    Series of tokens have the model as their only label; the few totals of one model are added up for them.
    """

    __slots__ = (
        "after",
        "before",
        "cache_breaks",
        "cache_writes",
        "cached",
        "completion",
        "first_byte",
        "number",
        "overhead",
        "prompt",
        "recalled",
        "recalls",
        "saved",
        "seconds",
    )

    def __init__(self) -> None:
        self.number = self.before = self.after = self.saved = self.prompt = self.cached = self.completion = 0
        self.recalled = self.cache_writes = 0
        self.recalls: dict[str, int] = {}
        """Requests by the outcome of recalling earlier messages."""
        self.cache_breaks: dict[str, int] = {}
        """Requests by the part that their client changed: ``tools``, ``system`` or ``message``."""
        self.seconds = DurationCounts(REQUEST_SECONDS)
        self.first_byte = DurationCounts(FIRST_BYTE_SECONDS)
        self.overhead = DurationCounts(OVERHEAD_BOUNDS)

    def add(self, served: RequestServed) -> None:
        """Add one request. Negative tokens are ignored, because an upstream may send them and counters only grow."""
        self.number += 1
        self.seconds.add(served.seconds)
        if served.first_byte_seconds is not None:
            self.first_byte.add(served.first_byte_seconds)
        if (report := served.report) is not None:
            self.overhead.add(report.overhead_seconds)
            self.before += (before := report.tokens_before)
            self.after += (after := report.tokens_after)
            if 0 < after < before:  # an answer of Tidemark's own forwards nothing
                self.saved += before - after
            if outcome := report.recall:
                self.recalls[outcome] = self.recalls.get(outcome, 0) + 1
                self.recalled += report.recalled_tokens
            if report.cache_break:
                part = report.cache_break.partition(" ")[0].partition("[")[0]
                self.cache_breaks[part] = self.cache_breaks.get(part, 0) + 1
        usage = served.usage
        if (tokens := usage.input_tokens) and tokens > 0:
            self.prompt += tokens
        if (tokens := usage.cached_tokens) and tokens > 0:
            self.cached += tokens
        if (tokens := usage.cache_write_tokens) and tokens > 0:
            self.cache_writes += tokens
        if (tokens := usage.output_tokens) and tokens > 0:
            self.completion += tokens


def traffic_of(
    gathered: Mapping[tuple[str, int, str, str], RequestTotals],
    failures: int,
    by_hand: Mapping[Action, int],
    shed: int = 0,
) -> TrafficFigures:
    """Return the figures of all requests.

    :param gathered: totals by model, status, action and outcome
    :param failures: summaries that failed
    :param by_hand: compactions that people asked for, by their outcome
    :param shed: requests that were refused beyond the limits
    """
    figures = TrafficFigures(summarizer_failures=failures, shed=shed)
    for (_, _, action, _), totals in gathered.items():
        figures.requests += totals.number
        figures.tokens_before += min(totals.before, MAX_COUNT)
        figures.tokens_after += min(totals.after, MAX_COUNT)
        figures.tokens_saved += min(totals.saved, MAX_COUNT)
        figures.cached_tokens += min(totals.cached, MAX_COUNT)
        if action in ("compacted", "forced", "failed"):
            setattr(figures, action, getattr(figures, action) + totals.number)
        figures.overheads = [own + more for own, more in zip(figures.overheads, totals.overhead.counts, strict=True)]
    figures.forced += by_hand.get("forced", 0)
    figures.failed += by_hand.get("failed", 0)
    return figures
