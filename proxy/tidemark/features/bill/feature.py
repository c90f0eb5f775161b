"""Plugs in the bill: ``/tidemark/gain``, and the metrics in money.

The endpoint gives the operator what requests cost, what they would have cost uncompacted, and the difference.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidemark.core.bill import NANO, BillFigures, SavingOf, bill_json
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import InvalidRequest
from tidemark.core.events import Listener
from tidemark.features.bill.counter import BillCounter
from tidemark.features.bill.reader import By, GainReader
from tidemark.features.bill.store import DAYS, RedisDays
from tidemark.features.feature import Feature
from tidemark.server.responses import to_json, with_error_envelope
from tidemark.store.bills import RedisBills
from tidemark.telemetry.series import SeriesRegistry
from tidemark.worker.worker import Worker

DEFAULT_SINCE = "7d"
_SINCE = re.compile(r"([1-9][0-9]{0,3})d", re.ASCII)


class BillFeature(Feature):
    """Adds up what requests and summaries cost, and what they would have cost."""

    def __init__(self, worker: Worker) -> None:
        ask, series = worker.store.ask, BillSeries(worker.metrics.registry)
        days = RedisDays(ask)
        self._operator = worker.operator
        self._counter = BillCounter(days, RedisBills(ask), worker.catalog.price, time.time, series.count)
        worker.upstream.note_completions(self._counter.note_completion)
        worker.natives.note_usage(self._counter.note_usage)
        self.reader = GainReader(days, self._counter.settle, time.time)

    def routes(self) -> Sequence[BaseRoute]:
        return [Route("/tidemark/gain", with_error_envelope(self._gain), methods=["GET"])]

    def savings(self) -> Sequence[SavingOf]:
        return (self._counter.saving_of,)

    def listeners(self) -> Sequence[Listener]:
        return (self._counter.on_event,)

    async def aclose(self) -> None:
        await self._counter.aclose()

    async def _gain(self, request: Request) -> Response:
        self._operator.require_reader(request)
        days, by = _days(request.query_params.getlist("since")), _by(request.query_params.getlist("by"))
        gain = await self.reader.read(days, by)
        rows: list[JsonValue] = [{by: name, **bill_json(figures)} for name, figures in gain.rows.items()]
        dates: dict[str, JsonValue] = {"first": gain.first.isoformat(), "last": gain.last.isoformat()}
        return to_json({**dates, **bill_json(gain.total), "data": rows})


class BillSeries:
    """The series of money."""

    def __init__(self, registry: SeriesRegistry) -> None:
        self._usd = registry.counter(
            "bill_usd", "What requests and the models that write summaries cost.", ("model", "part")
        )
        self._uncompacted = registry.counter(
            "bill_uncompacted_usd", "What the same requests would have cost uncompacted.", ("model",)
        )

    def count(self, model: str, figures: BillFigures) -> None:
        """Add figures that were not counted before."""
        for part, nano in (("requests", figures.requests_nano), ("summaries", figures.summaries_nano)):
            if nano:
                self._usd.labels(model, part).inc(nano / NANO)
        if figures.uncompacted_nano:
            self._uncompacted.labels(model).inc(figures.uncompacted_nano / NANO)


def _days(texts: Sequence[str]) -> int:
    """Return the days of a query.

    :raises InvalidRequest: it is no number of days, or there are several
    """
    match = _SINCE.fullmatch(texts[0] if texts else DEFAULT_SINCE)
    if match is None or len(texts) > 1 or int(match[1]) > DAYS:
        message = f"since must be days from 1d to {DAYS}d, and is {', '.join(texts)[:40]!r}."
        raise InvalidRequest(message, param="since")
    return int(match[1])


def _by(texts: Sequence[str]) -> By:
    if len(texts) < 2:
        match texts[0] if texts else "model":
            case "model":
                return "model"
            case "day":
                return "day"
    raise InvalidRequest(f"by must be model or day, and is {', '.join(texts)[:40]!r}.", param="by")
