"""Stored conversations read, searched, taken out, brought in and forgotten: beside the road of requests."""

from __future__ import annotations

from .context import Contexts
from .finding import ArchiveStore, Finding
from .pages import Page
from .reading import Reading
from .transfer import Transfer

__all__ = ["ArchiveStore", "Contexts", "Finding", "Page", "Reading", "Transfer"]
