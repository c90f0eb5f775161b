"""Records of a conversation: what the pipeline reads from the store, and what a finished turn adds to it.

The store returns a ``ConversationState`` before a request is forwarded, in one round trip. The pipeline writes a
``TurnRecord`` when the response has ended, in one write.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Literal

from tidemark.core.conversation.echoes import ChangedEcho
from tidemark.core.conversation.messages import Message, digest_of
from tidemark.core.conversation.prefix import OWN_CHARACTERS, PrefixChain, conversation_id
from tidemark.core.conversation.responses import ResponseRecord
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.frozen import frozen

Keep = Literal["none", "summaries", "all"]
"""What is stored of a request (``keeping.py``), from the strictest on."""


@frozen
class ConversationState:
    """What is stored of a request's conversation before the request is forwarded."""

    conversation: str | None = None
    """The id of the conversation that the request continues; None when nothing of it is stored."""
    stored_count: int = 0
    """How many leading non-system messages of the request are stored already."""
    diverges: bool = False
    """Whether that conversation has other messages after ``stored_count``, so that this turn begins a fork."""
    summary: PrefixSummary | None = None
    """The newest stored summary whose prefix is a prefix of the request."""
    prepared: PrefixSummary | None = None
    """A prepared summary that is not in use yet; it stands for a longer prefix than ``summary``."""
    preparing_count: int = 0
    """How many messages the summary in preparation will stand for; 0 when none is in preparation."""
    preparing_absorbed: tuple[bytes, ...] = ()
    """Digests of the system messages that the summary in preparation absorbs."""
    preparing_lease: str = ""
    """The name of the preparation's lease: the second part of the id of this conversation or of its parent."""
    degraded: bool = False
    """Whether the store did not answer; then the fields above say nothing."""
    unwritable: bool = False
    """Whether the store takes no writes now. The fields above are right, but this turn will not be stored."""
    full: bool = False
    """Whether nothing more is stored for the caller."""
    bindings: bytes = b""
    """What thinking of the conversation is bound to, oldest first: keys and prefixes of ``KEY_BYTES`` each
    (``pipeline/bound_thinking.py``). Thinking without an entry is bound to the client's own bytes."""
    echo: ChangedEcho | None = None
    """Present if the request repeats messages of the conversation in other words, after ``stored_count``."""
    prompt_record: bytes = b""
    """What was sent before the messages, and what was told of its changes (``sent_prompts.py``); empty in
    conversations of earlier versions."""
    updated_at: float = 0.0
    """When the conversation's newest turn was stored, Unix time in seconds; 0 if nothing is."""

    def repeating(self, echo: ChangedEcho) -> ConversationState:
        """Return the state of a request that goes on with a conversation although its wording differs."""
        prompt_record = self.prompt_record if echo.conversation == self.conversation else b""
        return replace(self, conversation=echo.conversation, diverges=False, echo=echo, prompt_record=prompt_record)


def response_conversation_id(conversation_state: ConversationState, chain: PrefixChain, now: float) -> str:
    """Return the conversation id for a request's response headers, which are sent before the reply is complete.

    A request that continues a stored conversation has its id; any other begins a conversation after the last stored
    message. A request that was answered before (a retry, a regeneration) differs in its reply only, so its id is made
    of the time.

    :param now: Unix time, seconds
    """
    if conversation_state.conversation is not None and not conversation_state.diverges:
        return conversation_state.conversation
    if conversation_state.diverges and conversation_state.stored_count == len(chain):
        return chain.family + digest_of(chain.tip, repr(now).encode()).hex()[:OWN_CHARACTERS]
    return conversation_id(chain, conversation_state.stored_count)


@frozen
class TurnRecord:
    """Everything that one turn adds to the store, in one write when the response has ended."""

    tenant: str
    conversation: str
    """The id that the client got in the response headers."""
    chain: PrefixChain
    """The chain over the request's messages and, once the turn is ``complete``, the reply."""
    stored_count: int
    """How many leading non-system messages are stored already, so that they are not written again."""
    messages: Sequence[Message]
    """All messages of the request in order, with its system messages; a complete reply is the last one."""
    tokens: Sequence[int]
    """Tokens of each of ``messages``, counted locally (FR-1.1.2)."""
    complete: bool
    """Whether the reply came to its end; an incomplete one is not among ``messages``."""
    model: str
    action: str
    tokens_before: int
    tokens_after: int
    summarized: int
    created_at: float
    scheme: str = ""
    """The mark of the rules that ``tokens`` were counted by. Another worker with the same rules reuses the counts."""
    usage: Mapping[str, object] = field(default_factory=dict)
    """The provider's own counts, stored for monitoring only (FR-1.1.5)."""
    owner: str = ""
    """The owner whose list has the conversation; empty for the tenant's."""
    name: str = ""
    """The client's name for the conversation; empty if it gave none."""
    base_branch: str = ""
    """Stored history only: the second part of the id of the conversation that the turn continues."""
    lease_name: str = ""
    """Stored history only: the name of the turn's lease, which the write releases; empty if there is none."""
    lease_value: bytes = b""
    """The value of that lease."""
    imported: bool = False
    """Whether the conversation took place elsewhere, so that no upstream has answered here."""
    response: ResponseRecord | None = None
    """Present if the client may ask for the response again by its id."""
    echo: ChangedEcho | None = None
    """Present if the messages after ``stored_count`` take the place of stored ones."""
    max_output_tokens: int = 0
    """The longest reply that the request asks for, which its limit depends on; 0 if it names none."""
    left_out_count: int = 0
    """Stored history only: how many stored messages before ``messages`` were not read."""
    left_out_tokens: int = 0
    bindings: bytes = b""
    """What the turn adds to ``ConversationState.bindings``."""
    prompt_record: bytes = b""
    """What takes the place of ``ConversationState.prompt_record``; empty if that stays."""
    keep: Keep = "all"
    """What of the turn is stored."""
    sender: str = ""
    """The request's dialect and the program that sent it, with a space between; empty if there was no request."""

    def with_reply(self, reply: Message, tokens: int, usage: Mapping[str, object]) -> TurnRecord:
        """Return the record of the same turn with its complete reply.

        Every turn makes one, so the arguments are positional: ``replace`` would look up each field by name, which
        costs more than to make the record.
        """
        return TurnRecord(
            self.tenant,
            self.conversation,
            self.chain.extended([reply]),
            self.stored_count,
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
            self.base_branch,
            self.lease_name,
            self.lease_value,
            self.imported,
            self.response,
            self.echo,
            self.max_output_tokens,
            self.left_out_count,
            self.left_out_tokens,
            self.bindings,
            self.prompt_record,
            self.keep,
            self.sender,
        )

    def with_response(self, response: ResponseRecord) -> TurnRecord:
        """Return the record of the same turn with what is stored of its response; positional as ``with_reply`` is."""
        return TurnRecord(
            self.tenant,
            self.conversation,
            self.chain,
            self.stored_count,
            self.messages,
            self.tokens,
            self.complete,
            self.model,
            self.action,
            self.tokens_before,
            self.tokens_after,
            self.summarized,
            self.created_at,
            self.scheme,
            self.usage,
            self.owner,
            self.name,
            self.base_branch,
            self.lease_name,
            self.lease_value,
            self.imported,
            response,
            self.echo,
            self.max_output_tokens,
            self.left_out_count,
            self.left_out_tokens,
            self.bindings,
            self.prompt_record,
            self.keep,
            self.sender,
        )


REDACTED = "redacted"
"""Stands in the place of the counting rules of a redacted message: its tokens are those of the client's own."""


@frozen
class MessageRecord:
    """One message as it was stored (FR-4.1)."""

    position: int
    """1 for the first non-system message of the conversation."""
    message_id: str
    """Hex of the chain hash at ``position``."""
    raw: bytes
    tokens: int
    created_at: float
    scheme: str = ""
    """The mark of the rules that ``tokens`` were counted by."""
    unreadable: str = ""
    """Why the record cannot be read, for the log. Such a message has a position and no bytes."""


@frozen
class ConversationRecord:
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
    """The conversation that this one is a fork of."""
    parent_messages: int = 0
    """How many messages this conversation shares with its parent."""
    owner: str = ""
    """The owner: the credential that began the conversation."""
    name: str = ""
    """The client's name for the conversation."""
    sender: str = ""
    """``TurnRecord.sender`` of the newest request; empty in records of earlier versions."""
    cache_breaks: tuple[str, ...] = ()
    """Which parts of its earlier requests the client changed, in words that quote nothing; oldest first."""
    lost_reply_position: int = 0
    """The position of the newest reply that was reported to its client as lost; 0 for none."""
    broken: tuple[str, ...] = ()
    """The record's fields whose stored numbers cannot be read; they are 0 here."""

    @property
    def dialect(self) -> str:
        """The dialect of the newest request; empty if it is not known."""
        return self.sender.partition(" ")[0]

    @property
    def client(self) -> str:
        """The program that sent the newest request, as it names itself; empty if it is not known."""
        return self.sender.partition(" ")[2]
