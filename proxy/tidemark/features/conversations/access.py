"""Decide who may reach a stored conversation.

Every part of a feature that serves one conversation asks here, and nothing else compares owners or tenants. Stored
history (``pipeline/stored_history.py``) does not ask: it looks for a conversation in the caller's own tenant only.
"""

from __future__ import annotations

from tidemark.core.conversation.prefix import is_id, owner_of
from tidemark.core.conversation.records import ConversationRecord
from tidemark.core.errors import ModelNotFound
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller, Route, Upstream
from tidemark.pipeline.history_reader import missing
from tidemark.pipeline.identify import tenant_of
from tidemark.store.conversations import RedisStore


def may_reach(record: ConversationRecord, caller: Caller | None, route: Route | None = None) -> bool:
    """Return whether a caller may reach a conversation.

    - The operator reaches all conversations.
    - A credential reaches the conversations that it owns, whichever upstream they use: it may read, export and
      delete them.
    - If the messages are to be sent to an upstream (``route``), the rule is narrower: the credential must be the
      conversation's tenant there. Otherwise a model of another upstream would receive what was never sent to it.

    :param caller: None for the operator
    :param route: where the messages are to be sent; for a record without an owner, the route of its own model
    """
    if caller is None:
        return True
    if route is not None:
        return tenant_of(caller, route) == record.tenant
    return record.owner == owner_of(caller.fingerprint)


def may_hear(event_owner: str, listener: str | None) -> bool:
    """Return whether a listener may learn what happens to a conversation of this owner.

    :param listener: the owner that it is itself; None for the operator, who hears of all
    """
    return listener is None or event_owner == listener


@frozen
class ArchiveAccess:
    """Returns the records of conversations that a caller may reach; holds no state.

    A conversation that the caller may not reach raises the same error as one that does not exist (promise 8).
    """

    store: RedisStore
    upstream: Upstream

    async def record(self, conversation: str, caller: Caller | None) -> ConversationRecord:
        """Return a conversation that a caller wants to read, export or delete.

        :param conversation: its id, or the name that the caller's client gave it; the operator has ids only
        :param caller: None for the operator
        :raises ConversationNotFound: it does not exist, or the caller does not own it
        """
        record = await self._existing(await self._id_of(conversation, caller))
        route = None
        if caller is not None and not record.owner:  # stored before records had owners
            route = await self._own_route(record)
        if not may_reach(record, caller, route):
            raise missing(conversation)
        return record

    async def record_for_summary(
        self, conversation: str, caller: Caller | None, model: str | None
    ) -> tuple[ConversationRecord, Route]:
        """Return a conversation that a caller wants to summarize, and where its messages are sent for that.

        :param conversation: its id, or the name that the caller's client gave it; the operator has ids only
        :param caller: None for the operator
        :param model: the model whose upstream receives the messages; None for the conversation's last one
        :raises ModelNotFound: ``model`` is not served
        :raises ConversationNotFound: it does not exist, or the caller is not its tenant at that upstream
        :raises ModelNotAllowed: the caller's key does not allow that model
        """
        route = None if model is None else await self.upstream.resolve(model)
        record = await self._existing(await self._id_of(conversation, caller))
        route = route or await self._own_route(record)
        if not may_reach(record, caller, route):
            raise missing(conversation)
        if caller is not None:
            caller.check_model(route.name)
        return record, route

    async def _id_of(self, conversation: str, caller: Caller | None) -> str:
        """Return the id of a conversation that is given by its id or by its client's name for it."""
        if is_id(conversation):
            return conversation
        owner = None if caller is None else owner_of(caller.fingerprint)
        identifier = None if owner is None else await self.store.find_by_name(owner, conversation)
        if identifier is None:
            raise missing(conversation)
        return identifier

    async def _existing(self, conversation: str) -> ConversationRecord:
        record = await self.store.conversation(conversation)
        if record is None or not record.message_count:
            raise missing(conversation)
        return record

    async def _own_route(self, record: ConversationRecord) -> Route:
        """Return the route of a conversation's last model; if that is not served, the conversation is missing."""
        try:
            return await self.upstream.resolve(record.model)
        except ModelNotFound as error:
            raise missing(record.id) from error
