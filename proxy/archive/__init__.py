"""Stored conversations: read, searched, exported, imported, summarized by hand and deleted."""

from __future__ import annotations

from proxy.archive.access import ArchiveAccess
from proxy.archive.context import ContextView
from proxy.archive.finding import ConversationFinder
from proxy.archive.pages import Page
from proxy.archive.reading import ConversationReader
from proxy.archive.standing_summaries import StandingSummaries
from proxy.archive.transfer import Transfer

__all__ = [
    "ArchiveAccess",
    "ContextView",
    "ConversationFinder",
    "ConversationReader",
    "Page",
    "StandingSummaries",
    "Transfer",
]
