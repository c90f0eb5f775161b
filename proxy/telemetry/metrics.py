"""Facts as Prometheus metrics: the only door to prometheus_client. ``/metrics`` answers with ``render``.

Workers of one server count into files of a folder they share, so that a scrape of any of them tells of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.multiprocess import MultiProcessCollector

from proxy.core.events import (
    BreakerChanged,
    ConversationCompacted,
    Event,
    FlushBuried,
    FlushDelivered,
    FlushDropped,
    FlushFailed,
    FlushQueued,
    FlushWaiting,
    RequestServed,
    StoreDegraded,
    SummaryFailed,
    SummaryPrepared,
)

M = TypeVar("M", Counter, Histogram)

MAX_MODELS = 100
"""Distinct values of the label ``model``. Clients choose the names, and each costs some 50 time series."""
OTHER = "other"
_MAX_NAME_CHARACTERS = 100

REQUEST_SECONDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
FIRST_BYTE_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
OVERHEAD_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1.0)
COMPACTION_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0)

disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series beside each counter, which nobody reads


class Metrics:
    """The listener that counts; state: its own registry, its series, and the model names that have a label."""

    def __init__(self, shared: Path | None = None) -> None:
        """Nothing is counted yet.

        :param shared: the folder that ``PROMETHEUS_MULTIPROC_DIR`` named when this process was started, for workers
            that are told of as one; None for a process of its own
        """
        self.registry = CollectorRegistry()
        self._shared = shared
        self._models: set[str] = set()
        self._children: dict[tuple[Any, ...], Any] = {}
        if shared is None:
            ProcessCollector(registry=self.registry)
        labels = ("model", "status", "action", "outcome")
        self._requests = self._counter("requests", "Requests answered or given up.", labels)
        self._before = self._counter("tokens_before", "Tokens of requests as they came in.", ("model",))
        self._after = self._counter("tokens_after", "Tokens of requests as they went on.", ("model",))
        self._prompt = self._counter("upstream_prompt_tokens", "Input tokens by the upstream's count.", ("model",))
        self._cached = self._counter(
            "upstream_cached_prompt_tokens",
            "Input tokens that the upstream took from its prompt cache.",
            ("model",),
        )
        self._completion = self._counter(
            "upstream_completion_tokens", "Output tokens by the upstream's count.", ("model",)
        )
        self._compactions = self._counter("compactions", "Summaries made and stored.", ("strategy",))
        self._prepared = self._counter("summaries_prepared", "Summaries made in the background.", ("strategy",))
        self._breaker = self._counter("breaker_changes", "Changes of summarizers' breakers.", ("strategy", "state"))
        self._failures = self._counter("summary_failures", "Summaries that failed.", ("strategy",))
        self._degraded = self._counter("store_degraded", "Times the store did not answer.", ("operation",))
        self._flushes = self._counter(
            "flushes", "Times messages left the context and were queued, or not.", ("outcome",)
        )
        self._deliveries = self._counter(
            "flush_deliveries", "Entries of the flush queue offered to consumers.", ("consumer", "outcome")
        )
        self._queue = self._gauge("flush_queue_length", "Entries that a consumer has still to take.", ("consumer",))
        self._age = self._gauge("flush_queue_age_seconds", "Age of the oldest of them.", ("consumer",))
        self._lost = self._gauge("flush_lost", "Entries that made way before a consumer took them.", ("consumer",))
        self._letters = self._gauge("flush_dead_letters", "Dead letters that are kept.", ())
        self._seconds = self._histogram(
            "request_seconds",
            "First byte of the request to last of the response.",
            ("model",),
            REQUEST_SECONDS,
        )
        self._first_byte = self._histogram(
            "first_byte_seconds",
            "First byte of the request to first of the response.",
            ("model",),
            FIRST_BYTE_SECONDS,
        )
        self._overhead = self._histogram(
            "overhead_seconds", "Tidemark's own time before the upstream is asked.", (), OVERHEAD_SECONDS
        )
        self._compaction = self._histogram(
            "compaction_seconds", "Time to make and store a summary.", ("strategy",), COMPACTION_SECONDS
        )

    def __call__(self, event: Event) -> None:
        """Count one fact."""
        match event:
            case RequestServed():
                self._served(event)
            case ConversationCompacted():
                self._compactions.labels(event.strategy).inc()
                self._compaction.labels(event.strategy).observe(event.seconds)
            case SummaryPrepared():
                self._prepared.labels(event.strategy).inc()
            case BreakerChanged():
                self._breaker.labels(event.strategy, event.state).inc()
            case SummaryFailed():
                self._failures.labels(event.strategy).inc()
            case StoreDegraded():
                self._degraded.labels(event.operation).inc()
            case _:
                self._flushed(event)

    def _flushed(self, event: Event) -> None:
        """What leaves the context, and what becomes of it."""
        match event:
            case FlushQueued():
                self._flushes.labels("queued").inc()
            case FlushDropped():
                self._flushes.labels("dropped").inc()
            case FlushDelivered():
                self._deliveries.labels(event.consumer, "delivered").inc()
            case FlushFailed():
                self._deliveries.labels(event.consumer, "failed").inc()
            case FlushBuried():
                self._deliveries.labels(event.consumer, "dead").inc()
            case FlushWaiting():
                self._queue.labels(event.consumer).set(event.entries)
                self._age.labels(event.consumer).set(event.seconds)
                self._lost.labels(event.consumer).set(event.lost)
                self._letters.set(event.dead)

    def render(self) -> tuple[bytes, str]:
        """The metrics in Prometheus' text format, and its content type."""
        registry = self.registry
        if self._shared is not None:
            registry = CollectorRegistry()
            MultiProcessCollector(registry, str(self._shared))  # type: ignore[no-untyped-call]
        return generate_latest(registry), CONTENT_TYPE_LATEST

    def _served(self, event: RequestServed) -> None:
        model = self._label(event)
        self._child(self._requests, model, str(event.status), event.action or "", event.outcome).inc()
        self._child(self._seconds, model).observe(event.seconds)
        if event.first_byte_seconds is not None:
            self._child(self._first_byte, model).observe(event.first_byte_seconds)
        if event.overhead_seconds is not None:
            self._overhead.observe(event.overhead_seconds)
        counted = (
            (self._before, event.tokens_before),
            (self._after, event.tokens_after),
            (self._prompt, event.prompt_tokens),
            (self._cached, event.cached_tokens),
            (self._completion, event.completion_tokens),
        )
        for counter, tokens in counted:
            if tokens is not None and tokens > 0:  # a counter refuses what an upstream might send below 0
                self._child(counter, model).inc(tokens)

    def _child(self, metric: M, *labels: str) -> M:
        """``metric.labels(...)``, found without its checks and its lock; there are as many as there are series."""
        key = (metric, *labels)
        child = self._children.get(key)
        if child is None:
            child = self._children[key] = metric.labels(*labels)
        found: M = child
        return found

    def _label(self, event: RequestServed) -> str:
        """The model's name, if it has a label or may still get one.

        Only a model that was served gets one: else a client with made-up names could take them all.
        """
        if not event.model:
            return ""
        name = event.model.encode("utf-8", "replace").decode()[:_MAX_NAME_CHARACTERS]
        if name not in self._models:
            served = event.outcome not in ("refused", "rejected", "error")
            if not served or len(self._models) >= MAX_MODELS:
                return OTHER
            self._models.add(name)
        return name

    def _counter(self, name: str, what: str, labels: Sequence[str]) -> Counter:
        """``tidemark_{name}_total``; prometheus_client adds the ending."""
        return Counter(name, what, labels, namespace="tidemark", registry=self.registry)

    def _gauge(self, name: str, what: str, labels: Sequence[str]) -> Gauge:
        """What is the same for all workers, as the store tells it: the newest word holds."""
        return Gauge(name, what, labels, namespace="tidemark", registry=self.registry, multiprocess_mode="mostrecent")

    def _histogram(self, name: str, what: str, labels: Sequence[str], bounds: Sequence[float]) -> Histogram:
        return Histogram(name, what, labels, namespace="tidemark", registry=self.registry, buckets=bounds)
