"""Stored conversations read, searched, taken out, brought in and forgotten: beside the road of requests."""

from __future__ import annotations

from proxy.archive.context import ContextView
from proxy.archive.locate import ArchiveStore, ConversationLocator
from proxy.archive.pages import Page
from proxy.archive.reading import ConversationReader
from proxy.archive.transfer import Transfer

__all__ = ["ArchiveStore", "ContextView", "ConversationLocator", "ConversationReader", "Page", "Transfer"]
