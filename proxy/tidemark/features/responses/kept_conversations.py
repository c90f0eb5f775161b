"""Conversations of OpenAI's Conversations API that Tidemark keeps: what ``/v1/conversations`` answers.

They are served if the upstream has none, and belong to the credential that made them: the id of somebody else is
unknown. What a client adds is counted as an import is, since no upstream need ever have accepted its credential.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemark.core.conversation.kept import PREFIX, KeptConversation, KeptHistory, KeptItem
from tidemark.core.conversation.prefix import owner_of
from tidemark.core.conversation.request import Dialect
from tidemark.core.conversation.responses import ResponseFormat
from tidemark.core.errors import ConversationNotFound, UpstreamError
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller, Route, Upstream, UpstreamReply
from tidemark.pipeline.carried_objects import CarriedObjects
from tidemark.pipeline.kept_conversations import KeptConversations, new_conversation, new_items
from tidemark.pipeline.plain_replies import UNSERVED, read_whole
from tidemark.pipeline.values import BufferedReply
from tidemark.store.kept_conversations import RedisKeptConversations
from tidemark.store.usage import OwnerUsage

CONVERSATIONS = "/conversations"
HEAD_BYTES = 500
"""What a conversation takes beside its items and metadata."""


@frozen
class ConversationsApi:
    """Serves what it is asked; it holds no state."""

    upstream: Upstream
    store: RedisKeptConversations
    dialect: Dialect
    format: ResponseFormat
    """That of the dialect."""
    quota: OwnerUsage
    objects: CarriedObjects
    """Knows whose the conversations are that an upstream makes."""
    clock: Callable[[], float]

    async def may_be_at_upstream(self, model: str, caller: Caller) -> bool:
        """Return whether an upstream may have a conversation that Tidemark did not make.

        :param model: names the upstream; without one, it is the only one there is
        :raises ModelNotFound: nobody serves ``model``
        """
        route = await self._route(model, caller)
        return route is not None and self.upstream.keeps_responses(route, caller) is not False

    async def made_by_upstream(self, path: str, body: bytes, model: str, caller: Caller) -> UpstreamReply | None:
        """Ask the upstream to make a conversation; None if it has none, so that Tidemark makes it.

        :param path: below the base URL, with the query
        :raises ModelNotFound: nobody serves ``model``
        :raises ObjectNotFound: an item names something of another tenant
        :raises StoreUnavailable: nobody knows at present whether one does
        :raises UpstreamUnreachable, UpstreamTimedOut: there was no answer
        """
        route = await self._route(model, caller)
        keeps = None if route is None else self.upstream.keeps_responses(route, caller)
        if route is None or keeps is False:
            return None
        members = await self.objects.check(route, "POST", path, body, caller)
        reply = await self.upstream.forward(route, "POST", path, body, caller)
        if keeps or reply.status not in UNSERVED:
            return await self.objects.claim(route, caller, reply, members)
        try:
            content = await read_whole(reply)
        except UpstreamError:
            return None
        is_worded = b"invalid_request_error" in content and b"model" in content
        return BufferedReply(reply.status, reply.headers, content) if is_worded else None

    async def create(self, metadata: bytes, raws: Sequence[bytes], caller: Caller) -> KeptConversation:
        """Store a new conversation with its first items.

        :raises InvalidRequest: one is no item
        :raises StoreFull, ImportLimit: nothing more may be stored for the caller
        :raises StoreUnavailable: the store did not answer in time
        """
        items = self._items(raws)
        await self._admit(caller, HEAD_BYTES + len(metadata) + sum(map(len, raws)))
        conversation = new_conversation(self.clock(), metadata, PREFIX)
        await self.store.create(owner_of(caller.fingerprint), conversation, items)
        return conversation

    async def find(self, identifier: str, caller: Caller) -> KeptHistory:
        """Return a conversation with its items.

        :raises ConversationNotFound: the caller has none with this id
        :raises StoreUnavailable: the store did not answer in time
        """
        return await KeptConversations(self.store).find(owner_of(caller.fingerprint), identifier)

    async def change(self, identifier: str, metadata: bytes, caller: Caller) -> KeptConversation:
        """Replace a conversation's metadata; the errors are those of ``find``."""
        history = await self.find(identifier, caller)
        changed = await self.store.change(owner_of(caller.fingerprint), history.conversation, metadata)
        return changed or history.conversation

    async def forget(self, identifier: str, caller: Caller) -> None:
        """Delete a conversation with its items; the errors are those of ``find``."""
        await self.find(identifier, caller)
        await self.store.forget(owner_of(caller.fingerprint), identifier)

    async def add(self, identifier: str, raws: Sequence[bytes], caller: Caller) -> Sequence[KeptItem]:
        """Store items behind the others, and return them; the errors are those of ``create`` and ``find``."""
        history, items = await self.find(identifier, caller), self._items(raws)
        await self._admit(caller, sum(map(len, raws)))
        if not await self.store.add(owner_of(caller.fingerprint), history.conversation, items):
            raise ConversationNotFound("The conversation was deleted meanwhile.")
        return items

    async def remove(self, identifier: str, item: str, caller: Caller) -> KeptConversation | None:
        """Delete an item, and return its conversation; None if it has no such item. Errors are those of ``find``."""
        history = await self.find(identifier, caller)
        removed = await self.store.remove(owner_of(caller.fingerprint), history.conversation, item)
        return history.conversation if removed else None

    def _items(self, raws: Sequence[bytes]) -> list[KeptItem]:
        for raw in raws:
            self.dialect.parse_messages([raw])
        return new_items(raws, self.format)

    async def _admit(self, caller: Caller, size: int) -> None:
        await self.quota.admit(owner_of(caller.fingerprint), size, self.clock(), trusted=False)

    async def _route(self, model: str, caller: Caller) -> Route | None:
        return await self.upstream.resolve(model) if model else self.upstream.sole_route(caller)
