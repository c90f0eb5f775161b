"""Plugs in the figures of requests: ``/tidemark/stats``.

The endpoint gives the operator the figures of all requests over a window, or those of a model or a tenant.

``TrafficCounter`` adds up this worker's figures, and writes them to the store about once a second. ``metrics.py`` gives
it those that it has gathered since the last time, so that a request adds nothing more. No request waits for the
writing. While the store does not answer, the figures wait in memory.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.prefix import owner_of
from tidemark.core.errors import InvalidRequest, RecordUnreadable
from tidemark.core.traffic import MAX_WINDOW_SECONDS, MIN_WINDOW_SECONDS, Traffic, TrafficCell, TrafficFigures
from tidemark.features.feature import Feature
from tidemark.features.traffic.store import Part, RedisTraffic
from tidemark.features.traffic.traffic_reader import TrafficReader
from tidemark.server.responses import to_json, with_error_envelope
from tidemark.worker.patient_writer import PatientWriter
from tidemark.worker.worker import Worker

DEFAULT_WINDOW = "3600"
MAX_DIGITS = 9
"""Digits of a window; a longer number is no window either."""
SECONDS_DIGITS = 6
MAX_MINUTES = 1440
"""Minutes of figures that wait for the store: a day. Older ones are dropped."""
MAX_CELLS = 5000
"""Figures that wait, about 7 MB. Of more, those of earlier minutes stay only as those of all requests."""
BATCH_CELLS = 50
"""Figures that are written at once, in some 10 ms: those of a minute for each model and tenant."""
MINUTE_SECONDS = 60
MAX_NAME_CHARACTERS = 100


class TrafficFeature(Feature):
    """Adds up the figures of all requests, for the operator."""

    def __init__(self, worker: Worker) -> None:
        store, metrics = RedisTraffic(worker.store.ask), worker.metrics
        self._operator = worker.operator
        self._counter = TrafficCounter(store, time.time, metrics.hand_over, metrics.state.add_store_time)
        metrics.give_traffic_to(self._counter.add)

        def tenant_names() -> Mapping[str, str]:
            return {owner_of(fingerprint): name for fingerprint, name in worker.keys.tenants().items()}

        self.reader = TrafficReader(store, self._counter.settle, time.time, tenant_names)

    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/tidemark/stats", with_error_envelope(self._stats), methods=["GET"])]

    async def aclose(self) -> None:
        await self._counter.aclose()

    async def _stats(self, request: Request) -> Response:
        self._operator.require_reader(request)
        windows = request.query_params.getlist("window") or [DEFAULT_WINDOW]
        traffic = await self.reader.read(_seconds(windows), await self._part(request))
        return to_json(_described(traffic))

    async def _part(self, request: Request) -> Part | None:
        """Return whose requests a query asks for; None for all.

        :raises InvalidRequest: it asks for a model and for a tenant, or for a tenant that may be several
        """
        model, tenant = (request.query_params.get(name, "")[:MAX_NAME_CHARACTERS] for name in ("model", "tenant"))
        if model and tenant:
            message = "Ask for a model or for a tenant: figures of both together are not stored."
            raise InvalidRequest(message, param="tenant")
        if tenant:
            return await self.reader.tenant(tenant)
        return Part("m", model) if model else None


def _seconds(windows: list[str]) -> int:
    """Return the window of a query.

    :raises InvalidRequest: it is no whole number, or there are several
    """
    text = windows[0]
    if len(windows) == 1 and text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS:
        return int(text)
    message = (
        f"window must be one number of seconds from {MIN_WINDOW_SECONDS} to {MAX_WINDOW_SECONDS}, "
        f"and is {', '.join(windows)[:40]!r}."
    )
    raise InvalidRequest(message, param="window")


def _described(traffic: Traffic) -> JsonValue:
    series: list[JsonValue] = [{"start": point.start, **_figures(point.figures)} for point in traffic.points]
    names: dict[str, JsonValue] = {"models": [*traffic.models], "tenants": [*traffic.tenants]}
    return {"window": traffic.window_seconds, **_figures(traffic.total), **names, "series": series}


def _figures(figures: TrafficFigures) -> dict[str, JsonValue]:
    return {
        "requests": figures.requests,
        "tokens_before": figures.tokens_before,
        "tokens_after": figures.tokens_after,
        "tokens_saved": figures.tokens_saved,
        "compactions": {"compacted": figures.compacted, "forced": figures.forced, "failed": figures.failed},
        "summarizer_failures": figures.summarizer_failures,
        "shed": figures.shed,
        "cached_tokens": figures.cached_tokens,
        "overhead_seconds": _quantiles(figures.overhead_quantile),
        "upstream_first_byte_seconds": _quantiles(figures.first_byte_quantile),
    }


def _quantiles(quantile: Callable[[float], float | None]) -> dict[str, JsonValue]:
    seconds = {"p50": quantile(0.5), "p95": quantile(0.95)}
    return {name: None if value is None else round(value, SECONDS_DIGITS) for name, value in seconds.items()}


class TrafficCounter:
    """Collects figures by minute and writes them.

    The mutable state is the figures that wait, and the batch that was sent last, until the store has answered. A batch
    has a number, so that one whose answer was lost counts once.

    :param clock: Unix time in seconds
    :param on_written: is given the seconds of each write
    :param gather: calls ``add`` with what is gathered and was not added yet
    """

    def __init__(
        self,
        store: RedisTraffic,
        clock: Callable[[], float],
        gather: Callable[[], None],
        on_written: Callable[[float], None] = lambda _: None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._gather = gather
        self._on_written = on_written
        self._timer = time.perf_counter
        self._writer = uuid.uuid4().hex
        self._number = 0
        self._batch: dict[TrafficCell, TrafficFigures] = {}
        self._waiting: dict[TrafficCell, TrafficFigures] = {}
        self._minute = 0
        """The newest one that figures wait for."""
        self._lock = asyncio.Lock()
        self._patient_writer = PatientWriter(self._write, lambda: bool(self._batch or self._waiting))

    def add(self, cells: Mapping[tuple[str, str], TrafficFigures]) -> None:
        """Count figures by model and tenant for the current minute, and keep them; a task of its own writes them."""
        minute = int(self._clock()) // MINUTE_SECONDS
        if minute != self._minute:
            self._minute = minute
            self._bound(minute)
        for (model, tenant), figures in cells.items():
            cell = TrafficCell(minute, model, tenant)
            if self._waiting.setdefault(cell, figures) is not figures:
                self._waiting[cell].add(figures)
        self._patient_writer.begin()

    def _bound(self, minute: int) -> None:
        """Drop the figures of minutes that are over for a day; of too many, drop whose they are."""
        waiting = {cell: figures for cell, figures in self._waiting.items() if cell.minute > minute - MAX_MINUTES}
        if len(waiting) > MAX_CELLS:
            by_cell, waiting = waiting, {}
            for cell, figures in by_cell.items():
                waiting.setdefault(TrafficCell(cell.minute), TrafficFigures()).add(figures)
        self._waiting = waiting

    async def settle(self) -> None:
        """Write now what waits; during an outage it goes on waiting."""
        self._gather()
        await self._patient_writer.settle()

    async def aclose(self) -> None:
        """Write what waits, as far as a short time allows."""
        self._gather()
        await self._patient_writer.aclose()

    async def _write(self) -> None:
        """Write all batches.

        :raises StoreError: the store did not take one, which stays for the next try
        """
        async with self._lock:
            while self._batch or self._waiting:
                if not self._batch:
                    self._number += 1
                    for cell in [*islice(self._waiting, BATCH_CELLS)]:
                        self._batch[cell] = self._waiting.pop(cell)
                with suppress(RecordUnreadable):  # another version's key: the same batch would fail again
                    started = self._timer()
                    await self._store.add(self._writer, self._number, self._batch)
                    self._on_written(self._timer() - started)
                self._batch = {}
