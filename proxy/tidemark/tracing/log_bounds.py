"""Bounds what the exporter logs: a collector that is gone would fill the log with a line every few seconds.

``tracing.py`` puts the bound on the exporter's loggers once for each process.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

LOGGERS = ("opentelemetry.exporter.otlp.proto.http.trace_exporter", "opentelemetry.sdk._shared_internal")
"""What says that spans were not exported, and that the queue is full."""
PAUSE_SECONDS = 60.0


class LineBound(logging.Filter):
    """Lets one line a minute through, which counts those before it that were left out."""

    def __init__(self, timer: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._timer = timer
        self._quiet_until = float("-inf")
        self._left_out_count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = self._timer()
        if now < self._quiet_until:
            self._left_out_count += 1
            return False
        self._quiet_until = now + PAUSE_SECONDS
        if self._left_out_count:
            record.msg, record.args = f"{record.getMessage()} ({self._left_out_count} more lines were left out)", ()
            self._left_out_count = 0
        return True


def bound_lines() -> None:
    """Bound the lines of the exporter, unless they are bounded already."""
    for name in LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(bound, LineBound) for bound in logger.filters):
            logger.addFilter(LineBound())
