"""Makes the series of Prometheus and writes them as text; no other module imports prometheus_client.

``metrics.py`` counts with them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client import Metric as Family
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from tidemark.telemetry.gathering import DurationCounts

__all__ = ["Counter", "Family", "Gauge", "SeriesRegistry", "Times"]
NAMESPACE = "tidemark"

disable_created_metrics()  # type: ignore[no-untyped-call]  # they would add an unused series for each counter


class Times(Histogram):
    """A histogram that adds many observations at once."""

    def take(self, gathered: DurationCounts) -> None:
        """Add counts with the same bounds."""
        self._sum.inc(gathered.seconds)
        for bucket, count in zip(self._buckets, gathered.counts, strict=True):
            if count:
                bucket.inc(count)


class SeriesRegistry(CollectorRegistry):
    """All series of one process.

    :param shared: the folder that the workers of one server count into; None for a single process
    """

    def __init__(self, shared: Path | None) -> None:
        super().__init__()
        self._shared = shared

    def add_process(self) -> None:
        """Add the usual series about a process, if there is a single one."""
        if self._shared is None:
            ProcessCollector(registry=self)

    def counter(self, name: str, what: str, labels: Sequence[str]) -> Counter:
        """Create ``tidemark_{name}_total``; prometheus_client adds the ending."""
        return Counter(name, what, labels, namespace=NAMESPACE, registry=self)

    def gauge(self, name: str, what: str, labels: Sequence[str]) -> Gauge:
        """Create a gauge whose value comes from the store, so that the newest of all workers' values is right."""
        return Gauge(name, what, labels, namespace=NAMESPACE, registry=self, multiprocess_mode="mostrecent")

    def live_gauge(self, name: str, what: str) -> Gauge:
        """Create a gauge that is the sum over the workers."""
        return Gauge(name, what, (), namespace=NAMESPACE, registry=self, multiprocess_mode="livesum")

    def histogram(self, name: str, what: str, labels: Sequence[str], bounds: Sequence[float]) -> Times:
        """Create a histogram of seconds."""
        return Times(name, what, labels, namespace=NAMESPACE, registry=self, buckets=bounds)

    def render(self) -> tuple[bytes, str]:
        """Return the series of all workers in Prometheus' text format, with the content type."""
        registry: CollectorRegistry = self
        if self._shared is not None:
            registry = CollectorRegistry()
            _forget_ended(self._shared)
            MultiProcessCollector(registry, str(self._shared))  # type: ignore[no-untyped-call]
        return generate_latest(registry), CONTENT_TYPE_LATEST


def _forget_ended(shared: Path) -> None:
    """Remove what ended workers show of their state; a worker that was killed could not."""
    for path in shared.glob("gauge_livesum_*.db"):
        try:
            os.kill(int(path.stem.rpartition("_")[2]), 0)
        except ProcessLookupError:
            with suppress(OSError):
                path.unlink()
        except (ValueError, OSError):
            continue
