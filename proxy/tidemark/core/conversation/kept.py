"""Conversations that a client keeps by the id of OpenAI's Conversations API: what is stored of each.

Tidemark serves them if the upstream has none. Their items are the history of a request that names the conversation
(``pipeline/kept_conversations.py``). Source: OpenAI API reference, "Conversations".
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.core.frozen import frozen

PREFIX = "conv_tidemark_"
"""Begins the ids that Tidemark gives; every other id is a provider's."""


@frozen
class KeptItem:
    """One item of a conversation."""

    id: str
    """That of the answer or of the client, or one that Tidemark gave."""
    raw: bytes
    """The item's own JSON, as it was sent or answered."""


@frozen
class KeptConversation:
    """What is stored of one conversation beside its items."""

    id: str
    created_at: float
    """Unix time, seconds."""
    metadata: bytes
    """The raw JSON of an object."""
    tenant: str = ""
    """Whose requests it was answered for; empty before the first answer."""

    def may_be_sent_for(self, tenant: str) -> bool:
        """Return whether the items may go to a tenant's upstream: only to the one that answered them (promise 8)."""
        return self.tenant in ("", tenant)


@frozen
class KeptHistory:
    """A conversation with its items, oldest first."""

    conversation: KeptConversation
    items: Sequence[KeptItem]


def is_kept_here(identifier: str) -> bool:
    """Return whether an id is one that Tidemark gave, so that no upstream knows it."""
    return identifier.startswith(PREFIX)
