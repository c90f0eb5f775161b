"""Checks the settings of the memory flush before a server starts; it imports nothing of a worker."""

from __future__ import annotations

from tidemark.config import Settings
from tidemark.features.memory_flush.entry_points import installed_consumers


def check(settings: Settings) -> None:
    """Refuse consumers that cannot be used: here that is one message, and a failing worker would start again and again.

    :raises ConfigError: two of them have one name
    """
    section = settings.memory_flush
    if section.enabled and section.worker and section.entry_points:
        installed_consumers()
