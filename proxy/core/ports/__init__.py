"""What the flow needs from the world, as protocols; adapters implement them, ``app`` brings both together."""

from __future__ import annotations

from proxy.core.ports.counting import RequestCount, Stored, TokenCounter
from proxy.core.ports.flushing import ConsumerState, DeadLetter, FlushEntry, FlushQueue, MemoryFlush, QueueState
from proxy.core.ports.searching import Hit, Searchable, Searches
from proxy.core.ports.store import (
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
from proxy.core.ports.summarizing import Summarizer, SummaryTask
from proxy.core.ports.upstream import Caller, Headers, Lane, ModelCatalog, Route, Upstream, UpstreamReply

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
