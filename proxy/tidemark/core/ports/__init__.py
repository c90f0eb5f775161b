"""Ports: protocols that adapters implement. ``tidemark/app`` gives the adapters to the packages that use them."""

from __future__ import annotations

from tidemark.core.ports.answers import AnswerStore, KeptAnswer
from tidemark.core.ports.authenticating import Authenticator
from tidemark.core.ports.clocks import Clock
from tidemark.core.ports.counting import RequestCount, Stored, TokenCounter
from tidemark.core.ports.flushing import ConsumerState, DeadLetter, FlushEntry, MemoryFlush, QueueState
from tidemark.core.ports.owners import OwnerStore
from tidemark.core.ports.quotas import Bound, QuotaStore, Taken, Use, UsedUp
from tidemark.core.ports.redacting import Redactor
from tidemark.core.ports.responses import KeptConversationStore, ResponseStore
from tidemark.core.ports.store import (
    CalibrationStore,
    ConversationStore,
    DeletionHook,
    Lease,
    LeaseStore,
    RequestHeads,
    StartedTurn,
    StoreIdentity,
    TurnStore,
)
from tidemark.core.ports.summarizing import AskProvider, ChooseSummarizer, Summarizer, SummaryTask, WriteReceipt
from tidemark.core.ports.upstream import (
    NO_CREDENTIAL,
    Caller,
    ConfiguredMembers,
    Headers,
    Lane,
    ModelCatalog,
    Route,
    TextRequest,
    Upload,
    Upstream,
    UpstreamReply,
    members_left_out,
    shown_url,
)

__all__ = [
    "NO_CREDENTIAL",
    "AnswerStore",
    "AskProvider",
    "Authenticator",
    "Bound",
    "CalibrationStore",
    "Caller",
    "ChooseSummarizer",
    "Clock",
    "ConfiguredMembers",
    "ConsumerState",
    "ConversationStore",
    "DeadLetter",
    "DeletionHook",
    "FlushEntry",
    "Headers",
    "KeptAnswer",
    "KeptConversationStore",
    "Lane",
    "Lease",
    "LeaseStore",
    "MemoryFlush",
    "ModelCatalog",
    "OwnerStore",
    "QueueState",
    "QuotaStore",
    "Redactor",
    "RequestCount",
    "RequestHeads",
    "ResponseStore",
    "Route",
    "StartedTurn",
    "StoreIdentity",
    "Stored",
    "Summarizer",
    "SummaryTask",
    "Taken",
    "TextRequest",
    "TokenCounter",
    "TurnStore",
    "Upload",
    "Upstream",
    "UpstreamReply",
    "Use",
    "UsedUp",
    "WriteReceipt",
    "members_left_out",
    "shown_url",
]
