"""What the store knows of a conversation, and what a finished turn adds to it.

Between the pipeline and the store: ``Recollection`` comes in with the one round trip before forwarding,
``TurnRecord`` goes out with the one write at the end of the response.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .messages import Message, digest_of
from .prefix import OWN_CHARACTERS, PrefixChain, conversation_id
from .summary import RunningSummary
from .values import value


@value
class Recollection:
    """What is known of a request's conversation before it is forwarded."""

    conversation: str | None = None
    """The id of the conversation that the request goes on with; None when nothing of it is stored."""
    known: int = 0
    """How many leading non-system messages of the request are stored already."""
    diverges: bool = False
    """Whether that conversation went on in another way after ``known``, so that this turn begins a fork."""
    summary: RunningSummary | None = None
    """The newest stored summary whose prefix is a prefix of the request."""
    prepared: RunningSummary | None = None
    """One that was made in the background, of a longer prefix than ``summary``, and waits for its use."""
    preparing: int = 0
    """How many messages the summary stands for that is being made in the background; 0 when none is."""
    preparing_name: str = ""
    """Of the lease that it is made under: the second part of a conversation's id, this one's or its parent's."""
    degraded: bool = False
    """Whether the store could not be asked; then nothing above is to be relied on."""
    full: bool = False
    """Whether nothing more is stored for the caller."""


def told_id(memory: Recollection, chain: PrefixChain, now: float) -> str:
    """The id that a client is told for a request, before its reply is known.

    The conversation that it goes on with, or the one that begins where it parts from what is stored. A request
    that was answered before (a retry, a regeneration) parts with its reply only, so its id is made of the time.
    """
    if memory.conversation is not None and not memory.diverges:
        return memory.conversation
    if memory.diverges and memory.known == len(chain):
        return chain.family + digest_of(chain.tip, repr(now).encode()).hex()[:OWN_CHARACTERS]
    return conversation_id(chain, memory.known)


@value
class TurnRecord:
    """All that one turn adds to the store; written at once, when the response has ended."""

    tenant: str
    conversation: str
    """The id that the client was told."""
    chain: PrefixChain
    """Of the request's messages and, once the turn is ``complete``, the reply."""
    known: int
    """How many leading non-system messages need not be written again."""
    messages: Sequence[Message]
    """All messages of the request in order, system messages among them, and the reply last."""
    tokens: Sequence[int]
    """Tokens of each of ``messages``, counted locally (FR-1.1.2)."""
    complete: bool
    """Whether the upstream's answer came to its end; an incomplete one is not among ``messages``."""
    model: str
    action: str
    tokens_before: int
    tokens_after: int
    summarized: int
    created_at: float
    scheme: str = ""
    """The mark of the rules that ``tokens`` were counted by, so that another worker can take them over."""
    usage: Mapping[str, object] = field(default_factory=dict)
    """The provider's own counts, kept for monitoring only (FR-1.1.5)."""
    owner: str = ""
    """Of the credential alone: whose list the conversation stands in. Empty: the tenant's."""
    name: str = ""
    """What the client calls the conversation; empty where it gave no name."""
    head: str = ""
    """Second part of the id of the conversation that the turn goes on from, where the client sent new messages only."""
    lease: str = ""
    """The name of the lease that such a turn is under; given back with the write. Empty where there is none."""
    held: bytes = b""
    """That lease's value."""
    imported: bool = False
    """Whether it was led elsewhere, so that no upstream has answered here."""

    def answered(self, reply: Message, tokens: int, usage: Mapping[str, object]) -> TurnRecord:
        """The record of the same turn whose answer came to its end.

        Written out and in the fields' order, since every turn is made so once: ``replace`` looks for each of the
        fields, and so many names cost more than the fields themselves.
        """
        return TurnRecord(
            self.tenant,
            self.conversation,
            self.chain.extended([reply]),
            self.known,
            (*self.messages, reply),
            (*self.tokens, tokens),
            True,  # noqa: FBT003 - complete
            self.model,
            self.action,
            self.tokens_before,
            self.tokens_after,
            self.summarized,
            self.created_at,
            self.scheme,
            usage,
            self.owner,
            self.name,
            self.head,
            self.lease,
            self.held,
            self.imported,
        )


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message as it is read back (FR-4.1)."""

    position: int
    """1 for the first non-system message of the conversation."""
    message_id: str
    """Hex of the chain hash at ``position``."""
    raw: bytes
    tokens: int
    created_at: float
    scheme: str = ""
    """The mark of the rules that ``tokens`` were counted by."""


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """The record of a conversation (S2-6)."""

    id: str
    tenant: str
    model: str
    message_count: int
    total_tokens: int
    summary_count: int
    turn_count: int
    created_at: float
    updated_at: float
    last_summary_at: float | None = None
    parent: str | None = None
    """The conversation this one forked from, and after how many messages."""
    parent_messages: int = 0
    owner: str = ""
    """Of the credential that it was made with."""
    name: str = ""
    """What the client calls it."""
