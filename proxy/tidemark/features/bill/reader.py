"""Reads what requests cost over the last days, by model or by day, for the operator.

``features/bill/feature.py`` renders it as JSON, and the console shows it. The store has the figures of all workers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Literal

from tidemark.core.bill import BillFigures
from tidemark.core.frozen import frozen
from tidemark.features.bill.counter import DAY_SECONDS
from tidemark.features.bill.store import RedisDays

By = Literal["model", "day"]
_EPOCH = date(1970, 1, 1)


@frozen
class Gain:
    """What the requests of some days cost."""

    first: date
    last: date
    """The last day, which is not over; in UTC."""
    total: BillFigures
    rows: Mapping[str, BillFigures]
    """By model, the dearest first; or by day, the first one first, also for those without requests."""


@frozen
class GainReader:
    """Reads days; holds no state."""

    store: RedisDays
    settle: Callable[[], Awaitable[None]]
    """Writes what this worker has not written yet."""
    clock: Callable[[], float]
    """Unix time in seconds."""

    async def read(self, days: int, by: By, only: str = "") -> Gain:
        """Return the figures of the last days, today's among them.

        :param days: from 1 on
        :param only: a model, whose requests are counted; empty for all
        :raises StoreUnavailable: the store did not answer in time
        """
        await self.settle()
        last = int(self.clock() // DAY_SECONDS)
        first = last - days + 1
        stored = await self.store.read(first, last)
        if only:
            stored = {place: figures for place, figures in stored.items() if place[1] == only}
        models = dict[str, BillFigures]()
        for (_, model), figures in stored.items():
            models.setdefault(model, BillFigures()).add(figures)
        total, by_day = BillFigures(), {_day(day): BillFigures() for day in range(first, last + 1)}
        for (day, model), figures in stored.items():
            # a model without a price saves no money, so that of its summaries is not missing in a sum
            counted = figures if models[model].has_money else replace(figures, unknown_summaries=0)
            total.add(counted)
            by_day[_day(day)].add(counted)
        dearest = sorted(models.items(), key=lambda row: (-(row[1].paid_usd or 0), -row[1].input, row[0]))
        rows = by_day if by == "day" else dict(dearest)
        return Gain(_EPOCH + timedelta(first), _EPOCH + timedelta(last), total, rows)


def _day(day: int) -> str:
    return datetime.fromtimestamp(day * DAY_SECONDS, UTC).date().isoformat()
