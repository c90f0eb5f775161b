"""Measures how the time of a function grows with its input; other load and the speed of the machine change little."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from math import log2

MOST_GROWTH = 1.5
"""Exponent of what is not linear: 1 is linear, 2 is the square."""


def growth_of(
    work: Callable[[int], object], sizes: Sequence[int], *, rounds: int = 8, most: float = MOST_GROWTH
) -> float:
    """Return the exponent by which the CPU time of ``work`` grows from the first size to the last.

    The least time of each size counts, because whatever else happens can only add to it. A growth that is too fast is
    measured again, for the same reason.
    """
    least = [float("inf")] * len(sizes)
    exponent = 0.0
    for _ in range(rounds):
        for place, size in enumerate(sizes):
            started = time.thread_time_ns()
            work(size)
            least[place] = min(least[place], time.thread_time_ns() - started + 1)
        exponent = log2(least[-1] / least[0]) / log2(sizes[-1] / sizes[0])
        if exponent < most:
            break
    return exponent
