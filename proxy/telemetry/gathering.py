"""Adds up the figures of requests in plain numbers, until ``metrics.py`` adds them to its series.

A request adds to some twenty series, and each of them takes a lock and performs checks. Scrapes are much rarer than
requests, so the series are updated for each scrape.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from proxy.core.events import RequestServed

REQUEST_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
FIRST_BYTE_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
OVERHEAD_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)


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
        """Add one time."""
        self.number += 1
        self.seconds += seconds
        self.counts[bisect_left(self._bounds, seconds)] += 1


class RequestTotals:
    """The totals of requests with equal labels.

    Series of tokens have the model as their only label; the few totals of one model are added up for them.
    """

    __slots__ = ("after", "before", "cached", "completion", "first_byte", "number", "overhead", "prompt", "seconds")

    def __init__(self) -> None:
        self.number = self.before = self.after = self.prompt = self.cached = self.completion = 0
        self.seconds = DurationCounts(REQUEST_SECONDS)
        self.first_byte = DurationCounts(FIRST_BYTE_SECONDS)
        self.overhead = DurationCounts(OVERHEAD_SECONDS)

    def add(self, served: RequestServed) -> None:
        """Add one request. Negative tokens are ignored, because an upstream may send them and counters only grow."""
        self.number += 1
        self.seconds.add(served.seconds)
        if served.first_byte_seconds is not None:
            self.first_byte.add(served.first_byte_seconds)
        if (report := served.report) is not None:
            self.overhead.add(report.overhead_seconds)
            self.before += report.tokens_before
            self.after += report.tokens_after
        usage = served.usage
        if (tokens := usage.input_tokens) and tokens > 0:
            self.prompt += tokens
        if (tokens := usage.cached_tokens) and tokens > 0:
            self.cached += tokens
        if (tokens := usage.output_tokens) and tokens > 0:
            self.completion += tokens
