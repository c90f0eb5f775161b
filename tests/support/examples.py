"""How many examples a property is tested with."""

from __future__ import annotations

from hypothesis import settings

_ALL = 100
"""The examples of a property that states no number, if it is tested with all of its examples."""


def examples(count: int) -> int:
    """Return how many of a property's examples the profile in use tests: all of them, or the first third."""
    return max(count * min(settings().max_examples, _ALL) // _ALL, 1)
