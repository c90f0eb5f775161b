"""Stores the figures of all requests, in one hash for each period of each level.

``features/traffic/feature.py`` adds a worker's figures about once a second, and ``features/traffic/traffic_reader.py``
reads windows. All keys share one hash tag, so that one script may touch them all. ADR 0021 gives the reasons.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tidemark.core.traffic import COUNTS, LEVELS, TrafficFigures, TrafficLevel
from tidemark.store import keys
from tidemark.store.commands import Ask

NUMBER_SECONDS = 86_400
"""How long the number of a worker's last batch is stored."""
_FOLDER = Path(__file__).with_name("lua")
_ADD, _READ = ((_FOLDER / f"traffic_{name}.lua").read_text("utf-8") for name in ("add", "read"))
_LEVELS = [part for level in LEVELS for part in (level.name, level.seconds // 60, level.keep_seconds)]
_COUNTS = {name.encode(): name for name in COUNTS}
_OVERHEAD = b"o"
"""The first letter of the fields of overheads; their place among the bounds follows."""


class RedisTraffic:
    """The figures in Redis. All state is the server's.

    Both methods raise ``StoreUnavailable`` if the store does not answer in time.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def add(self, writer: str, number: int, minutes: Mapping[int, TrafficFigures]) -> None:
        """Add a worker's figures, at every level. A batch that is sent again adds nothing.

        :param writer: the worker's name among all workers
        :param number: the batch's number, greater than that of the worker's batch before
        :param minutes: figures by minute since 1970
        """
        amounts: list[str | int] = []
        for minute, figures in minutes.items():
            for name in COUNTS:
                if count := getattr(figures, name):
                    amounts += (minute, name, count)
            for place, count in enumerate(figures.overheads):
                if count:
                    amounts += (minute, f"o{place}", count)
        head = (keys.TRAFFIC, writer, number, NUMBER_SECONDS, len(LEVELS), *_LEVELS)
        await self._ask("EVAL", _ADD, 1, *head, *amounts)

    async def read(self, level: TrafficLevel, first: int, last: int) -> Mapping[int, TrafficFigures]:
        """Return the figures of the periods from ``first`` to ``last``; those without any are left out.

        :param first: periods of this level since 1970
        """
        periods = await self._ask("EVAL", _READ, 1, keys.TRAFFIC, level.name, first, last)
        return {int(period): _figures(flat) for period, flat in periods}


def _figures(flat: Sequence[bytes]) -> TrafficFigures:
    """Return the figures of a hash; fields of a newer version are left out."""
    figures = TrafficFigures()
    for field, count in zip(flat[::2], flat[1::2], strict=True):
        name = _COUNTS.get(field)
        if name is not None:
            setattr(figures, name, int(count))
        elif field[:1] == _OVERHEAD and field[1:].isdigit() and int(field[1:]) < len(figures.overheads):
            figures.overheads[int(field[1:])] = int(count)
    return figures
