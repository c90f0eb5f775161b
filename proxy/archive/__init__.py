"""Stored conversations read, searched, taken out, brought in and forgotten: beside the road of requests."""

from __future__ import annotations

from proxy.archive.context import Contexts
from proxy.archive.locate import ArchiveStore, Finding
from proxy.archive.pages import Page
from proxy.archive.reading import Reading
from proxy.archive.transfer import Transfer

__all__ = ["ArchiveStore", "Contexts", "Finding", "Page", "Reading", "Transfer"]
