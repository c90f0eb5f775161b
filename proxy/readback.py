"""A stored conversation read back: whose it is, its messages, and the chain that they form.

Below whatever goes on from what is stored and not from what a client sent: stored history, compaction by hand, reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from proxy.core.conversation import StoredConversation, StoredMessage
from proxy.core.errors import ConversationNotFound, ModelNotFound
from proxy.core.ports import Caller, ConversationStore, Upstream
from proxy.core.prefix import PrefixChain, owner_of
from proxy.identity import tenant_of


def missing(conversation: str) -> ConversationNotFound:
    """Whether there is one of somebody else's cannot be told (promise 8)."""
    return ConversationNotFound(
        f"There is no conversation {conversation[:80]!r} of this credential, or its model is not served."
    )


@dataclass(frozen=True, slots=True)
class Readback:
    """Reads; it holds no state."""

    store: ConversationStore
    upstream: Upstream

    async def record(self, conversation: str, caller: Caller | None) -> StoredConversation:
        """A conversation's record, if the caller may see it.

        :param caller: None for the operator, who sees all
        :raises ConversationNotFound: there is none with this id, or it is another credential's
        """
        record = await self.store.conversation(conversation)
        if record is None or not record.message_count:
            raise missing(conversation)
        if caller is not None and not await self._is_of(record, caller):
            raise missing(conversation)
        return record

    async def _is_of(self, record: StoredConversation, caller: Caller) -> bool:
        if record.owner:
            return record.owner == owner_of(caller.fingerprint)
        try:
            return tenant_of(caller, await self.upstream.resolve(record.model)) == record.tenant
        except ModelNotFound:
            return False

    async def messages(self, record: StoredConversation) -> Sequence[StoredMessage]:
        """All messages of a conversation, oldest first.

        :raises ConversationNotFound: some have expired
        """
        kept = await self.store.messages(record.id, stop=record.message_count)
        if [one.position for one in kept] != list(range(1, record.message_count + 1)):
            raise ConversationNotFound(f"Messages of the conversation {record.id!r} have expired.")
        return kept


def chain_of_stored(conversation: str, kept: Sequence[StoredMessage]) -> PrefixChain:
    """The chain of a stored conversation. Of one that its client named, the family is the seed's."""
    hashes = tuple(bytes.fromhex(one.message_id) for one in kept)
    family = bytes.fromhex(conversation)[: len(hashes[0])]
    named = family != hashes[0]
    return PrefixChain(family if named else b"", hashes, named)
