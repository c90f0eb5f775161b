"""The port of time: the core and the flow have no clock of their own, so ``app`` gives them one."""

from __future__ import annotations

from collections.abc import Callable

Clock = Callable[[], float]
"""Returns a time in seconds: Unix time, or a monotonic one for durations."""
