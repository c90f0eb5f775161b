"""Conversations that clients name in ``conversation`` and Tidemark keeps: their items come before a request's own.

The step ``continue`` (``continuing.py``) reads them, and the relay adds the input and the output once the answer is
complete. There is no lease: of two requests at once each sees what was there before, and both are added whole.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import replace

from tidemark.core.conversation.kept import KeptConversation, KeptHistory, KeptItem
from tidemark.core.conversation.reply import Reply
from tidemark.core.conversation.request import KeptTurn, ModelRequest
from tidemark.core.conversation.responses import ResponseFormat
from tidemark.core.errors import ConversationNotFound, InvalidRequest, StoreFull, StoreUnavailable
from tidemark.core.frozen import frozen
from tidemark.core.ports import KeptConversationStore
from tidemark.pipeline.values import STORE_FULL, PendingTurn


@frozen
class KeptConversations:
    """Reads and adds; it holds no state.

    :param full: owners for whom nothing more is stored; read with each request
    """

    store: KeptConversationStore
    full: Collection[str] = ()

    async def find(self, owner: str, identifier: str) -> KeptHistory:
        """Return the caller's conversation.

        :raises ConversationNotFound: the caller has none with this id
        :raises StoreUnavailable: the store did not answer in time
        """
        history = await self.store.find(owner, identifier)
        if history is None:
            raise ConversationNotFound(
                f"Conversation with id {identifier[:120]!r} not found: it is unknown here, or has expired. Create "
                "another one with POST /v1/conversations."
            )
        return history

    async def history_for(self, owner: str, tenant: str, identifier: str, request: ModelRequest) -> KeptHistory:
        """Return the conversation that a request names.

        :raises ConversationNotFound: the caller has none with this id, or its answers came from another upstream
        :raises StoreFull: the answer could not be added
        :raises InvalidRequest: the response is to be made in the background, and nobody would see its end
        """
        if request.fields.get("background") == b"true":
            raise InvalidRequest(
                "'background' cannot be served with this 'conversation': Tidemark keeps it, and the upstream makes the "
                "response. Leave one of them out.",
                param="background",
                code="unsupported_parameter",
            )
        if owner in self.full:
            raise StoreFull(STORE_FULL)
        history = await self.find(owner, identifier)
        if not history.conversation.may_be_sent_for(tenant):
            raise ConversationNotFound(
                f"Conversation with id {identifier[:120]!r} was answered by another upstream, and only that one gets "
                "its items. Use a model of that upstream, or begin another conversation."
            )
        return history

    def adding(self, turn: PendingTurn, kept_turn: KeptTurn, owner: str, responses: ResponseFormat) -> PendingTurn:
        """Return a turn that adds its input and its output to a conversation when its answer is complete."""

        async def add(reply: Reply) -> None:
            output = [] if reply.message is None else responses.items_of(reply.message.raw)
            answered = [KeptItem(item.id or new_id(item.type), raw) for item, raw in output]
            items = [*new_items(kept_turn.own_items, responses), *answered]
            if not await self.store.add(owner, kept_turn.conversation, items, turn.record.tenant):
                raise StoreUnavailable("The conversation was deleted while its answer came.")

        return replace(turn, add=add)


def new_items(raws: Sequence[bytes], responses: ResponseFormat) -> list[KeptItem]:
    """Return items that a client sends, each with its own id or a new one."""
    pairs = [(responses.items_of(raw)[0][0], raw) for raw in raws]
    return [KeptItem(item.id or new_id(item.type), raw) for item, raw in pairs]


def new_id(kind: str) -> str:
    """Return a new id for an item of a type."""
    return f"{'msg' if kind == 'message' else 'item'}_{uuid.uuid4().hex}"


def new_conversation(created_at: float, metadata: bytes, prefix: str) -> KeptConversation:
    """Return a conversation with a new id."""
    return KeptConversation(prefix + uuid.uuid4().hex, created_at, metadata)
