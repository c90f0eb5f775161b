"""``/console``: what Tidemark did with the requests of the last hour, day or week, and the newest compactions.

It shows the same figures as ``GET /tidemark/stats``, of all requests, a model or a tenant; to a tenant its own. While
nothing has come yet, it says how to send a request.

Its plots are coordinates of figures over time; ``templates/plot.html`` writes them as SVG. A plot has at most two
series, which differ in dash as well as in colour, and further figures that are read with them and not drawn.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from typing import Literal
from urllib.parse import urlencode

from starlette.responses import Response

from tidemark.console.pages import HOME, Answer, is_encrypted
from tidemark.console.rendering import write_figure, write_instant
from tidemark.console.requests import records_of
from tidemark.console.visit import Visit
from tidemark.core.bill import BillFigures
from tidemark.core.errors import InvalidRequest
from tidemark.core.frozen import frozen
from tidemark.core.traffic import OTHER, Traffic
from tidemark.features.bill.reader import Gain, GainReader
from tidemark.features.conversations.conversation_reader import ConversationReader
from tidemark.features.conversations.pages import Page
from tidemark.features.request_log.reader import LoggedRequest, RequestConditions, RequestLogReader
from tidemark.features.traffic.store import Part
from tidemark.features.traffic.traffic_reader import TrafficReader

WINDOWS: Mapping[str, tuple[str, int]] = {
    "hour": ("Last hour", 3600),
    "day": ("Last day", 86_400),
    "week": ("Last week", 604_800),
}
"""By the page's parameter ``window``: the words, and the seconds."""
KINDS: Mapping[str, Literal["m", "t"]] = {"model": "m", "tenant": "t"}
"""What stands before the colon in the page's parameter ``of``, whose other part is a name."""
_NAME_CHARACTERS = 8
"""Of a tenant without a name."""
_MEDIAN = 0.5
_TAIL = 0.95
WIDTH = 1000
HEIGHT = 100
"""Units of the drawing, which is as wide and as high as the page has space for."""
COMPACTIONS = 8
"""The newest compactions that are listed."""
_DAY_SECONDS = 86_400
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
OWN = 200
"""A tenant's newest conversations, whose bills its page adds up."""
MONEY_DAYS = 7
"""The days of the plot of money, whichever window is chosen: the bill has days only."""
_ROUND_STEPS = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)


@frozen
class OverviewPages:
    """Shows the figures."""

    reader: TrafficReader
    gains: GainReader
    conversations: ConversationReader
    requests: RequestLogReader

    def answers(self) -> Sequence[tuple[str, str, Answer]]:
        return [("GET", HOME, self._show)]

    async def _show(self, visit: Visit) -> Response:
        if visit.visitor.role == "tenant":
            return await self._own(visit)
        name, part = window_of(visit), part_of(visit.parameter("of"))
        traffic = await self.reader.read(WINDOWS[name][1], part)
        total, model = traffic.total, part.name if part and part.kind == "m" else ""
        gain = None if part and not model else await self.gains.read(MONEY_DAYS, "day", model)
        compactions = await self._compactions(part)
        return visit.page(
            "overview.html",
            windows=WINDOWS,
            chosen=name,
            of=visit.parameter("of"),
            choices=choices_of(traffic, part, self.reader.tenant_names()),
            log=log_of(part),
            total=total,
            per_minute=60 * total.requests / traffic.window_seconds,
            first_byte=(total.first_byte_quantile(_MEDIAN), total.first_byte_quantile(_TAIL)),
            added=(total.overhead_quantile(_MEDIAN), total.overhead_quantile(_TAIL)),
            money=gain and gain.total,
            plots=plots_of(traffic),
            money_plot=gain and money_plot(gain),
            compactions=compactions,
            names={one.id: one.name for one in await records_of(self.conversations, visit, compactions or ())},
            is_new=not part and not total.requests and await self._is_new(visit),
            base=base_of(visit),
        )

    async def _compactions(self, part: Part | None) -> Sequence[LoggedRequest] | None:
        """Return the newest compactions of a part; None of models or tenants that the log does not tell apart."""
        if part is not None and part.name == OTHER:
            return None
        conditions = RequestConditions(kind="compacted,forced", model=part.name if part and part.kind == "m" else "")
        owner = part.name if part and part.kind == "t" else None
        return (await self.requests.page(COMPACTIONS, None, conditions, owner)).requests

    async def _is_new(self, visit: Visit) -> bool:
        """Return whether neither a request nor a conversation is known."""
        if (await self.requests.page(1, None)).requests:
            return False
        is_auditor = visit.visitor.role == "auditor"
        return is_auditor or not (await self.conversations.conversations(visit.caller, Page(1))).conversations

    async def _own(self, visit: Visit) -> Response:
        """Show a tenant what its newest conversations saved, with its plots, and nothing of anybody else."""
        name, part = window_of(visit), Part("t", visit.visitor.owner)
        newest = await self.conversations.conversations(visit.caller, Page(OWN))
        bills = await asyncio.gather(*(self.conversations.bill(record.id) for record in newest.conversations))
        total = BillFigures()
        for bill in bills:
            if bill is not None:
                total.add(bill)
        count = len(newest.conversations)
        return visit.page(
            "own.html",
            windows=WINDOWS,
            chosen=name,
            plots=plots_of(await self.reader.read(WINDOWS[name][1], part)),
            count=count,
            is_partial=newest.next_cursor is not None,
            bill=total,
            base=base_of(visit),
        )


def window_of(visit: Visit) -> str:
    """Return the window that a visit asks for.

    :raises InvalidRequest: it is none of ``WINDOWS``
    """
    name = visit.parameter("window") or "hour"
    if name not in WINDOWS:
        raise InvalidRequest("'window' must be hour, day or week.", param="window")
    return name


def part_of(text: str) -> Part | None:
    """Return whose requests a page shows; None for all.

    :raises InvalidRequest: the text names neither a model nor a tenant
    """
    if not text:
        return None
    kind, _, name = text.partition(":")
    if kind not in KINDS or not name:
        raise InvalidRequest("'of' must be model: or tenant: with a name.", param="of")
    return Part(KINDS[kind], name)


def choices_of(traffic: Traffic, part: Part | None, names: Mapping[str, str]) -> Mapping[str, Mapping[str, str]]:
    """Return what the page offers: models, and tenants by their names, each by its value of ``of``.

    :param names: names of tenants by their owners
    """
    words: Mapping[str, tuple[Sequence[str], Callable[[str], str]]] = {
        "model": (traffic.models, lambda model: model),
        "tenant": (traffic.tenants, lambda owner: names.get(owner) or owner[:_NAME_CHARACTERS]),
    }
    choices = dict[str, dict[str, str]]()
    for kind, (known, word) in words.items():
        chosen = {part.name} if part and part.kind == KINDS[kind] else set[str]()
        named = {f"{kind}:{name}": word(name) for name in {*known, *chosen} - {OTHER}}
        choices[kind] = dict(sorted(named.items(), key=lambda choice: choice[1].casefold()))
        if OTHER in {*known, *chosen}:
            choices[kind][f"{kind}:{OTHER}"] = "All others"
    return choices


def log_of(part: Part | None) -> str:
    """Return the address of the log with the same requests."""
    if part is None or part.name == OTHER:
        return f"{HOME}/requests"
    return f"{HOME}/requests?{urlencode({'model' if part.kind == 'm' else 'tenant': part.name})}"


def base_of(visit: Visit) -> str:
    """Return the address of this server, as the visitor's browser has it."""
    request = visit.request
    return f"{'https' if is_encrypted(request) else 'http'}://{request.url.netloc}"


def plots_of(traffic: Traffic) -> Sequence[Plot]:
    """Return the plots of a window."""
    figures = [point.figures for point in traffic.points]
    starts = [point.start for point in traffic.points]

    def counts(names: Mapping[str, str]) -> Sequence[Series]:
        return [Series(words, [getattr(figure, name) for figure in figures]) for name, words in names.items()]

    return [
        Plot(
            "Tokens",
            "count",
            starts,
            counts({"tokens_before": "Sent by clients", "tokens_after": "Forwarded"}),
            counts(
                {
                    "requests": "Requests",
                    "cached_tokens": "From the provider's cache",
                    "compacted": "Compacted",
                    "forced": "On request",
                    "failed": "Without a summary",
                }
            ),
            are_areas=True,
        ),
        Plot(
            "First byte of the provider",
            "seconds",
            starts,
            [
                Series("Half of the answers", [figure.first_byte_quantile(_MEDIAN) for figure in figures]),
                Series("95 %", [figure.first_byte_quantile(_TAIL) for figure in figures]),
            ],
            [
                Series("Added by Tidemark", [figure.overhead_quantile(_MEDIAN) for figure in figures], "seconds"),
                Series("95 % added at most", [figure.overhead_quantile(_TAIL) for figure in figures], "seconds"),
                *counts({"requests": "Requests"}),
            ],
        ),
    ]


def money_plot(gain: Gain) -> Plot:
    """Return the plot of what requests cost on each day, and would have cost uncompacted."""
    first = gain.first.toordinal() - _EPOCH_ORDINAL
    figures = list(gain.rows.values())
    return Plot(
        "Money by day",
        "usd",
        [(first + place) * _DAY_SECONDS for place in range(len(figures))],
        [
            Series("Uncompacted", [figure.uncompacted_usd for figure in figures]),
            Series("Paid", [figure.paid_usd for figure in figures]),
        ],
    )


@frozen
class Series:
    """One figure over time."""

    name: str
    values: Sequence[float | None]
    """One for each point, oldest first; None if there was nothing to measure."""
    unit: str = ""
    """Empty for that of the plot; of a series that is not drawn, a count."""


@frozen
class Plot:
    """A drawing of one or two series, with a table of the same figures."""

    title: str
    unit: str
    """``count``, ``seconds`` or ``usd``, which says how figures are written."""
    starts: Sequence[int]
    """The Unix time of each point, in seconds."""
    series: Sequence[Series]
    others: Sequence[Series] = ()
    """Figures that are read with the series, and not drawn."""
    are_areas: bool = False
    """Whether the space below both series is filled."""

    @property
    def id(self) -> str:
        """The plot's name in the page."""
        return "plot-" + self.title.lower().replace(" ", "-")

    @property
    def top(self) -> float:
        """The value at the upper edge: the smallest round number above all values that are drawn."""
        return _round_up(max((value for values in self._drawn() for value in values if value is not None), default=0))

    @property
    def edges(self) -> Sequence[int]:
        """Return the times that stand below the drawing: the first, the middle and the last one."""
        return [self.starts[0], self.starts[len(self.starts) // 2], self.starts[-1]] if self.starts else []

    @property
    def edge_form(self) -> str:
        """Return how those times are written: ``date`` if the plot has more than two days, else ``clock``."""
        return "date" if self.starts and self.starts[-1] - self.starts[0] > 2 * _DAY_SECONDS else "clock"

    @property
    def has_values(self) -> bool:
        """Whether there is anything but zeros to draw."""
        return any(value for line in self.series for value in line.values)

    @property
    def all_series(self) -> Sequence[tuple[Series, str]]:
        """Return everything that is read, each with its unit."""
        others = [(line, line.unit or "count") for line in self.others]
        return [*((line, self.unit) for line in self.series), *others]

    def paths(self) -> Sequence[str]:
        """Return the path of each series, as the attribute ``d`` has it; a gap stays where a value is missing."""
        return [self._path(values) for values in self._drawn()]

    def areas(self) -> Sequence[str]:
        """Return the path of the area below each series."""
        top = self.top  # once for all points: it looks at every value
        return [self._area(values, top) for values in self._drawn()] if self.are_areas else []

    def points(self) -> Sequence[tuple[str, str]]:
        """Return of each period its beginning and its figures in words, for whoever points at it."""
        lines = self.all_series
        return [
            (write_instant(start), ", ".join(_words(line, place, unit) for line, unit in lines))
            for place, start in enumerate(self.starts)
        ]

    def _area(self, values: Sequence[float | None], top: float) -> str:
        if not values:
            return ""
        points = [f"L{self._x(place)} {_y(value or 0, top)}" for place, value in enumerate(values)]
        return f"M{self._x(0)} {HEIGHT}{''.join(points)}L{self._x(len(values) - 1)} {HEIGHT}Z"

    def _drawn(self) -> Sequence[Sequence[float | None]]:
        """Return the values that are drawn: those of periods that are over, if one of them has any.

        The last period has only begun, and its few figures would look like a fall.
        """
        all_values = [line.values for line in self.series]
        is_cut = any(any(values[:-1]) for values in all_values)
        return [values[:-1] for values in all_values] if is_cut else all_values

    def _path(self, values: Sequence[float | None]) -> str:
        pieces, top = list[str](), self.top  # once for all points: it looks at every value
        is_drawing = False
        for place, value in enumerate(values):
            if value is not None:
                pieces.append(f"{'L' if is_drawing else 'M'}{self._x(place)} {_y(value, top)}")
                if not is_drawing:
                    pieces.append("h0.01")  # a point of its own is seen, too
            is_drawing = value is not None
        return "".join(pieces)

    def _x(self, place: int) -> str:
        steps = max(1, len(self.starts) - 1)
        return f"{WIDTH * place / steps:.1f}"


def _words(line: Series, place: int, unit: str) -> str:
    return f"{line.name} {write_figure(line.values[place], unit)}"


def _y(value: float, top: float) -> str:
    return f"{HEIGHT * (1 - min(1.0, value / (top or 1))):.1f}"


def _round_up(value: float) -> float:
    """Return the next of ``_ROUND_STEPS`` times a power of ten."""
    if value <= 0:
        return 1
    power = 10.0 ** math.floor(math.log10(value))
    return next(float(f"{step * power:.10g}") for step in _ROUND_STEPS if value <= step * power * (1 + 1e-9))
