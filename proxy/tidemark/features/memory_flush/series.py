"""Counts the events of the memory flush, which ``feature.py`` gives to it."""

from __future__ import annotations

from tidemark.core.events import Event
from tidemark.core.flush_events import FlushBuried, FlushDelivered, FlushDropped, FlushFailed, FlushQueued, FlushWaiting
from tidemark.telemetry.series import SeriesRegistry


class FlushSeries:
    """The series of the memory flush."""

    def __init__(self, registry: SeriesRegistry) -> None:
        self._flushes = registry.counter(
            "flushes", "Times messages left the context and were queued, or not.", ("outcome",)
        )
        self._deliveries = registry.counter(
            "flush_deliveries", "Entries of the flush queue offered to consumers.", ("consumer", "outcome")
        )
        self._queue = registry.gauge("flush_queue_length", "Entries that a consumer has still to take.", ("consumer",))
        self._age = registry.gauge("flush_queue_age_seconds", "Age of the oldest of them.", ("consumer",))
        self._lost = registry.gauge("flush_lost", "Entries that made way before a consumer took them.", ("consumer",))
        self._letters = registry.gauge("flush_dead_letters", "Dead letters that are kept.", ())

    def __call__(self, event: Event) -> None:
        """Count an event of the memory flush; it is given no others."""
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
            case _:
                pass  # the log alone reports delays and losses
