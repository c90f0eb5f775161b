"""Log lines about clients, so few that clients cannot fill the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

QUIET_SECONDS = 10.0
"""Between two lines of one kind: as between those of ``store.degraded``."""


class Notices:
    """The notices of one worker. Mutable: when each kind was last logged, and how often it came since."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._log = logging.getLogger("tidemark.serving")
        self._logged_at: dict[str, float] = {}
        self._omitted: dict[str, int] = {}

    def warn(self, kind: str, message: str) -> None:
        """Log a warning, unless one of its kind has just been logged; the next line says how many were left out."""
        now = self._clock()
        if now - self._logged_at.get(kind, -QUIET_SECONDS) < QUIET_SECONDS:
            self._omitted[kind] = self._omitted.get(kind, 0) + 1
            return
        self._logged_at[kind] = now
        omitted = self._omitted.pop(kind, 0)
        self._log.warning("%s%s", message, f" ({omitted} more since the last such line)" if omitted else "")
