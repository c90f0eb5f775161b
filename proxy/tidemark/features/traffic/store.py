"""Stores the figures of requests by period: of all, of each model, of each tenant.

``features/traffic/feature.py`` adds a worker's figures about once a second, and ``features/traffic/traffic_reader.py``
reads windows. All keys share one hash tag, so that one script may touch them all. ADR 0021 gives the reasons, ADR 0048
those for models and tenants.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from tidemark.core.frozen import frozen
from tidemark.core.traffic import COUNTS, LEVELS, MAX_NAMES, OTHER, TIMES, TrafficCell, TrafficFigures, TrafficLevel
from tidemark.store import keys
from tidemark.store.commands import Ask
from tidemark.store.scripts import lua

NUMBER_SECONDS = 86_400
"""How long the number of a worker's last batch is stored."""
_ADD, _READ = lua(__file__, "traffic_add"), lua(__file__, "traffic_read")
_NAME_MINUTES = max(level.keep_seconds for level in LEVELS) // 60
_LEVELS = [part for level in LEVELS for part in (level.name, level.seconds // 60, level.keep_seconds)]
_HEAD = (NUMBER_SECONDS, MAX_NAMES, OTHER, _NAME_MINUTES, len(LEVELS), *_LEVELS)
_COUNTS = {name.encode(): name for name in COUNTS}
_TIMES = {name[:1].encode(): name for name in TIMES}
"""Figures of times, by the first letter of their fields; the place among the bounds follows."""


@frozen
class Part:
    """The requests of one model or one tenant."""

    kind: Literal["m", "t"]
    """``m`` for a model, ``t`` for a tenant, as the store's keys have it."""
    name: str


@frozen
class StoredTraffic:
    """What the store answers."""

    periods: Mapping[int, TrafficFigures]
    """Those without figures are left out."""
    models: Sequence[str]
    tenants: Sequence[str]


class RedisTraffic:
    """The figures in Redis. All state is the server's.

    Every method raises ``StoreUnavailable`` if the store does not answer in time.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def add(self, writer: str, number: int, cells: Mapping[TrafficCell, TrafficFigures]) -> None:
        """Add a worker's figures, at every level. A batch that is sent again adds nothing.

        :param writer: the worker's name among all workers
        :param number: the batch's number, greater than that of the worker's batch before
        """
        amounts: list[str | int] = []
        for cell, figures in cells.items():
            fields: list[str | int] = []
            for name in COUNTS:
                if count := getattr(figures, name):
                    fields += (name, count)
            for name in TIMES:
                for place, count in enumerate(getattr(figures, name)):
                    if count:
                        fields += (f"{name[0]}{place}", count)
            amounts += (*cell, len(fields) // 2, *fields)
        await self._ask("EVAL", _ADD, 1, keys.TRAFFIC, writer, number, *_HEAD, *amounts)

    async def read(self, level: TrafficLevel, first: int, last: int, part: Part | None = None) -> StoredTraffic:
        """Return the figures of the periods from ``first`` to ``last``, and the names that have some of their own.

        :param first: periods of this level since 1970
        :param part: None for all requests
        """
        row = f":{part.kind}:{part.name}" if part else ""
        first_minute = first * level.seconds // 60
        answer = await self._ask("EVAL", _READ, 1, keys.TRAFFIC, level.name, first, last, row, first_minute)
        periods, models, tenants = answer
        figures = {int(period): _figures(flat) for period, flat in periods}
        return StoredTraffic(figures, *(sorted(map(_text, names)) for names in (models, tenants)))

    async def tenants(self) -> Sequence[str]:
        """Return all tenants with figures of their own."""
        return [_text(name) for name in await self._ask("ZRANGE", f"{keys.TRAFFIC}:n:t", 0, -1)]


def _text(name: bytes) -> str:
    return name.decode("utf-8", "replace")


def _figures(flat: Sequence[bytes]) -> TrafficFigures:
    """Return the figures of a hash; fields of a newer version are left out."""
    figures = TrafficFigures()
    for field, count in zip(flat[::2], flat[1::2], strict=True):
        name = _COUNTS.get(field)
        if name is not None:
            setattr(figures, name, int(count))
            continue
        counts: list[int] = getattr(figures, _TIMES.get(field[:1], ""), [])
        if field[1:].isdigit() and int(field[1:]) < len(counts):
            counts[int(field[1:])] = int(count)
    return figures
