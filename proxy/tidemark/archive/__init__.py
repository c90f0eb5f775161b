"""Stored conversations: read, searched, exported, imported, summarized by hand and deleted."""

from __future__ import annotations

from tidemark.archive.access import ArchiveAccess
from tidemark.archive.context import ContextView
from tidemark.archive.finding import ConversationFinder
from tidemark.archive.pages import Page
from tidemark.archive.reading import ConversationReader
from tidemark.archive.standing_summaries import StandingSummaries
from tidemark.archive.transfer import Transfer

__all__ = [
    "ArchiveAccess",
    "ContextView",
    "ConversationFinder",
    "ConversationReader",
    "Page",
    "StandingSummaries",
    "Transfer",
]
