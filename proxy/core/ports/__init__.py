"""What the flow needs from the world, as protocols; adapters implement them, ``app`` brings both together."""

from __future__ import annotations

from .counting import RequestCount, Stored, TokenCounter
from .flushing import ConsumerState, DeadLetter, FlushEntry, FlushQueue, MemoryFlush, QueueState
from .searching import Hit, Searchable, Searches
from .store import (
    BegunTurn,
    CalibrationStore,
    ConversationStore,
    Forgets,
    Lease,
    LeaseStore,
    LessonStore,
    ModelStore,
    TurnStore,
)
from .summarizing import Summarizer, SummaryTask
from .upstream import Caller, Headers, Lane, ModelCatalog, Route, Upstream, UpstreamReply

__all__ = [
    "BegunTurn",
    "CalibrationStore",
    "Caller",
    "ConsumerState",
    "ConversationStore",
    "DeadLetter",
    "FlushEntry",
    "FlushQueue",
    "Forgets",
    "Headers",
    "Hit",
    "Lane",
    "Lease",
    "LeaseStore",
    "LessonStore",
    "MemoryFlush",
    "ModelCatalog",
    "ModelStore",
    "QueueState",
    "RequestCount",
    "Route",
    "Searchable",
    "Searches",
    "Stored",
    "Summarizer",
    "SummaryTask",
    "TokenCounter",
    "TurnStore",
    "Upstream",
    "UpstreamReply",
]
