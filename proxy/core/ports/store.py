"""What is kept: conversations, leases, what was learned of models. What the flow needs of ``proxy/store``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from proxy.core.conversation.prefix import PrefixChain
from proxy.core.conversation.records import StoredConversation, StoredMessage, StoredState, TurnRecord
from proxy.core.conversation.summary import NO_SYSTEMS, InnerSystems, PrefixSummary, SummaryRecipe
from proxy.core.models import ModelObservation, ModelOverrides, ModelRecord, RegistryVersion
from proxy.core.planning.calibration import Calibration, CalibrationEntry, CalibrationKey


class ConversationStore(Protocol):
    """The one shared store of all workers (NFR-7.3, FR-4.3)."""

    async def recall(
        self, chain: PrefixChain, recipe: SummaryRecipe, systems: InnerSystems = NO_SYSTEMS
    ) -> StoredState:
        """What is known of a request's conversation, whose tenant is in the chain: one round trip in the common case.

        :param systems: the request's own; a summary that absorbed any other system message is passed over
        :raises StoreUnavailable: the store did not answer in time
        """
        ...

    async def record(self, turn: TurnRecord) -> str:
        """Append what a turn adds, in one atomic write; writing it twice changes nothing.

        A conversation that went on otherwise meanwhile is left as it is, and the turn becomes a fork of it.

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
    ) -> PrefixSummary | None:
        """Store a summary of the first ``summary.covered`` messages of ``chain``; of two for one prefix, the first.

        Summaries of one prefix that absorbed other system messages stand beside each other.

        :param replacing: in place of the one that is stored
        :param waiting: it was prepared: it is not in use until it is kept once more, without this
        :param lease: what it was made under
        :returns: the one that is stored now; None where there is none and the lease is somebody else's by now
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
        """The stored summary of the first ``covered`` messages of ``chain``, or the one that waits for its use.

        :param absorbed: digests of exactly the system messages that it tells
        :raises StoreUnavailable: the store did not answer in time
        """
        ...

    async def conversation(self, conversation: str) -> StoredConversation | None:
        """A conversation's record; None when there is none."""
        ...

    async def messages(self, conversation: str, *, start: int = 1, stop: int | None = None) -> Sequence[StoredMessage]:
        """The original messages ``start`` to ``stop``, both included, a fork's earlier ones too (promise 6).

        One that cannot be read stands in its place without bytes, and ``unreadable`` says why.
        """
        ...

    async def summaries(self, conversation: str) -> Sequence[PrefixSummary]:
        """All summaries of a conversation, oldest first."""
        ...

    async def ping(self) -> None:
        """Ask whether the store is there and takes writes, by a write.

        :raises StoreUnavailable: the store does not answer, or refuses to write
        """
        ...


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to make a summary, held by one worker of all for a while."""

    family: str
    name: str
    value: bytes
    """Another one at each taking: who holds an older one is told apart (fencing)."""


@dataclass(frozen=True, slots=True)
class StartedTurn:
    """A turn of a conversation whose history is the store's (``X-Tidemark-History: stored``)."""

    record: StoredConversation | None
    """None where the conversation is yet to begin."""
    head: str
    """Second part of its id."""
    lease: Lease | None
    """None where another turn is under way."""


class TurnStore(Protocol):
    """Turns of stored history. Raises ``StoreUnavailable`` when the store did not answer in time."""

    async def start_turn(self, family: str, own: str, tenant: str, seconds: float) -> StartedTurn | None:
        """Take the turn of a conversation: of this id, or, where ``own`` is empty, of the family's name.

        :returns: None where the id's conversation is another tenant's, or there is none
        """
        ...

    def give_up(self, turn: TurnRecord) -> None:
        """End a turn whose client was told that it is lost, as soon as the store answers.

        Its lease is free then; a write that comes in late is no part of the conversation, and the answer of one that
        came in already is one that nobody got: the same question once more asks for it anew.
        """
        ...


class RequestHeads(Protocol):
    """The system messages that began the last request of a conversation. Raises ``StoreUnavailable``."""

    async def head(self, conversation: str) -> Sequence[bytes]:
        """Those of one conversation, in the client's bytes."""
        ...


class DeletionHook(Protocol):
    """Whoever keeps something of a conversation beside the store: called before the store itself forgets it."""

    async def forget(self, tenant: str, conversation: str) -> None:
        """Delete all that is kept of a conversation; once more changes nothing.

        :raises TidemarkError: something is left; the deletion is refused and may be asked for again
        """
        ...


class LeaseStore(Protocol):
    """Who is making what. Every method raises ``StoreUnavailable`` when the store did not answer in time."""

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
        """Take the lease of that name, to make a summary of the first ``covered`` messages; None where it is taken.

        Of a preparation the name is the second part of the conversation's id, so ``recall`` finds it.
        """
        ...

    async def renew(self, lease: Lease, seconds: float) -> bool:
        """Hold a lease for longer; False where it has gone to somebody else."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give a lease back."""
        ...

    async def taken(self, family: str, name: str) -> bool:
        """Whether somebody holds a lease."""
        ...


class ModelStore(Protocol):
    """The registry's records (FR-4.1.3). They are the operator's: no tenant has any of their own.

    Every method raises ``StoreUnavailable`` when the store did not answer in time.
    """

    async def version(self) -> RegistryVersion:
        """Another one after every change of overrides, and after the store was emptied."""
        ...

    async def changed(self) -> tuple[RegistryVersion, Sequence[ModelRecord]]:
        """The version, and the records that a person set something of; without what was found."""
        ...

    async def records(self) -> Sequence[ModelRecord]:
        """All records, by id."""
        ...

    async def record(self, model: str) -> ModelRecord | None:
        """The record with this id."""
        ...

    async def sight(self, sighting: ModelObservation, now: float) -> None:
        """Keep what a request found of a model, as ``merged_observation`` says, and that it was seen now."""
        ...

    async def override(
        self, record: ModelRecord, change: Callable[[ModelOverrides], ModelOverrides], now: float
    ) -> None:
        """Keep what a person set, in place of what was set before; it is the record's id that counts.

        :param change: from what is set to what shall be; asked again where somebody else was faster. What it raises
            leaves everything as it is
        """
        ...


class CalibrationStore(Protocol):
    """What was learned of providers' tokenizers. Calibration is a refinement, so nothing here fails a request."""

    async def calibration(self, key: CalibrationKey) -> Calibration:
        """Of a tool set, else of its model; the last one known where the store does not answer."""
        ...

    async def learn(self, key: CalibrationKey, counted: int, told: int, now: float) -> None:
        """Take in one more reply, for the tool set and for the model; in vain where the store does not answer."""
        ...

    async def readings(self, owner: str | None) -> Mapping[str, Sequence[CalibrationEntry]]:
        """By model id, what is known to an owner; for None, the operator, the newest of each model.

        :raises StoreUnavailable: the store did not answer in time
        """
        ...


class LearnedWindowStore(Protocol):
    """What overflows taught, by credential; packed by whoever learns. Raises ``StoreUnavailable``."""

    async def lessons(self, owner: str) -> Sequence[bytes]:
        """All that was taught to one credential."""
        ...

    async def keep_lesson(self, owner: str, name: str, packed: bytes) -> None:
        """Keep one, in place of an older one of that name."""
        ...
