"""A breaker: a summarizer that has failed again and again is left alone for a while.

Beside the compaction on the road of a request; whoever asks a summarizer asks its breaker first. Three failures in a
row open it, for 5 s, then for twice as long each time up to 5 min; one probe then decides (docs/compaction.md).
No library is used: the ones there are know one fixed pause and keep their own clock.
"""

from __future__ import annotations

from dataclasses import dataclass

from proxy.core.events import BreakerState

STRIKES = 3
FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Breaker:
    """What is known of one summarizer's failures. Times are of one monotonic clock, in seconds."""

    failures: int = 0
    """In a row."""
    pause: float = 0.0
    """The present pause's length; 0 while closed."""
    until: float = 0.0
    """When the pause, or the probe's time, is over."""
    probing: bool = False

    def state(self, now: float) -> BreakerState:
        """What a caller meets: ``half_open`` lets one probe through."""
        if self.pause == 0:
            return "closed"
        return "half_open" if self.probing or now >= self.until else "open"

    def admits(self, now: float) -> bool:
        """Whether the summarizer may be asked. Who asks after a pause must say so first: ``probed``."""
        return self.pause == 0 or now >= self.until

    def left(self, now: float) -> float:
        """Seconds until somebody may ask again."""
        return max(self.until - now, 0.0) if self.pause else 0.0

    def probed(self, now: float, seconds: float) -> Breaker:
        """One asks after the pause; nobody else does within ``seconds``, the longest that it may take."""
        if self.pause == 0:
            return self
        return Breaker(self.failures, self.pause, now + seconds, probing=True)

    def failed(self, now: float) -> Breaker:
        """After one more failure; of those that were asked before a pause began, none prolongs it."""
        if self.pause and not self.probing and now < self.until:
            return self
        failures = self.failures + 1
        if failures < STRIKES:
            return Breaker(failures)
        pause = min(self.pause * 2, LONGEST_PAUSE_SECONDS) if self.pause else FIRST_PAUSE_SECONDS
        return Breaker(failures, pause, now + pause)

    def abandoned(self, now: float) -> Breaker:
        """After a probe that was given up before it told anything: somebody else may probe."""
        return Breaker(self.failures, self.pause, now) if self.probing else self

    def succeeded(self) -> Breaker:
        """After a success: all is forgotten."""
        return CLOSED


CLOSED = Breaker()
