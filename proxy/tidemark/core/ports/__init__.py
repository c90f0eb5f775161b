"""Ports: protocols that adapters implement. ``tidemark/app`` gives the adapters to the packages that use them."""

from __future__ import annotations

from tidemark.core.ports.clocks import Clock
from tidemark.core.ports.counting import RequestCount, Stored, TokenCounter
from tidemark.core.ports.flushing import ConsumerState, DeadLetter, FlushEntry, MemoryFlush, QueueState
from tidemark.core.ports.quotas import Bound, QuotaStore, Taken, Use, UsedUp
from tidemark.core.ports.redacting import Redactor
from tidemark.core.ports.store import (
    AnswerStore,
    CalibrationStore,
    ConversationStore,
    DeletionHook,
    KeptAnswer,
    KeptConversationStore,
    Lease,
    LeaseStore,
    OwnerStore,
    RequestHeads,
    ResponseStore,
    StartedTurn,
    StoreIdentity,
    TurnStore,
)
from tidemark.core.ports.summarizing import AskProvider, ChooseSummarizer, Summarizer, SummaryTask, WriteReceipt
from tidemark.core.ports.upstream import (
    NO_CREDENTIAL,
    Authenticator,
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
