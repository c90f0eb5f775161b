"""Counts events as Prometheus metrics.

It listens to the events of the pipeline, and ``/metrics`` answers with ``render``. Requests are added up in plain
numbers and reach the series at a scrape, because each series takes locks and performs checks. Workers of one server
count into files of a shared folder every second and at their end, so a scrape of any worker covers all of them.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import assert_never

from tidemark.core import events, flush_events
from tidemark.core.receipt import Receipt
from tidemark.core.report import Action
from tidemark.core.traffic import OTHER
from tidemark.telemetry.gathering import (
    FIRST_BYTE_SECONDS,
    OVERHEAD_SECONDS,
    REQUEST_SECONDS,
    Cells,
    NamedTenants,
    RequestTotals,
    TenantLabels,
    Unsent,
    by_labels,
    traffic_of,
)
from tidemark.telemetry.series import Family, SeriesRegistry
from tidemark.telemetry.state import StateSeries, WorkerState

MAX_MODELS = 100
"""The most values of the label ``model``. Clients choose the names, and each costs some 50 time series."""
_MAX_NAME_CHARACTERS = 100
HAND_OVER_SECONDS = 1.0
"""The longest delay until a scrape of one worker includes another's requests, and until its figures are written."""
ALONE_SECONDS = 2.0
"""The longest delay until the figures of a single worker are written; a scrape of it is exact anyway."""
COMPACTION_SECONDS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 30.0, 60.0)


class Metrics:
    """The listener that counts.

    Its state is its own registry, the model names with a label, and the totals that the series do not have yet.
    """

    def __init__(self, shared: Path | None = None, read_state: Callable[[], WorkerState] | None = None) -> None:
        """Create the metrics with all counts at zero.

        :param shared: the folder that ``PROMETHEUS_MULTIPROC_DIR`` named when this worker was started; None for a
            single process
        :param read_state: returns what the worker does at the moment
        """
        self.registry = SeriesRegistry(shared)
        self._shared = shared
        self._count_traffic: Callable[[Cells], None] | None = None
        self._hand_over_timer: asyncio.TimerHandle | None = None
        self._by_hand: dict[tuple[Action, str, str], int] = {}
        """Compactions by hand that the figures of traffic do not have yet, by model and tenant."""
        self._failed_summaries: dict[tuple[str, str], int] = {}
        """Those that the figures of traffic do not have yet, by model and tenant."""
        self._shed_number = 0
        """Requests refused beyond the limits, which the figures of traffic do not have yet."""
        self._models: set[str] = set()
        self._tenants = NamedTenants(time.monotonic)
        self._gathered: dict[TenantLabels, RequestTotals] = {}
        self._forwarded_numbers: dict[tuple[str, int], int] = {}
        self.registry.register(self)  # it is collected first
        self.registry.add_process()
        labels = ("model", "status", "action", "outcome")
        self._requests = self.registry.counter("requests", "Requests answered or given up.", labels)
        self._forwarded = self.registry.counter(
            "forwarded_requests", "Requests carried without being understood.", ("endpoint", "status")
        )
        self._before = self.registry.counter("tokens_before", "Tokens of requests as they came in.", ("model",))
        self._after = self.registry.counter("tokens_after", "Tokens of requests as they went on.", ("model",))
        self._saved = self.registry.counter("tokens_saved", "Tokens by which requests got smaller.", ("model",))
        self._recalled = self.registry.counter(
            "recalled_tokens", "Tokens of earlier messages put back into compacted requests.", ("model",)
        )
        self._expired = self.registry.counter(
            "conversations_expired", "Conversations that nobody used for the longest lifetime.", ()
        )
        self._recalls = self.registry.counter("recalls", "Compacted requests by what was put back.", ("outcome",))
        self._cache_breaks = self.registry.counter(
            "cache_breaks", "Conversations whose client changed what it had sent, by the part.", ("part",)
        )
        self._searches = self.registry.counter(
            "recall_searches", "Searches of earlier messages by models, by what they found.", ("outcome",)
        )
        self._prompt = self.registry.counter(
            "upstream_prompt_tokens", "Input tokens by the upstream's count.", ("model",)
        )
        self._cached = self.registry.counter(
            "upstream_cached_prompt_tokens",
            "Input tokens that the upstream took from its prompt cache.",
            ("model",),
        )
        self._cache_writes = self.registry.counter(
            "upstream_cache_write_tokens", "Input tokens that the upstream wrote to its prompt cache.", ("model",)
        )
        self._completion = self.registry.counter(
            "upstream_completion_tokens", "Output tokens by the upstream's count.", ("model",)
        )
        self._add_other_series(read_state)

    def _add_other_series(self, read_state: Callable[[], WorkerState] | None) -> None:
        """Create the series that no request counts by itself, and those of times."""
        self._summaries = SummarySeries(self.registry, self._summarized_model)
        self._full = self.registry.counter(
            "context_full", "Requests above 95 % of their limit, with no more to summarize.", ()
        )
        self._degraded = self.registry.counter("store_degraded", "Times the store did not answer.", ("operation",))
        self._shed = self.registry.counter("requests_shed", "Requests refused beyond the limits.", ("reason",))
        self._broken = self.registry.counter("store_broken_records", "Times a stored record could not be read.", ())
        self._seconds = self.registry.histogram(
            "request_seconds",
            "First byte of the request to last of the response.",
            ("model",),
            REQUEST_SECONDS,
        )
        self._first_byte = self.registry.histogram(
            "first_byte_seconds",
            "First byte of the request to first of the response.",
            ("model",),
            FIRST_BYTE_SECONDS,
        )
        self._overhead = self.registry.histogram(
            "overhead_seconds", "Tidemark's own time before the upstream is asked.", (), OVERHEAD_SECONDS
        )
        self.state = StateSeries(self.registry, read_state)

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.RequestServed():
                self._served(event)
            case (
                events.ConversationCompacted()
                | events.SummaryPrepared()
                | events.SummaryFailed()
                | events.BreakerChanged()
            ):
                self._count_summary(event)
            case events.ContextFull():
                self._full.inc()
            case events.MessagesSearched():
                self._searches.labels(event.outcome).inc()
            case events.StoreDegraded() | events.RecordBroken() | events.RequestShed() | events.ConversationsExpired():
                self._count_trouble(event)
            case events.ManualCompactionEnded():
                self._count_by_hand(event)
            case (
                events.CompactionStarted()
                | events.CompactionGivenUp()
                | events.WindowLearned()
                | events.WindowAssumed()
                | events.SummaryReplaced()
                | events.TurnStored()
            ):
                pass  # the log reports these, and the live events most of them
            case events.StoreReplaced() | events.Audited():
                pass  # the log alone reports it, and an audit log if there is one
            case (
                flush_events.FlushQueued()
                | flush_events.FlushDelayed()
                | flush_events.FlushDropped()
                | flush_events.FlushDelivered()
                | flush_events.FlushFailed()
                | flush_events.FlushBuried()
                | flush_events.FlushLost()
                | flush_events.FlushWaiting()
            ):
                pass  # the memory flush counts these by itself
            case _:
                assert_never(event)

    def give_traffic_to(self, count: Callable[[Cells], None]) -> None:
        """Give the figures of all requests to ``count``, about once a second while there are any."""
        self._count_traffic = count

    def _count_summary(
        self,
        event: events.ConversationCompacted | events.SummaryPrepared | events.SummaryFailed | events.BreakerChanged,
    ) -> None:
        self._summaries(event)
        if isinstance(event, events.SummaryFailed) and self._count_traffic is not None:
            place = self._place_of(event)
            self._failed_summaries[place] = self._failed_summaries.get(place, 0) + 1
            self._hand_over_soon()

    def _count_by_hand(self, event: events.ManualCompactionEnded) -> None:
        """Count a compaction for which no request is sent: the figures of traffic have it beside those of requests."""
        if self._count_traffic is not None:
            place = (event.action, *self._place_of(event))
            self._by_hand[place] = self._by_hand.get(place, 0) + 1
            self._hand_over_soon()

    def _place_of(self, event: events.SummaryFailed | events.ManualCompactionEnded) -> tuple[str, str]:
        """Return the model and the tenant that a summary's figures go by; its conversation has had an answer."""
        return self._summarized_model(event.model), self._tenants.name(event.owner, has_answer=True)

    def _count_trouble(
        self, event: events.StoreDegraded | events.RecordBroken | events.RequestShed | events.ConversationsExpired
    ) -> None:
        """Count what operators watch: failures of the store, refused requests, conversations that are gone."""
        match event:
            case events.ConversationsExpired():
                self._expired.inc(event.number)
            case events.StoreDegraded():
                self._degraded.labels(event.operation).inc()
            case events.RecordBroken():
                self._broken.inc()
            case events.RequestShed():
                self._shed.labels(event.reason).inc()
                if self._count_traffic is not None:
                    self._shed_number += 1
                    self._hand_over_soon()
            case _:
                assert_never(event)

    def render(self) -> tuple[bytes, str]:
        """Return the metrics in Prometheus' text format, with the content type."""
        if self._shared is not None:
            self.hand_over()
            self.state.sample()
        return self.registry.render()

    def collect(self) -> Iterable[Family]:
        """Update the series before the registry collects them; return no series of its own."""
        self.hand_over()
        self.state.sample()
        return ()

    def hand_over(self) -> None:
        """Add the totals to their series, and give their figures to the counter of traffic."""
        if self._hand_over_timer is not None:
            self._hand_over_timer.cancel()
            self._hand_over_timer = None
        numbers, self._forwarded_numbers = self._forwarded_numbers, {}
        for (endpoint, code), number in numbers.items():
            self._forwarded.labels(endpoint, str(code)).inc(number)
        gathered, self._gathered = self._gathered, {}
        failed, self._failed_summaries = self._failed_summaries, {}
        by_hand, self._by_hand = self._by_hand, {}
        shed, self._shed_number = self._shed_number, 0
        if self._count_traffic is not None and (gathered or failed or by_hand or shed):
            self._tenants.see(labels[-1] for labels in gathered)
            self._count_traffic(traffic_of(gathered, Unsent(failed, by_hand, shed)))
        for (model, status, action, outcome), requests in by_labels(gathered).items():
            self._requests.labels(model, str(status), action, outcome).inc(requests.number)
            self._seconds.labels(model).take(requests.seconds)
            if requests.first_byte.number:
                self._first_byte.labels(model).take(requests.first_byte)
            for recall, number in requests.recalls.items():
                self._recalls.labels(recall).inc(number)
            for part, number in requests.cache_breaks.items():
                self._cache_breaks.labels(part).inc(number)
            self._overhead.take(requests.overhead.between(OVERHEAD_SECONDS))
            for counter, tokens in (
                (self._before, requests.before),
                (self._after, requests.after),
                (self._saved, requests.saved),
                (self._recalled, requests.recalled),
                (self._prompt, requests.prompt),
                (self._cached, requests.cached),
                (self._cache_writes, requests.cache_writes),
                (self._completion, requests.completion),
            ):
                if tokens:
                    counter.labels(model).inc(tokens)

    def _served(self, event: events.RequestServed) -> None:
        model = event.model if event.model in self._models else self._label(event)
        tenant = event.owner
        if tenant not in self._tenants:
            tenant = self._tenants.name(tenant, has_answer=_has_answered(event))
        key = (model, event.status, event.report.action if event.report else "", event.outcome, tenant)
        gathered = self._gathered.get(key)
        if gathered is None:
            gathered = self._first(key)
        gathered.add(event)
        if event.upstream_seconds is not None and self._count_traffic is not None:  # else nobody would take them
            gathered.upstream.append(event.upstream_seconds)
        if event.endpoint:
            place = event.endpoint, event.status
            self._forwarded_numbers[place] = self._forwarded_numbers.get(place, 0) + 1

    def _first(self, key: TenantLabels) -> RequestTotals:
        """Create the totals of a kind of request; the first one schedules the next update of the series."""
        if self._shared is not None or self._count_traffic is not None:
            self._hand_over_soon()
        self._gathered[key] = RequestTotals()
        return self._gathered[key]

    def _hand_over_soon(self) -> None:
        if self._hand_over_timer is None:
            seconds = ALONE_SECONDS if self._shared is None else HAND_OVER_SECONDS
            self._hand_over_timer = asyncio.get_running_loop().call_later(seconds, self.hand_over)

    def _summarized_model(self, name: str) -> str:
        """Return the label of a model whose conversation was to be summarized.

        It may not have answered yet, so such models get half of the labels at most.
        """
        name = name.encode("utf-8", "replace").decode()[:_MAX_NAME_CHARACTERS]
        if name not in self._models:
            if len(self._models) >= MAX_MODELS // 2:
                return OTHER
            self._models.add(name)
        return name

    def _label(self, event: events.RequestServed) -> str:
        """Return the model's name, if it has a label or may still get one, else ``other``.

        Only a model that answered gets a label; otherwise a client with invented names could use them all.
        """
        if not event.model:
            return ""
        name = event.model.encode("utf-8", "replace").decode()[:_MAX_NAME_CHARACTERS]
        if name not in self._models:
            if not _has_answered(event) or len(self._models) >= MAX_MODELS:
                return OTHER
            self._models.add(name)
        return name


def _has_answered(event: events.RequestServed) -> bool:
    """Return whether a model at least began to answer; our own answers to commands count no tokens."""
    if event.report is not None and event.report.tokens_after == 0:
        return False
    if event.outcome == "disconnected":  # the answer may have been a refusal
        return event.first_byte_seconds is not None and event.status < 400
    return event.outcome in ("complete", "incomplete")


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

    def __call__(
        self,
        event: events.ConversationCompacted | events.SummaryPrepared | events.SummaryFailed | events.BreakerChanged,
    ) -> None:
        match event:
            case events.ConversationCompacted():
                self._compactions.labels(event.strategy).inc()
                self._compaction.labels(event.strategy).observe(event.seconds)
                self._count_details(event.receipt)
                if event.trigger not in {"swap", "mask"}:  # a prepared summary was timed before, and masks ask nobody
                    self._time_summarizer(event)
            case events.SummaryPrepared():
                self._prepared.labels(event.strategy).inc()
                self._time_summarizer(event)
            case events.SummaryFailed():
                model = self._model_label(event.model)
                self._failures.labels(event.strategy, model).inc()
                self._summarizer.labels(event.strategy, model).observe(event.seconds)
            case events.BreakerChanged():
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

    def _time_summarizer(self, event: events.ConversationCompacted | events.SummaryPrepared) -> None:
        self._summarizer.labels(event.strategy, self._model_label(event.model)).observe(event.seconds)
