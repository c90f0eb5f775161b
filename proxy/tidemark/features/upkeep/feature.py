"""Upkeep plugs nothing into a server: ``tidemark store`` reads and writes the store beside it (``commands.py``)."""

from __future__ import annotations

from tidemark.features.feature import Feature
from tidemark.worker.worker import Worker


class Upkeep(Feature):
    """Checks, exports and imports the store by commands alone."""

    def __init__(self, worker: Worker) -> None:
        """Take nothing of the worker."""
