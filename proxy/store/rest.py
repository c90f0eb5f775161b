"""Rest: a store that failed is left alone, so that a dead Redis slows no request down, until a probe has an answer.

Read by ``asking.py`` before it touches the network, and told how each call went; ``probing.py`` ends it. It has no
clock. The rules: ``docs/adr/0015-outages-of-the-store.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable


def _nobody() -> None:
    return


class Rest:
    """Whether the store is left alone, and whether it takes writes.

    Its state: both of these, and when the last answer came.
    """

    def __init__(self, troubled: Callable[[], None] = _nobody) -> None:
        """:param troubled: called when there is something to probe for"""
        self.resting = False
        """Whether the last call that told found nobody there: nothing is asked but probes."""
        self.refusing = False
        """Whether the store answered and refused to write, and has taken no write since."""
        self._answered = -math.inf
        self._troubled = troubled

    @property
    def well(self) -> bool:
        """Whether the store answers, and takes writes as far as is known."""
        return not (self.resting or self.refusing)

    def failed(self) -> None:
        """Note that the store did not answer."""
        self.resting = True
        self._troubled()

    def refused(self) -> None:
        """Note that the store answered, and takes no writes."""
        self.refusing = True
        self._troubled()

    def succeeded(self, now_seconds: float) -> None:
        """Note that the store answered; whether it takes writes, only a write can tell."""
        self._answered = now_seconds
        self.resting = False

    def wrote(self) -> None:
        """Note that the store took a write."""
        self.refusing = False

    def answered(self) -> float:
        """When the store answered last; minus infinity where it never did."""
        return self._answered
