"""Adds up the figures of requests in plain numbers, until ``metrics.py`` adds them to its series.

A request adds to some twenty series, and each of them takes a lock and performs checks. Scrapes are much rarer than
requests, so the series are updated for each scrape.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from operator import add

from tidemark.core.events import RequestServed
from tidemark.core.frozen import frozen
from tidemark.core.report import Action
from tidemark.core.traffic import FIRST_BYTE_BOUNDS, MAX_NAMES, OTHER, OVERHEAD_BOUNDS, TrafficFigures

REQUEST_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
FIRST_BYTE_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
OVERHEAD_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
"""Each is one of ``OVERHEAD_BOUNDS``, between which overheads are counted."""
MAX_COUNT = 10**12
"""The most that one second adds to a figure. An upstream may send any number, and the store counts in 64 bits."""
REFUSED = 400
"""From this status on an answer is a refusal, which often begins at once."""
SILENT_SECONDS = 3600.0
"""A tenant that has sent nothing for so long gives its place to another one."""

RequestLabels = tuple[str, int, str, str]
"""Model, status, action and outcome of requests."""
TenantLabels = tuple[str, int, str, str, str]
"""The same, then the tenant."""


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

    def merge(self, other: DurationCounts) -> None:
        """Add the counts between the same bounds."""
        self.number += other.number
        self.seconds += other.seconds
        self.counts = [*map(add, self.counts, other.counts)]


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
        "upstream",
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
        self.upstream: list[float] = []
        """The times until the upstream began to answer; they are counted once for many requests, which costs less."""

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
            self.saved += before - after if 0 < after < before else 0  # an answer of Tidemark's own forwards nothing
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

    def merge(self, other: RequestTotals) -> None:
        """Add the totals of other requests with the same labels."""
        for name in _SUMS:
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in _NUMBERS:
            own = getattr(self, name)
            for key, number in getattr(other, name).items():
                own[key] = own.get(key, 0) + number
        for name in _DURATIONS:
            getattr(self, name).merge(getattr(other, name))
        self.upstream += other.upstream


_NUMBERS = ("recalls", "cache_breaks")
_DURATIONS = ("seconds", "first_byte", "overhead")
_SUMS = tuple(name for name in RequestTotals.__slots__ if name not in (*_NUMBERS, *_DURATIONS, "upstream"))


def _counted(times: Sequence[float], bounds: Sequence[float]) -> Sequence[int]:
    """Return how many times lie between each bound and the one before, and last above all."""
    ordered = sorted(times)
    places = [bisect_right(ordered, bound) for bound in bounds]
    return [last - first for first, last in pairwise((0, *places, len(ordered)))]


class NamedTenants(dict[str, float]):
    """The tenants with figures of their own: the first ones that got an answer, and when each was last seen.

    Each costs a hash in every period of the store. So this worker names a bounded number, and so does the store.

    :param timer: seconds, of any beginning
    """

    def __init__(self, timer: Callable[[], float]) -> None:
        super().__init__()
        self._timer = timer
        self._full_until = 0.0
        """Until then none of them can have been silent for long enough."""

    def name(self, owner: str, *, has_answer: bool) -> str:
        """Return the name that a tenant's figures go by."""
        if not owner or owner in self:
            return owner
        if not has_answer:
            return OTHER
        now = self._timer()
        if len(self) >= MAX_NAMES:
            if now < self._full_until:
                return OTHER
            silent = min(self, key=self.__getitem__)
            self._full_until = self[silent] + SILENT_SECONDS
            if now < self._full_until:
                return OTHER
            del self[silent]
        self[owner] = now
        return owner

    def see(self, tenants: Iterable[str]) -> None:
        """Note which tenants have just sent something."""
        now = self._timer()
        for tenant in tenants:
            if tenant in self:
                self[tenant] = now


def by_labels(gathered: Mapping[TenantLabels, RequestTotals]) -> Mapping[RequestLabels, RequestTotals]:
    """Return the totals of all tenants together. Those of one label become the first ones of it, which change."""
    merged: dict[RequestLabels, RequestTotals] = {}
    for (model, status, action, outcome, _), totals in gathered.items():
        first = merged.setdefault((model, status, action, outcome), totals)
        if first is not totals:
            first.merge(totals)
    return merged


Cells = Mapping[tuple[str, str], TrafficFigures]
"""Figures by model and tenant."""


@frozen
class Unsent:
    """What no request counts, or none that is served."""

    failures: Mapping[tuple[str, str], int]
    """Summaries that failed, by model and tenant."""
    by_hand: Mapping[tuple[Action, str, str], int]
    """Compactions that people asked for, by outcome, model and tenant."""
    shed: int
    """Requests that were refused beyond the limits, before anything was known of them."""


def traffic_of(gathered: Mapping[TenantLabels, RequestTotals], unsent: Unsent) -> Cells:
    """Return the figures of all requests.

    :param gathered: totals by their labels and tenant
    """
    cells: dict[tuple[str, str], TrafficFigures] = {}

    def cell(model: str, tenant: str) -> TrafficFigures:
        return cells.setdefault((model, tenant), TrafficFigures())

    for (model, status, action, _, tenant), totals in gathered.items():
        figures = cell(model, tenant)
        figures.requests += totals.number
        figures.tokens_before += min(totals.before, MAX_COUNT)
        figures.tokens_after += min(totals.after, MAX_COUNT)
        figures.tokens_saved += min(totals.saved, MAX_COUNT)
        figures.cached_tokens += min(totals.cached, MAX_COUNT)
        if action in ("compacted", "forced", "failed"):
            setattr(figures, action, getattr(figures, action) + totals.number)
        figures.add_times("overheads", totals.overhead.counts)
        if model and status < REFUSED:
            figures.add_times("first_bytes", _counted(totals.upstream, FIRST_BYTE_BOUNDS))
    for (model, tenant), number in unsent.failures.items():
        cell(model, tenant).summarizer_failures += number
    for (action, model, tenant), number in unsent.by_hand.items():
        if action in ("forced", "failed"):
            setattr(cell(model, tenant), action, getattr(cell(model, tenant), action) + number)
    if unsent.shed:
        cell("", "").shed += unsent.shed
    return cells
