"""Resolves an earlier response to what follows the summary of its conversation, and nothing older (FR-4.3.1).

The step ``continue`` (``continuing.py``) tries it first. It is for the usual case: the response is the newest one of
its conversation, and the last request was sent with a summary.
"""

from __future__ import annotations

from dataclasses import replace

from tidemark.core.conversation.prefix import seed_of
from tidemark.core.conversation.records import ConversationRecord
from tidemark.core.conversation.request import ContinuedRequest, ModelRequest
from tidemark.core.conversation.responses import ResponseFormat, ResponseRecord
from tidemark.core.frozen import frozen
from tidemark.core.ports import ConversationStore, ResponseStore
from tidemark.pipeline.earlier_messages import with_systems
from tidemark.pipeline.unsummarized_messages import UnsummarizedMessages, UnsummarizedReader, has_its_calls
from tidemark.pipeline.values import Controls, ConversationPlace
from tidemark.pipeline.whole_request import place_of


@frozen
class _NewestResponse:
    """A response that is the newest one of its conversation, and what follows the summary there."""

    record: ResponseRecord
    conversation: ConversationRecord
    unsummarized: UnsummarizedMessages


class UnsummarizedResolver:
    """Resolves responses. It takes ports only, and has no state."""

    def __init__(self, store: ConversationStore, responses: ResponseStore, unsummarized: UnsummarizedReader) -> None:
        self._store = store
        self._responses = responses
        self._unsummarized = unsummarized

    async def resolve(
        self, request: ModelRequest, responses: ResponseFormat, controls: Controls, *, owner: str, tenant: str
    ) -> tuple[ModelRequest, ConversationPlace] | None:
        """Return a request with the messages that follow the summary, and its place; None if others are needed.

        :raises RecordUnreadable: the conversation's record cannot be read
        :raises StoreUnavailable: the store did not answer in time
        """
        newest = await self._newest(request, controls, owner, tenant)
        if newest is None:
            return None
        record, unsummarized = newest.record, newest.unsummarized
        systems, count = await self._responses.system_messages(record), unsummarized.left_out.count
        if any(0 < place <= count or digest not in systems for place, digest in record.systems):
            return None
        raws = with_systems(record, systems, list(enumerate(unsummarized.raws, count)))
        whole = await request.dialect.parse(responses.rewritten(request.fields, {}, raws), bounded=False)
        new = [message for message in request.messages if not message.is_system]
        place = place_of(tenant, newest.conversation, unsummarized.hashes, whole, new, left_out=unsummarized.left_out)
        if place is None or not has_its_calls(whole.messages) or not _is_named(place, controls.conversation):
            return None
        earlier_systems = len(raws) - len(unsummarized.raws)
        continuation = ContinuedRequest(
            earlier_count=record.message_count, earlier_systems=earlier_systems, resolved=request.continues or ""
        )
        return replace(whole, continuation=continuation), place

    async def _newest(
        self, request: ModelRequest, controls: Controls, owner: str, tenant: str
    ) -> _NewestResponse | None:
        record = await self._responses.find(owner, request.continues or "")
        if record is None or not record.may_be_sent_for(tenant) or record.upstream_has or record.background:
            return None
        conversation = await self._store.conversation(record.conversation)
        if conversation is None or conversation.message_count != record.message_count:
            return None
        unsummarized = await self._unsummarized.read(conversation, request, controls)
        if unsummarized is None or unsummarized.hashes[-1] != record.tip:
            return None
        return _NewestResponse(record, conversation, unsummarized)


def _is_named(place: ConversationPlace, name: str | None) -> bool:
    """Return whether the client gives a conversation the name that its chain is made by."""
    chain = place.chain
    if name is None:
        return not chain.has_seed_family
    seed = seed_of(place.tenant, name)
    return chain.has_seed_family and chain.seed == seed
