"""A circuit breaker for one summarizer: after three failures in a row it is not asked for a while.

``tidemark/compaction/writer.py`` asks it before each call to a summarizer. Three failures in a row open it for 5 s,
then for twice as long each time, up to 5 min. After a pause one probe decides (docs/compaction.md). No library is used:
each of them has one fixed pause and its own clock.

The store's outages have a mechanism of their own (``tidemark/store/connection/outage.py``), because they follow other
rules. A summary is slow and paid, so no call is made only as a probe: a request is the probe, and failed probes
become rarer. A single failure proves nothing, since a model may refuse one text and take the next.
"""

from __future__ import annotations

from tidemark.core.events import BreakerState
from tidemark.core.frozen import frozen

STRIKES = 3
FIRST_PAUSE_SECONDS = 5.0
LONGEST_PAUSE_SECONDS = 300.0


@frozen
class Breaker:
    """The recent failures of one summarizer. Times are of one monotonic clock, in seconds."""

    failures: int = 0
    """In a row."""
    pause: float = 0.0
    """The length of the present pause; 0 while closed."""
    until: float = 0.0
    """The end of the pause, or of the probe's time."""
    probing: bool = False

    def state(self, now: float) -> BreakerState:
        """Return what a caller meets; ``half_open`` allows one probe."""
        if self.pause == 0:
            return "closed"
        return "half_open" if self.probing or now >= self.until else "open"

    def admits(self, now: float) -> bool:
        """Whether the summarizer may be asked. After a pause the caller first stores ``with_probe``."""
        return self.pause == 0 or now >= self.until

    def seconds_left(self, now: float) -> float:
        """Return the seconds until the summarizer may be asked again."""
        return max(self.until - now, 0.0) if self.pause else 0.0

    def with_probe(self, now: float, seconds: float) -> Breaker:
        """Return the breaker during a probe: it admits no other call for ``seconds``, the longest that it may take."""
        if self.pause == 0:
            return self
        return Breaker(self.failures, self.pause, now + seconds, probing=True)

    def after_failure(self, now: float) -> Breaker:
        """Return the breaker after one more failure; calls from before a pause do not prolong it."""
        if self.pause and not self.probing and now < self.until:
            return self
        failures = self.failures + 1
        if failures < STRIKES:
            return Breaker(failures)
        pause = min(self.pause * 2, LONGEST_PAUSE_SECONDS) if self.pause else FIRST_PAUSE_SECONDS
        return Breaker(failures, pause, now + pause)

    def after_abandoned_probe(self, now: float) -> Breaker:
        """Return the breaker after a probe without a result: another call may probe at once."""
        return Breaker(self.failures, self.pause, now) if self.probing else self

    def after_success(self) -> Breaker:
        """Return the breaker after a success, which ends all pauses."""
        return CLOSED


CLOSED = Breaker()
