"""Plots of the overview: drawn in time that grows with their points, and not faster."""

from __future__ import annotations

from collections.abc import Iterator

from tidemark.console.overview import Plot, Series


class Watched(list[float | None]):
    """Values that count how often somebody goes through all of them."""

    rounds = 0

    def __iter__(self) -> Iterator[float | None]:
        """Go through them."""
        self.rounds += 1
        return super().__iter__()


def test_a_plot_is_as_high_as_its_values_and_does_not_end_in_a_fall() -> None:
    """The upper edge is round; the period that has only begun is in the table alone, unless it is all there is."""
    for highest, top in ((0, 1), (1, 1), (21, 30), (270, 300), (0.0037, 0.004), (1_400, 1_500)):
        plot = Plot("Requests", "count", [0, 60, 120], [Series("Requests", [1.0 * highest, highest, 0.0])])
        assert plot.top == top
    begun = Plot("Requests", "count", [0, 60, 120], [Series("Requests", [5, 5, 900])])
    assert (begun.top, begun.paths()[0].count("L")) == (5, 1)
    first = Plot("Requests", "count", [0, 60, 120], [Series("Requests", [0, 0, 9])])
    assert (first.top, first.paths()[0].count("L")) == (10, 2)


def test_a_plot_reads_its_values_a_few_times_only() -> None:
    """However many there are; a week has 168 points, and the upper edge is the same for all of them."""
    values = Watched(float(place) for place in range(168))
    plot = Plot("Requests", "count", list(range(168)), [Series("Requests", values)], are_areas=True)
    assert (len(plot.paths()), plot.areas()[0][:1]) == (1, "M")
    assert values.rounds < 10


def test_a_point_is_read_with_what_is_not_drawn() -> None:
    """In words, each figure in its own unit; a period in which nothing was measured says so."""
    drawn, counted = Series("Half of the requests", [0.0015, None]), Series("Requests", [1200, 0])
    plot = Plot("Time added by Tidemark", "seconds", [0, 60], [drawn], [counted])
    assert plot.points() == [
        ("1970-01-01T00:00:00Z", "Half of the requests 1.5 ms, Requests 1,200"),
        ("1970-01-01T00:01:00Z", "Half of the requests \N{EN DASH}, Requests 0"),
    ]
