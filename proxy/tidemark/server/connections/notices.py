"""Logs warnings about clients, at a rate at which clients cannot fill the log."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

QUIET_SECONDS = 10.0
"""The least time between two lines of one kind, as for ``store.degraded``."""


class Notices:
    """Logs the warnings of one worker. Mutable: when each kind was last logged, and how often it was omitted since."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._log = logging.getLogger("tidemark.serving")
        self._logged_at: dict[str, float] = {}
        self._omitted: dict[str, int] = {}

    def warn(self, kind: str, message: str) -> None:
        """Log a warning, unless its kind has just been logged; the next line of the kind counts the omitted ones."""
        now = self._clock()
        if now - self._logged_at.get(kind, -QUIET_SECONDS) < QUIET_SECONDS:
            self._omitted[kind] = self._omitted.get(kind, 0) + 1
            return
        self._logged_at[kind] = now
        omitted = self._omitted.pop(kind, 0)
        self._log.warning("%s%s", message, f" ({omitted} more since the last such line)" if omitted else "")
