"""A stored conversation read back: its messages, the chain and the request that they form.

Below whatever goes on from what is stored and not from what a client sent: stored history, compaction by hand, reading.
A whole history is parsed in a thread, and past the parser of requests, whose cache is for what clients send.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from proxy.core.conversation.gaps import without_gaps
from proxy.core.conversation.messages import Message, ModelRequest, render_body, render_messages
from proxy.core.conversation.prefix import PrefixChain
from proxy.core.conversation.records import StoredConversation, StoredMessage
from proxy.core.errors import ConversationConflict, ConversationNotFound, RecordUnreadable
from proxy.core.ports import ConversationStore
from proxy.dialects.chat.echo import as_sent

T = TypeVar("T")
Read = Callable[[Sequence[bytes]], Sequence[Message]]
"""Messages from their bytes, in any thread."""
_MOST_PLACES = 20
"""That are named in an error."""
LARGE_BYTES = 40_000
"""Of messages that are parsed in a thread: some milliseconds of work."""


def missing(conversation: str) -> ConversationNotFound:
    """Whether there is one of somebody else's cannot be told (promise 8)."""
    return ConversationNotFound(
        f"There is no conversation {conversation[:80]!r} of this credential, or its model is not served."
    )


def under_way() -> ConversationConflict:
    """Somebody else holds the turn, for as long as an answer takes."""
    error = ConversationConflict(
        "Another request of this conversation is being answered. Send this one again when that is done."
    )
    error.retry_after = 1.0
    return error


@dataclass(frozen=True, slots=True)
class StoredConversationReader:
    """Reads; it holds no state."""

    store: ConversationStore

    async def messages(self, record: StoredConversation, *, gaps: bool = False) -> Sequence[StoredMessage]:
        """All messages of a conversation, oldest first.

        :param gaps: give those that cannot be read as well, which have a place and no bytes
        :raises ConversationNotFound: some have expired
        :raises RecordUnreadable: some cannot be read
        """
        kept = await self.store.messages(record.id, stop=record.message_count)
        if [one.position for one in kept] != list(range(1, record.message_count + 1)):
            raise ConversationNotFound(f"Messages of the conversation {record.id!r} have expired.")
        broken = [one for one in kept if one.unreadable]
        if broken and not gaps:
            places = ", ".join(str(one.position) for one in broken[:_MOST_PLACES])
            raise RecordUnreadable(
                f"Messages of the conversation {record.id!r} cannot be read (at {places}): they are broken, or a newer "
                "version of Tidemark wrote them. The others can be shown and exported.",
                internal=broken[0].unreadable,
            )
        return kept

    async def sendable(self, record: StoredConversation) -> Sequence[bytes]:
        """All messages of a conversation that can be read, oldest first, as a client would send them.

        What is stored stays as it is. A call or a result whose counterpart cannot be read is left out as well.

        :raises ConversationNotFound: some have expired
        """
        raws = [one.raw for one in without_gaps(await self.messages(record, gaps=True))]
        return await beside(lambda: list(map(as_sent, raws)), raws)


def chain_of_stored(conversation: str, kept: Sequence[StoredMessage]) -> PrefixChain:
    """The chain of a stored conversation. Of one that its client named, the family is the seed's."""
    hashes = tuple(bytes.fromhex(one.message_id) for one in kept)
    family = bytes.fromhex(conversation)[: len(hashes[0])]
    named = family != hashes[0]
    return PrefixChain(family if named else b"", hashes, named)


def request_of(model: str, messages: Sequence[Message]) -> ModelRequest:
    """Messages as the request that a client would send them in."""
    fields = {"model": json.dumps(model).encode(), "messages": render_messages(messages)}
    return ModelRequest(render_body(fields, {}), fields, model, tuple(messages))


async def request_read(read: Read, model: str, raws: Sequence[bytes]) -> ModelRequest:
    """The same, of messages that are yet to be parsed."""
    return await beside(lambda: request_of(model, read(raws)), raws)


async def beside(work: Callable[[], T], raws: Sequence[bytes]) -> T:
    """Do what parses ``raws``: in a thread where they are many, so that other requests go on."""
    return await asyncio.to_thread(work) if sum(map(len, raws)) > LARGE_BYTES else work()
