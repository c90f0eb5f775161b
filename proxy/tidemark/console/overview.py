"""``/console``: what Tidemark did with all requests of the last hour, day or week.

It shows the same figures as ``GET /tidemark/stats``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.responses import Response

from tidemark.console.pages import HOME, Answer
from tidemark.console.plots import Plot, Series
from tidemark.console.visit import Visit
from tidemark.core.errors import InvalidRequest
from tidemark.core.frozen import frozen
from tidemark.core.traffic import Traffic, TrafficFigures
from tidemark.features.traffic.traffic_reader import TrafficReader

WINDOWS: Mapping[str, tuple[str, int]] = {
    "hour": ("Last hour", 3600),
    "day": ("Last day", 86_400),
    "week": ("Last week", 604_800),
}
"""By the page's parameter ``window``: the words, and the seconds."""
_MEDIAN = 0.5
_TAIL = 0.95


@frozen
class OverviewPages:
    """Shows the figures."""

    reader: TrafficReader

    def answers(self) -> Sequence[tuple[str, str, Answer]]:
        return [("GET", HOME, self._show)]

    async def _show(self, visit: Visit) -> Response:
        name = visit.parameter("window") or "hour"
        if name not in WINDOWS:
            raise InvalidRequest("'window' must be hour, day or week.", param="window")
        traffic = await self.reader.read(WINDOWS[name][1])
        total = traffic.total
        return visit.page(
            "overview.html",
            windows=WINDOWS,
            chosen=name,
            total=total,
            per_minute=60 * total.requests / traffic.window_seconds,
            median=total.overhead_quantile(_MEDIAN),
            tail=total.overhead_quantile(_TAIL),
            plots=plots_of(traffic),
        )


def plots_of(traffic: Traffic) -> Sequence[Plot]:
    """Return the plots of a window."""
    figures = [point.figures for point in traffic.points]
    starts = [point.start for point in traffic.points]

    def counts(title: str, *, has_bars: bool = False, **names: str) -> Plot:
        series = [Series(words, [getattr(figure, name) for figure in figures]) for name, words in names.items()]
        return Plot(title, "count", starts, series, has_bars)

    return [
        counts("Requests", requests="Requests"),
        counts("Tokens", tokens_before="Tokens in", tokens_saved="Tokens saved"),
        counts("Compactions", compacted="Compacted", forced="Forced"),
        counts("Failures", has_bars=True, failed="No summary", summarizer_failures="Summarizer"),
        counts("Provider cache hits", cached_tokens="Tokens from the provider's cache"),
        Plot(
            "Added latency",
            "seconds",
            starts,
            [Series("Median (p50)", _quantiles(figures, _MEDIAN)), Series("p95", _quantiles(figures, _TAIL))],
        ),
    ]


def _quantiles(figures: Sequence[TrafficFigures], share: float) -> Sequence[float | None]:
    return [figure.overhead_quantile(share) for figure in figures]
