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
