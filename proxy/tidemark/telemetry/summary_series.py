"""Counts the events of summaries and of the summarizers that write them; ``metrics.py`` hands them over."""

from __future__ import annotations

from collections.abc import Callable
from typing import assert_never

from tidemark.core.events import BreakerChanged, ConversationCompacted, SummaryFailed, SummaryPrepared
from tidemark.core.receipt import Receipt
from tidemark.telemetry.series import SeriesRegistry

COMPACTION_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0)


class SummarySeries:
    """The series of summaries.

    :param model_label: gives the label of the model of a conversation that was to be summarized
    """

    def __init__(self, registry: SeriesRegistry, model_label: Callable[[str], str]) -> None:
        self._model_label = model_label
        self._compactions = registry.counter("compactions", "Summaries made and stored.", ("strategy",))
        self._prepared = registry.counter("summaries_prepared", "Summaries made in the background.", ("strategy",))
        self._breaker = registry.counter("breaker_changes", "Changes of summarizers' breakers.", ("strategy", "state"))
        self._failures = registry.counter("summary_failures", "Summaries that failed.", ("strategy", "model"))
        self._details = registry.counter(
            "summary_details", "What was said before summaries, and what became of it.", ("kind", "survival")
        )
        self._compaction = registry.histogram(
            "compaction_seconds", "Time to make and store a summary.", ("strategy",), COMPACTION_SECONDS
        )
        self._summarizer = registry.histogram(
            "summarizer_seconds",
            "Time until a summary was made and stored, or failed.",
            ("strategy", "model"),
            COMPACTION_SECONDS,
        )

    def __call__(self, event: ConversationCompacted | SummaryPrepared | SummaryFailed | BreakerChanged) -> None:
        match event:
            case ConversationCompacted():
                self._compactions.labels(event.strategy).inc()
                self._compaction.labels(event.strategy).observe(event.seconds)
                self._count_details(event.receipt)
                if event.trigger != "swap":  # then the summary was prepared before
                    self._time_summarizer(event)
            case SummaryPrepared():
                self._prepared.labels(event.strategy).inc()
                self._time_summarizer(event)
            case SummaryFailed():
                model = self._model_label(event.model)
                self._failures.labels(event.strategy, model).inc()
                self._summarizer.labels(event.strategy, model).observe(event.seconds)
            case BreakerChanged():
                self._breaker.labels(event.strategy, event.state).inc()
            case _:
                assert_never(event)

    def _count_details(self, receipt: Receipt) -> None:
        """Count what a summary kept, shortened and dropped of each kind."""
        for count in receipt:
            self._details.labels(count.kind, "kept").inc(count.verbatim_count)
            self._details.labels(count.kind, "shortened").inc(count.shortened_count)
            self._details.labels(count.kind, "dropped").inc(count.dropped_count)
            self._details.labels(count.kind, "unsupported").inc(len(count.unsupported))

    def _time_summarizer(self, event: ConversationCompacted | SummaryPrepared) -> None:
        self._summarizer.labels(event.strategy, self._model_label(event.model)).observe(event.seconds)
