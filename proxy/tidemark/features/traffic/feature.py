"""Plugs in the figures of requests: ``/tidemark/stats``.

The endpoint gives the operator the figures of all requests over a window.

``TrafficCounter`` adds up this worker's figures, and writes them to the store about once a second. ``metrics.py`` gives
it those that it has gathered since the last time, so that a request adds nothing more. No request waits for the
writing. While the store does not answer, the figures wait in memory.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import InvalidRequest, RecordUnreadable
from tidemark.core.frozen import frozen
from tidemark.core.traffic import MAX_WINDOW_SECONDS, MIN_WINDOW_SECONDS, Traffic, TrafficFigures
from tidemark.features.feature import Feature
from tidemark.features.traffic.store import RedisTraffic
from tidemark.features.traffic.traffic_reader import TrafficReader
from tidemark.server.operator import OperatorAccess
from tidemark.server.responses import to_json, with_error_envelope
from tidemark.worker.patient_writer import PatientWriter
from tidemark.worker.worker import Worker

DEFAULT_WINDOW = "3600"
MAX_DIGITS = 9
"""Digits of a window; a longer number is no window either."""
SECONDS_DIGITS = 6
MAX_MINUTES = 1440
"""Minutes of figures that wait for the store: a day, about 1 MB. Older ones are dropped."""
BATCH_MINUTES = 60
"""Minutes that are written at once."""
MINUTE_SECONDS = 60


class TrafficFeature(Feature):
    """Adds up the figures of all requests, for the operator."""

    def __init__(self, worker: Worker) -> None:
        store, metrics = RedisTraffic(worker.store.ask), worker.metrics
        self._operator = worker.operator
        self._counter = TrafficCounter(store, time.time, metrics.hand_over, metrics.state.add_store_time)
        metrics.give_traffic_to(self._counter.add)
        self.reader = TrafficReader(store, self._counter.settle, time.time)

    def routes(self) -> Sequence[BaseRoute]:
        return TrafficEndpoints(self.reader, self._operator).routes()

    async def aclose(self) -> None:
        """Write the figures that wait."""
        await self._counter.aclose()


@frozen
class TrafficEndpoints:
    """Serves the figures."""

    reader: TrafficReader
    access: OperatorAccess

    def routes(self) -> list[BaseRoute]:
        return [Route("/tidemark/stats", with_error_envelope(self._stats), methods=["GET"])]

    async def _stats(self, request: Request) -> Response:
        self.access.require_reader(request)
        windows = request.query_params.getlist("window") or [DEFAULT_WINDOW]
        traffic = await self.reader.read(_seconds(windows))
        return to_json(_described(traffic))


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
    return {"window": traffic.window_seconds, **_figures(traffic.total), "series": series}


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
        "overhead_seconds": {"p50": _quantile(figures, 0.5), "p95": _quantile(figures, 0.95)},
    }


def _quantile(figures: TrafficFigures, share: float) -> float | None:
    seconds = figures.overhead_quantile(share)
    return None if seconds is None else round(seconds, SECONDS_DIGITS)


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
        self._batch: dict[int, TrafficFigures] = {}
        self._waiting: dict[int, TrafficFigures] = {}
        self._lock = asyncio.Lock()
        self._patient_writer = PatientWriter(self._write, lambda: bool(self._batch or self._waiting))

    def add(self, figures: TrafficFigures) -> None:
        """Count figures for the current minute; a task of its own writes them."""
        minute = int(self._clock()) // MINUTE_SECONDS
        waiting = self._waiting.setdefault(minute, TrafficFigures())
        waiting.add(figures)
        if len(self._waiting) > MAX_MINUTES:
            del self._waiting[min(self._waiting)]
        self._patient_writer.begin()

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
                    for minute in sorted(self._waiting)[:BATCH_MINUTES]:
                        self._batch[minute] = self._waiting.pop(minute)
                with suppress(RecordUnreadable):  # another version's key: the same batch would fail again
                    started = self._timer()
                    await self._store.add(self._writer, self._number, self._batch)
                    self._on_written(self._timer() - started)
                self._batch = {}
