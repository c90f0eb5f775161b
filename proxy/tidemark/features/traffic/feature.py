"""Plugs in the figures of requests: ``/tidemark/stats``.

The endpoint gives the operator the figures of all requests over a window.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import InvalidRequest
from tidemark.core.frozen import frozen
from tidemark.core.traffic import MAX_WINDOW_SECONDS, MIN_WINDOW_SECONDS, Traffic, TrafficFigures
from tidemark.features.feature import Feature
from tidemark.features.traffic.counting import TrafficCounter
from tidemark.features.traffic.store import RedisTraffic
from tidemark.features.traffic.traffic_reader import TrafficReader
from tidemark.server.operator import OperatorAccess
from tidemark.server.responses import to_json, with_error_envelope
from tidemark.worker.worker import Worker

DEFAULT_WINDOW = "3600"
MAX_DIGITS = 9
"""Digits of a window; a longer number is no window either."""
SECONDS_DIGITS = 6


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
        self.access.require(request)
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
