"""Ports of the store: conversations, turns, responses, leases and calibrations.

``tidemark/store/`` implements them over Redis; the pipeline, the compaction and the features use them.
If a docstring does not say otherwise, a method raises ``StoreUnavailable`` when the store did not answer in time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from tidemark.core.conversation.echoes import DivergingBranches
from tidemark.core.conversation.kept import KeptConversation, KeptHistory, KeptItem
from tidemark.core.conversation.prefix import PrefixChain
from tidemark.core.conversation.records import ConversationRecord, ConversationState, MessageRecord, TurnRecord
from tidemark.core.conversation.responses import ResponseRecord
from tidemark.core.conversation.summary import NO_SYSTEMS, InnerSystems, PrefixSummary, SummaryRecipe
from tidemark.core.frozen import frozen
from tidemark.core.planning.calibration import Calibration, CalibrationKey
from tidemark.core.ports.upstream import Headers
from tidemark.core.report import Report


class ConversationStore(Protocol):
    """The one store that all workers share (NFR-7.3, FR-4.3)."""

    async def recall(
        self, chain: PrefixChain, recipe: SummaryRecipe, systems: InnerSystems = NO_SYSTEMS
    ) -> ConversationState:
        """Return what is stored of a request's conversation, in one round trip most often; the chain holds its tenant.

        :param systems: the request's own; a summary that absorbed any other system message does not apply
        :raises StoreUnavailable: the store did not answer in time
        """
        ...

    async def branches(self, chain: PrefixChain, conversation: str, shared: int) -> DivergingBranches:
        """Return the conversations that go on otherwise after a chain's first messages, newest first.

        They are at most some thirty, and a conversation that the chain could not repeat as a whole is left out.

        :param conversation: the one that ``recall`` found
        :param shared: how many messages the chain shares with it, at least 1
        :raises StoreUnavailable: the store did not answer in time
        """
        ...

    async def record(self, turn: TurnRecord) -> str:
        """Append what a turn adds, in one atomic write; writing it twice changes nothing.

        A conversation that went on otherwise meanwhile is left as it is, and the turn becomes a fork of it. If the
        turn repeats answers in other words (``TurnRecord.echo``), its wording takes the place of the stored one.

        :returns: the id of the conversation that holds the turn now
        :raises StoreUnavailable: the store did not answer in time
        """
        ...

    async def keep_summary(
        self,
        tenant: str,
        conversation: str,
        chain: PrefixChain,
        summary: PrefixSummary,
        *,
        waiting: bool = False,
        lease: Lease | None = None,
        replacing: bool = False,
        upon: PrefixSummary | None = None,
        begun_at: float | None = None,
        owner: str = "",
        model: str = "",
    ) -> PrefixSummary | None:
        """Store a summary of the first ``summary.covered`` messages of ``chain``; of two for one prefix, the first.

        Summaries of one prefix that absorbed other system messages do not exclude each other.

        :param waiting: it is a prepared summary, which comes into use when it is stored once more without this
        :param lease: the lease under which it was made
        :param replacing: store it in place of another one, which stays as an earlier version
        :param upon: the summary that was in use when it was planned
        :param begun_at: when its compaction began, as Unix time in seconds; None for when it was made
        :returns: the one that is stored now; None if there is none and another worker has the lease by now
        :raises SummaryOutdated: a person has replaced ``upon`` since, or has had the conversation forgotten
        :raises StoreUnavailable: the store did not answer in time
        """
        ...

    async def summary(
        self,
        chain: PrefixChain,
        covered: int,
        recipe: SummaryRecipe,
        *,
        absorbed: Sequence[bytes] = (),
        waiting: bool = False,
    ) -> PrefixSummary | None:
        """Return the stored summary of the first ``covered`` messages of ``chain``, or None.

        :param absorbed: digests of exactly the system messages that it absorbs
        :param waiting: return the prepared summary that is not in use yet
        :raises StoreUnavailable: the store did not answer in time
        """
        ...

    async def conversation(self, conversation: str) -> ConversationRecord | None:
        """Return a conversation's record; None if there is none."""
        ...

    async def messages(self, conversation: str, *, start: int = 1, stop: int | None = None) -> Sequence[MessageRecord]:
        """Return the messages ``start`` to ``stop``, both included, a fork's earlier ones too (promise 6).

        A message that cannot be read keeps its place and has no bytes, and ``unreadable`` says why.
        """
        ...

    async def find_by_name(self, owner: str, name: str) -> str | None:
        """Return the id of the conversation that a credential's client calls by a name, or None."""
        ...

    async def message_ids(self, conversation: str, stop: int) -> Sequence[str]:
        """Return the ids of the messages up to position ``stop``, a fork's earlier ones too, oldest first."""
        ...

    async def originals(self, conversation: str) -> Mapping[int, MessageRecord]:
        """Return the answers that the client repeats in other words since, as they were answered, by position."""
        ...

    async def summaries(self, conversation: str) -> Sequence[PrefixSummary]:
        """Return all summaries of a conversation, oldest first."""
        ...

    async def ping(self) -> None:
        """Check by a write that the store answers and takes writes.

        :raises StoreUnavailable: the store does not answer, or refuses to write
        """
        ...


@frozen
class Lease:
    """The right of one worker to make a summary or a turn, for a limited time."""

    family: str
    name: str
    value: bytes
    """It differs each time the lease is taken, so the worker of an earlier lease is recognized (fencing)."""


@frozen
class StartedTurn:
    """A turn of a conversation whose history is the store's (``X-Tidemark-History: stored``)."""

    record: ConversationRecord | None
    """None if the conversation is yet to begin."""
    branch: str
    """The second part of the conversation's id."""
    lease: Lease | None
    """None if another turn is under way."""
    lost: str = ""
    """How many messages are lost, or ``unknown``, if the name leads to a conversation that has lost parts."""


class TurnStore(Protocol):
    """Turns of stored history."""

    async def start_turn(self, family: str, own: str, tenant: str, seconds: float) -> StartedTurn | None:
        """Take the turn of a conversation: of this id, or, if ``own`` is empty, of the family's name.

        The conversation that a name leads to may not exist yet.

        :returns: None if the id's conversation is another tenant's, or there is none
        """
        ...

    def give_up(self, turn: TurnRecord) -> None:
        """End a turn whose client was told that it is lost, as soon as the store answers.

        Its lease is free then. A write that arrives late becomes a fork. If the write arrived
        before, its answer counts as one that no client received: the same question is answered anew.
        """
        ...


class RequestHeads(Protocol):
    """The system messages that began the last request of a conversation."""

    async def with_missing(self, conversation: str) -> tuple[Sequence[bytes], str]:
        """Return those of one conversation, in the client's bytes, and how many of them are lost.

        That is a number, ``unknown`` if no turn is left, or nothing. Only the messages at the beginning are read:
        agents put clocks into them, so a long conversation has thousands.
        """
        ...

    async def summarized_count(self, conversation: str) -> int:
        """Return for how many messages a summary stood in the last request of a conversation; 0 for none."""
        ...


class StoreIdentity(Protocol):
    """Which store it is: an emptied one is another one."""

    @property
    def epoch(self) -> str:
        """Return the store's own id as it was read last; empty if it never was."""
        ...

    async def renewed(self) -> str:
        """Read the store's own id again, and return it; the last one if the store does not answer."""
        ...


DeletionHook = Callable[[str, str], Awaitable[None]]
"""Deletes what a tenant has of a conversation outside the store, before the store deletes its own part.

It takes the tenant and the conversation. If it raises ``TidemarkError``, something is left; the deletion is refused and
may be requested again. Calling it again changes nothing.
"""


class LeaseStore(Protocol):
    """Leases of summaries: at most one worker makes each."""

    async def take(
        self,
        name: str,
        chain: PrefixChain,
        covered: int,
        recipe: SummaryRecipe,
        seconds: float,
        *,
        absorbed: Sequence[bytes] = (),
    ) -> Lease | None:
        """Take a lease to make a summary of the first ``covered`` messages; None if another worker has it.

        The name of a preparation's lease is the second part of the conversation's id, so ``recall`` finds it.
        """
        ...

    async def renew(self, lease: Lease, seconds: float) -> bool:
        """Renew a lease; False if another worker has it by now."""
        ...

    async def release(self, lease: Lease) -> None:
        """Release a lease."""
        ...

    async def is_taken(self, family: str, name: str) -> bool:
        """Return whether any worker has a lease."""
        ...


class CalibrationStore(Protocol):
    """What was learned of providers' tokenizers. Calibration is a refinement, so an outage fails no request."""

    async def calibration(self, key: CalibrationKey) -> Calibration:
        """Return the calibration of a tool set, else of its model; during an outage the last one of this process."""
        ...

    async def learn(self, key: CalibrationKey, counted: int, reported: int, now: float) -> None:
        """Take in one more reply, for the tool set and for the model; an outage is ignored.

        :param counted: tokens by the local count
        :param reported: tokens by the provider's
        """
        ...


class ResponseStore(Protocol):
    """Responses that clients ask for again by their ids. ``ConversationStore.record`` stores them with their turns."""

    async def find(self, owner: str, identifier: str) -> ResponseRecord | None:
        """Return the response with this id, or with an item of this id; None if the owner has none.

        Its long members are empty until ``RedisResponses.with_head`` reads them. What was asked for lives on as if it
        were new.
        """
        ...

    async def system_messages(self, response: ResponseRecord) -> Mapping[bytes, bytes]:
        """Return the bytes of the response's system messages by their digests; those that are gone are missing."""
        ...


class KeptConversationStore(Protocol):
    """Conversations of the Conversations API, by their ids and the credentials that made them."""

    async def find(self, owner: str, identifier: str) -> KeptHistory | None:
        """Return a conversation, which lives on as if it were new; None if the owner has none.

        An item that cannot be read is missing.
        """
        ...

    async def add(
        self, owner: str, conversation: KeptConversation, items: Sequence[KeptItem], tenant: str = ""
    ) -> bool:
        """Store items behind the others, and return whether the conversation is still there.

        :param tenant: whose request brought them; the first one's stays
        """
        ...


@frozen
class KeptAnswer:
    """The answer of one turn, in its own bytes."""

    turn: bytes
    """The digest of who sent the turn, in which dialect, and of its ``Idempotency-Key``."""
    body: bytes
    """The digest of the request's body."""
    status: int
    headers: Headers
    data: bytes
    report: Report


class AnswerStore(Protocol):
    """The newest answer of each conversation that may be asked for again.

    Both methods raise ``StoreUnavailable`` when the store did not answer in time.
    """

    async def find(self, conversation: str) -> KeptAnswer | None:
        """Return the answer; None if none is kept, or it cannot be read."""
        ...

    async def keep(self, owner: str, conversation: str, answer: KeptAnswer, seconds: int) -> None:
        """Keep an answer in place of the one before, unless the conversation is gone."""
        ...


class OwnerStore(Protocol):
    """Which credential made what, by account and id; no content."""

    async def owners(self, account: str, identifiers: Sequence[str]) -> Sequence[str | None]:
        """Return who made each object of an account; None for what nobody was seen to make.

        :raises StoreUnavailable: the store did not answer in time, and this process does not know all of them
        """
        ...

    async def claim(self, account: str, identifiers: Sequence[str], owner: str) -> None:
        """Store who made objects of an account; if an id was used before, the newest owner counts.

        :raises StoreUnavailable: the store did not answer in time
        """
        ...

    async def renew(self, account: str, identifiers: Sequence[str]) -> None:
        """Let owners be known for as long as if they were new; an outage changes nothing."""
        ...
