"""Stores what all requests cost, in one hash for each day.

``features/bill/counter.py`` adds a worker's figures, and ``features/bill/reader.py`` reads them. All keys share one
hash tag, so that one script may touch them all. A field is a figure's name, a space and the model's.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.core.bill import AMOUNTS, BillFigures
from tidemark.store import keys
from tidemark.store.commands import Ask
from tidemark.store.scripts import lua

NUMBER_SECONDS = 86_400
"""How long the number of a worker's last batch is stored."""
DAYS = 400
"""How long a day is stored."""
_ADD, _READ = lua(__file__, "bill_add"), lua(__file__, "bill_read")
_NAMES = frozenset(AMOUNTS)
DayFigures = Mapping[tuple[int, str], BillFigures]
"""Figures by day since 1970, in UTC, and model."""


class RedisDays:
    """The days in Redis. All state is the server's.

    Both methods raise ``StoreUnavailable`` if the store does not answer in time.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def add(self, writer: str, number: int, figures: DayFigures) -> None:
        """Add a worker's figures. A batch that is sent again adds nothing.

        :param writer: the worker's name among all workers
        :param number: the batch's number, greater than that of the worker's batch before
        """
        amounts: list[str | int] = []
        for (day, model), of_model in figures.items():
            for name in AMOUNTS:
                if amount := getattr(of_model, name):
                    amounts += (day, f"{name} {model}", amount)
        await self._ask("EVAL", _ADD, 1, keys.BILL, writer, number, NUMBER_SECONDS, DAYS * 86_400, *amounts)

    async def read(self, first: int, last: int) -> DayFigures:
        """Return the figures of the days from ``first`` to ``last``; fields of a newer version are left out."""
        figures: dict[tuple[int, str], BillFigures] = {}
        for day, flat in await self._ask("EVAL", _READ, 1, keys.BILL, first, last):
            for field, amount in zip(flat[::2], flat[1::2], strict=True):
                name, _, model = field.decode("utf-8", "replace").partition(" ")
                if name in _NAMES:
                    setattr(figures.setdefault((int(day), model), BillFigures()), name, int(amount))
        return figures
