"""Rest: a store that failed is left alone, so that a dead Redis slows no request down, until a probe has an answer.

Read by ``asking.py`` before it touches the network, and told how each call went; ``probing.py`` ends it. It has no
clock. The rules: ``docs/adr/0015-outages-of-the-store.md``.
"""

from __future__ import annotations

import math
from collections.abc import Callable


def _nobody() -> None:
    return


class OutageBackoff:
    """Whether the store is left alone, and whether it takes writes.

    Its state: both of these, when the last answer came, and how long a large write may take that holds up the others.
    """

    def __init__(self, troubled: Callable[[], None] = _nobody) -> None:
        """:param troubled: called when there is something to probe for"""
        self.resting = False
        """Whether the last call that told found nobody there: nothing is asked but probes."""
        self.refusing = False
        """Whether the store answered and refused to write, and has taken no write since."""
        self._answered = -math.inf
        self._troubled = troubled
        self._writing_until = -math.inf

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

    def begin_large_write(self, until_seconds: float) -> None:
        """Expect a large write until then: what waits behind it on the same connection tells of no outage."""
        self._writing_until = max(self._writing_until, until_seconds)

    def end_large_write(self, until_seconds: float) -> None:
        """End that, where no other write may take longer."""
        if self._writing_until == until_seconds:
            self._writing_until = -math.inf

    def answered_last(self) -> float:
        """When the store answered last; minus infinity where it never did."""
        return self._answered

    def answered(self) -> float:
        """The same, or until when a large write holds it up."""
        return max(self._answered, self._writing_until)
