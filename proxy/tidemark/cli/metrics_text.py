"""Reads what ``tidemark top`` shows from the text of ``/metrics`` (Prometheus' format 0.0.4); it is pure."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import field

from tidemark.core.frozen import frozen

_SAMPLE = re.compile(r"^(tidemark_\w+?)(?:\{(.*)\})? ([0-9.eE+\-]+|NaN|[+]Inf)(?: \d+)?$", re.MULTILINE)
_LABEL = re.compile(r'\b(\w+)="((?:[^"\\]|\\.)*)"')
_BUCKET = "_bucket"
_ESCAPES = {"\\n": "\n", '\\"': '"', "\\\\": "\\"}


@frozen
class Histogram:
    """The buckets of one histogram: counts of values up to each bound, which include the smaller bounds'."""

    counts: Mapping[float, float] = field(default_factory=dict)

    def quantile(self, share: float) -> float | None:
        """Return the value that a share of all values does not exceed; None without values.

        As Prometheus' ``histogram_quantile``, it assumes that values lie evenly within a bucket.
        """
        bounds = sorted(self.counts)
        total = self.counts[bounds[-1]] if bounds else 0
        if total <= 0:
            return None
        rank, lower, below = share * total, 0.0, 0.0
        for bound in bounds:
            count = self.counts[bound]
            if count >= rank:
                if math.isinf(bound):
                    return lower
                return lower + (bound - lower) * ((rank - below) / (count - below) if count > below else 1)
            lower, below = bound, count
        return lower

    def since(self, earlier: Histogram) -> Histogram:
        """Return the values that came after an earlier reading; all of them after the server's restart."""
        fresh = {bound: count - earlier.counts.get(bound, 0) for bound, count in self.counts.items()}
        return self if any(count < 0 for count in fresh.values()) else Histogram(fresh)


@frozen
class MetricsReading:
    """The counters and gauges summed over their labels, and the histograms by model."""

    sums: Mapping[str, float] = field(default_factory=dict)
    by_model: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """The sums of each metric for each value of the label ``model``."""
    histograms: Mapping[str, Mapping[str, Histogram]] = field(default_factory=dict)
    """By metric, then by the label ``model``; ``""`` without that label."""

    def total(self, name: str) -> float:
        """Return the sum of a metric, 0 for one that is missing."""
        return self.sums.get(name, 0.0)


def read_metrics(page: str) -> MetricsReading:
    """Read the metrics of Tidemark from a page; lines of others are passed over."""
    sums: dict[str, float] = {}
    by_model: dict[str, dict[str, float]] = {}
    buckets: dict[str, dict[str, dict[float, float]]] = {}
    for name, written_labels, number in _SAMPLE.findall(page):
        value = float(number)
        if math.isnan(value):
            continue
        labels = {key: _unescaped(text) for key, text in _LABEL.findall(written_labels)}
        model = labels.get("model", "")
        if name.endswith(_BUCKET) and "le" in labels:
            counts = buckets.setdefault(name.removesuffix(_BUCKET), {}).setdefault(model, {})
            bound = float(labels["le"])
            counts[bound] = counts.get(bound, 0) + value
            continue
        sums[name] = sums.get(name, 0) + value
        models = by_model.setdefault(name, {})
        models[model] = models.get(model, 0) + value
    histograms = {
        name: {model: Histogram(counts) for model, counts in models.items()} for name, models in buckets.items()
    }
    return MetricsReading(sums, by_model, histograms)


def _unescaped(text: str) -> str:
    return re.sub(r'\\[n"\\]', lambda match: _ESCAPES[match[0]], text)
