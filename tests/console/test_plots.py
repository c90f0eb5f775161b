"""Plots of the overview: drawn in time that grows with their points, and not faster."""

from __future__ import annotations

from collections.abc import Iterator

from proxy.console.plots import Plot, Series


class Watched(list[float | None]):
    """Values that count how often somebody goes through all of them."""

    rounds = 0

    def __iter__(self) -> Iterator[float | None]:
        """Go through them."""
        self.rounds += 1
        return super().__iter__()


def test_a_plot_reads_its_values_a_few_times_only() -> None:
    """However many there are; a week has 168 points, and the upper edge is the same for all of them."""
    values = Watched(float(place) for place in range(168))
    plot = Plot("Requests", "count", list(range(168)), [Series("Requests", values)])
    assert (len(plot.paths()), plot.area()[:1]) == (1, "M")
    assert values.rounds < 10
