"""Completes the turn of a response that its upstream made in the background, once a client's poll finds it finished.

The request of such a response was stored without an answer, because none came through it. ``GET /v1/responses/{id}``
shows the upstream's own answer; the first one that is complete becomes the conversation's. Source: OpenAI API
reference, "Background mode".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import PrefixChain, owner_of, split_id
from tidemark.core.conversation.records import TurnRecord
from tidemark.core.conversation.request import Dialect
from tidemark.core.conversation.responses import ResponseFormat, ResponseRecord
from tidemark.core.errors import InvalidRequest, StoreError
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller, ConversationStore, ResponseStore, TokenCounter
from tidemark.dialects.message_formats import MessageFormats
from tidemark.pipeline.earlier_messages import EarlierMessages
from tidemark.pipeline.history_reader import offloaded


@frozen
class BackgroundResponses:
    """Records answers; it holds no state."""

    store: ConversationStore
    responses: ResponseStore
    earlier: EarlierMessages
    counter: TokenCounter
    formats: MessageFormats
    dialect: Dialect
    format: ResponseFormat
    clock: Callable[[], float]

    async def record(self, record: ResponseRecord, body: bytes, caller: Caller) -> bool:
        """Store the answer that a poll has brought, and return whether it is stored now.

        Two polls at once store it once, because two writes of one turn are the same as one.

        :param record: a response that was not finished when its request ended
        :param body: the upstream's response object
        """
        reply = await offloaded(lambda: self.dialect.fold_body(body), [body])
        answered = self.format.response_of(body)
        if not reply.complete or reply.message is None or answered is None or answered[0] != record.id:
            return False
        try:
            turn = await self._turn(record, reply.message, caller)
            if turn is None:
                return False
            items = [item for item, _ in self.format.items_of(reply.message.raw)]
            response = replace(
                record,
                message_count=len(turn.chain),
                tip=turn.chain.tip,
                head=answered[1],
                items=items,
                background=False,
            )
            await self.store.record(replace(turn, usage=reply.usage).with_response(response))
        except (InvalidRequest, StoreError):
            return False  # the client has its answer all the same, and the next poll tries again
        return True

    async def _turn(self, record: ResponseRecord, answer: Message, caller: Caller) -> TurnRecord | None:
        """Return the turn with its answer; None if messages of it are gone."""
        stored = await self.earlier.stored(record)
        if not stored:
            return None
        systems = await self.responses.system_messages(record)
        raws = [message.raw for message in stored]
        messages = list(await offloaded(lambda: self.formats.read(raws), raws))
        hashes = tuple([bytes.fromhex(message.message_id) for message in stored])
        if hashes[-1] != record.tip:
            return None  # its client has changed earlier answers since: the conversation went another way
        family, _ = split_id(record.conversation)
        has_name = hashes[0].hex() != family
        chain = PrefixChain(bytes.fromhex(family) if has_name else b"", hashes, has_name).extended([answer])
        tokens = [message.tokens for message in stored]
        for place, raw in reversed([(place, systems[digest]) for place, digest in record.systems if digest in systems]):
            (system,) = self.formats.read([raw])
            messages.insert(place, system)
            tokens.insert(place, self._count(system, record))
        before = sum(tokens)
        return TurnRecord(
            tenant=record.tenant,
            conversation=record.conversation,
            chain=chain,
            stored_count=record.message_count,
            messages=[*messages, answer],
            tokens=[*tokens, self._count(answer, record)],
            complete=True,
            model=record.model,
            action="none",
            tokens_before=before,
            tokens_after=before,
            summarized=0,
            created_at=self.clock(),
            owner=owner_of(caller.fingerprint),
            sender=f"{self.dialect.name} {caller.program}",
        )

    def _count(self, message: Message, record: ResponseRecord) -> int:
        return self.counter.count_message(message, record.model)
