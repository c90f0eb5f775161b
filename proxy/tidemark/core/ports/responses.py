"""The ports of stored responses and of the conversations of the Conversations API.

``tidemark/store/responses.py`` and ``tidemark/store/kept_conversations.py`` implement them; the pipeline and the
features use them. A method raises ``StoreUnavailable`` when the store did not answer in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from tidemark.core.conversation.kept import KeptConversation, KeptHistory, KeptItem
from tidemark.core.conversation.responses import ResponseRecord


class ResponseStore(Protocol):
    """Responses that clients ask for again by their ids. ``ConversationStore.record`` stores them with their turns."""

    async def find(self, owner: str, identifier: str) -> ResponseRecord | None:
        """Return the response with this id, or with an item of this id; None if the owner has none.

        Its long members are empty until ``with_head`` reads them.
        """
        ...

    async def with_head(self, response: ResponseRecord) -> ResponseRecord:
        """Return the response with all members of its object."""
        ...

    async def system_messages(self, response: ResponseRecord) -> Mapping[bytes, bytes]:
        """Return the bytes of the response's system messages by their digests; those that are gone are missing."""
        ...

    async def forget(self, owner: str, response: ResponseRecord) -> None:
        """Delete a response; its conversation stays."""
        ...


class KeptConversationStore(Protocol):
    """Conversations of the Conversations API, by their ids and the credentials that made them."""

    async def create(self, owner: str, conversation: KeptConversation, items: Sequence[KeptItem]) -> None:
        """Store a new conversation."""
        ...

    async def find(self, owner: str, identifier: str) -> KeptHistory | None:
        """Return a conversation, which lives on as if it were new; None if the owner has none."""
        ...

    async def add(
        self, owner: str, conversation: KeptConversation, items: Sequence[KeptItem], tenant: str = ""
    ) -> bool:
        """Store items behind the others, and return whether the conversation is still there.

        :param tenant: whose request brought them; the first one's stays
        """
        ...

    async def change(self, owner: str, conversation: KeptConversation, metadata: bytes) -> KeptConversation | None:
        """Replace the metadata; None if the conversation is gone."""
        ...

    async def remove(self, owner: str, conversation: KeptConversation, item: str) -> bool:
        """Delete the items with an id, and return whether there was one."""
        ...

    async def forget(self, owner: str, identifier: str) -> bool:
        """Delete a conversation, and return whether it was there."""
        ...
