"""Rest: after a failure the store is left alone for a while, so that a dead Redis slows no request down.

Asked by the adapter before it touches the network, told how it went afterwards. No clock of its own.
"""

from __future__ import annotations

import math

FIRST_SECONDS = 1.0
LONGEST_SECONDS = 10.0
"""Rest doubles from the first to this: a store that is back is noticed within ten seconds."""


class Rest:
    """When the store may be asked again.

    Its state: how long to rest, until when, whether one call probes, and when the last answer came.
    """

    def __init__(self) -> None:
        self._answered = -math.inf
        self._seconds = 0.0
        self._until = 0.0
        self._probing = False

    def admits(self, now_seconds: float) -> bool:
        """Whether the store may be asked; when a rest is over, one call goes first and others wait for it."""
        if now_seconds < self._until:
            return False
        if self._seconds:
            self._probing = True
            self._until = now_seconds + self._seconds
        return True

    def failed(self, now_seconds: float) -> None:
        """The store did not answer. Calls that were under way when the rest began do not lengthen it."""
        if self._seconds and not self._probing:
            return
        self._seconds = min(max(FIRST_SECONDS, 2 * self._seconds), LONGEST_SECONDS)
        self._until = now_seconds + self._seconds
        self._probing = False

    def succeeded(self, now_seconds: float) -> None:
        """The store answered."""
        self._answered = now_seconds
        self._seconds = self._until = 0.0
        self._probing = False

    def answered(self) -> float:
        """When the store answered last; minus infinity where it never did."""
        return self._answered
