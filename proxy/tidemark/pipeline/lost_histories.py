"""Notices that the store has lost a stored conversation, which must not begin anew without a word.

The step ``history`` (``stored_history.py``) asks it when a name leads to no conversation. What is left of a lost
conversation shows it: its record, the entry of its name in another slot, or this worker's memory of a store that was
emptied since.
"""

from __future__ import annotations

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.prefix import split_id
from tidemark.core.ports import ConversationStore, StartedTurn, StoreIdentity

MAX_FAMILIES = 20_000
"""Stored conversations that a worker remembers, with the store that had them; about 5 MB."""
LOST = "the store has lost earlier messages of this conversation, or they have expired; send what matters of them again"
"""The warning of a request whose conversation begins anew, or goes on without its system messages."""


class LostHistories:
    """Tells what is missing. Its state is the conversations that this worker has seen, and in which store."""

    def __init__(self, store: ConversationStore, identity: StoreIdentity) -> None:
        self._store = store
        self._identity = identity
        self._epochs: BoundedCache[str, str] = BoundedCache(MAX_FAMILIES)

    def note(self, family: str) -> None:
        """Remember that the store has a conversation, once a turn of it was answered."""
        self._epochs.put(family, self._identity.epoch)

    async def count(self, started: StartedTurn, family: str, owner: str, name: str) -> str:
        """Return how many messages are lost when a conversation is about to begin: a number, ``unknown`` or nothing.

        :raises StoreUnavailable: the store did not answer in time
        """
        if started.lost:
            return started.lost
        epoch = self._epochs.get(family, "")
        if epoch:
            current = await self._identity.renewed()
            if current not in ("", epoch):
                return "unknown"
            if current:  # it was deleted, or has expired
                self._epochs.pop(family, None)  # another turn may have taken its place meanwhile
        conversation = await self._store.find_by_name(owner, name)
        # the credential's name may be that of a conversation with another upstream, which nobody goes on with here
        return "unknown" if conversation is not None and split_id(conversation)[0] == family else ""
