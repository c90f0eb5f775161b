"""Declares what the archive needs of the store, beside the ports of ``tidemark/core/ports/store.py``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.ports import ConversationStore, TurnStore


class Turn(Protocol):
    """The stored record of one turn, as far as the archive reads it."""

    @property
    def created_at(self) -> float:
        """Unix time, seconds."""
        ...

    @property
    def first(self) -> int:
        """Position of the first message that the turn added."""
        ...

    @property
    def last(self) -> int:
        """Position of the last message that the turn covered."""
        ...

    @property
    def systems(self) -> Sequence[tuple[int, bytes]]:
        """For each system message, how many messages stand before it, and its digest."""
        ...

    @property
    def model(self) -> str:
        """The model that answered."""
        ...

    @property
    def summarized(self) -> int:
        """The number of messages that a summary stood for."""
        ...

    @property
    def tokens_before(self) -> int:
        """Tokens of the request as it came."""
        ...

    @property
    def tokens_after(self) -> int:
        """Tokens of the request as it was forwarded."""
        ...

    @property
    def max_output_tokens(self) -> int:
        """The longest reply that the request asked for; 0 if it named none."""
        ...

    @property
    def usage(self) -> Mapping[str, object]:
        """The provider's ``usage``; empty if the provider sent none."""
        ...

    @property
    def complete(self) -> bool:
        """Whether an answer came."""
        ...

    @property
    def beyond(self) -> int:
        """The number of messages after ``last`` that only the parent has, because this conversation forked earlier."""
        ...


class ConversationLists(Protocol):
    """The lists of conversations."""

    async def newest(
        self, owner: str | None, limit: int, before: tuple[float, str] | None = None
    ) -> Sequence[tuple[float, str]]:
        """Return the time of last use and the id of conversations, newest first.

        :param owner: None for the conversations of all owners
        """
        ...

    async def newer(self, owner: str | None, limit: int, after: tuple[float, str]) -> Sequence[tuple[float, str]]:
        """Return the time of last use and the id of the conversations right before an entry, the nearest first."""
        ...

    async def count(self, owner: str | None) -> int:
        """Return how many conversations a list has."""
        ...

    async def ids_beginning(self, owner: str | None, beginning: str) -> Sequence[tuple[float, str]]:
        """Return the conversations whose ids begin with hex digits, the last used first."""
        ...

    async def drop(self, owner: str | None, conversation: str, name: str, until: float) -> None:
        """Remove a conversation from the lists, unless it was used after a time."""
        ...


class ArchiveStore(ConversationStore, Protocol):
    """The store as the archive uses it. Every method raises ``StoreUnavailable`` if the store does not answer."""

    @property
    def listing(self) -> ConversationLists:
        """The lists of conversations."""
        ...

    async def all_turns(self, conversation: str) -> Sequence[Turn]:
        """Return the turns of a conversation, oldest first."""
        ...

    async def latest_turn(self, conversation: str) -> Turn | None:
        """Return the last turn of a conversation; None without a readable one."""
        ...

    async def summaries(self, conversation: str, *, standing: bool = False) -> Sequence[PrefixSummary]:
        """Return the summaries of a conversation, oldest first.

        :param standing: return only those that stand for a prefix of the conversation
        """
        ...

    async def summary_versions(self, conversation: str) -> Sequence[PrefixSummary]:
        """Return the summaries of a conversation that others replaced, oldest first."""
        ...

    async def message_ids(self, conversation: str, stop: int) -> Sequence[str]:
        """Return the ids of a conversation's messages up to position ``stop``, oldest first."""
        ...

    async def system_messages(self, conversation: str) -> Mapping[bytes, bytes]:
        """Return every system message that was sent in a conversation: its digest and the client's bytes."""
        ...

    async def find_by_name(self, owner: str, name: str) -> str | None:
        """Return the id of the conversation that a credential's client calls by a name."""
        ...

    @property
    def turns(self) -> TurnStore:
        """The turns of stored history."""
        ...

    async def forget(self, conversation: str, owner: str, name: str, now: float) -> bool:
        """Delete a conversation, and return whether there was one."""
        ...


class PreviewStore(Protocol):
    """The previews of regenerated summaries. Every method raises ``StoreUnavailable`` as those of the store do."""

    async def keep(
        self, conversation: str, preview_id: bytes, summary: PrefixSummary, present: PrefixSummary, seconds: int
    ) -> bool:
        """Store a preview for some seconds, and return whether the conversation is still there.

        :param preview_id: 16 random bytes
        :param present: the summary that it was made to replace
        """
        ...

    async def read(self, conversation: str, preview_id: bytes) -> tuple[PrefixSummary, PrefixSummary] | None:
        """Return a preview and the summary that it was made to replace; None if it has expired."""
        ...
