"""Says when a process that ended by itself is started again: the embedded store, and the workers of ``serve``."""

from __future__ import annotations

SOUND_SECONDS = 10.0
"""A process that ran so long is started again at once. One that ended sooner has a cause that a start does not fix."""
FIRST_PAUSE_SECONDS = 0.5
LONGEST_PAUSE_SECONDS = 30.0
"""The pause before a start doubles from the first to this; the first start is at once."""
_MAX_DOUBLINGS = 8


class Restarts:
    """Counts the ends of one process in a row. Mutable."""

    def __init__(self) -> None:
        self.count = 0
        """How often it was started again since it last ran for long."""

    def pause_after(self, lived_seconds: float) -> float:
        """Note an end, and return the seconds until the next start.

        :param lived_seconds: since the start before
        """
        if lived_seconds > SOUND_SECONDS:
            self.count = 0
        pause = min(FIRST_PAUSE_SECONDS * 2 ** (self.count - 1), LONGEST_PAUSE_SECONDS) if self.count else 0.0
        self.count = min(self.count + 1, _MAX_DOUBLINGS)
        return pause
