"""Reads the messages of a stored response: those that led to it, and its output.

The step ``continue`` (``continuing.py``) puts them before a request, and the endpoints of stored responses show them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial

from tidemark.core.conversation.prefix import linked
from tidemark.core.conversation.records import MessageRecord
from tidemark.core.conversation.request import Dialect
from tidemark.core.conversation.responses import ResponseRecord
from tidemark.core.frozen import frozen
from tidemark.core.ports import ConversationStore, ResponseStore
from tidemark.dialects.message_formats import MessageFormats
from tidemark.pipeline.history_reader import offloaded, sendable_places


@frozen
class EarlierMessages:
    """Reads; it holds no state."""

    store: ConversationStore
    responses: ResponseStore
    formats: MessageFormats

    async def of(self, record: ResponseRecord, dialect: Dialect) -> tuple[Sequence[bytes], int] | None:
        """Return all messages up to a response, as a client would send them; None if some are gone.

        :returns: the messages, system messages in their places; and how many are none
        """
        messages, systems = await asyncio.gather(self._messages(record, 1), self.responses.system_messages(record))
        if not messages:
            return None
        sendable = await sendable_places(messages, dialect, self.formats)
        return with_systems(record, systems, sendable), len(sendable)

    async def stored(self, record: ResponseRecord) -> Sequence[MessageRecord]:
        """Return the stored messages up to a response, without system messages; none if some are gone."""
        return await self._messages(record, 1)

    async def output(self, record: ResponseRecord, dialect: Dialect) -> bytes:
        """Return the bytes of a response's output, in a dialect; empty if it is gone."""
        messages = await self._messages(record, record.message_count)
        return self._as_native(messages[0].raw, dialect) if messages else b""

    async def own_input(self, record: ResponseRecord, dialect: Dialect) -> Sequence[bytes]:
        """Return the messages that the answered request brought itself; none if one is gone."""
        first = record.earlier_count + 1
        messages, systems = await asyncio.gather(self._messages(record, first), self.responses.system_messages(record))
        if not messages:
            return ()
        own = record.systems[record.earlier_systems :]
        waiting = [(position, systems[digest]) for position, digest in own if digest in systems]
        raws: list[bytes] = []
        for message in messages[: None if record.background else -1]:
            while waiting and waiting[0][0] < message.position:
                raws.append(waiting.pop(0)[1])
            raws.append(self._as_native(message.raw, dialect))
        return [*raws, *(raw for _, raw in waiting)]

    def _as_native(self, raw: bytes, dialect: Dialect) -> bytes:
        """Return a stored message in its own bytes, or written anew if it came in another dialect."""
        return raw if not raw or self.formats.is_native(raw, dialect) else self.formats.sendable([raw], dialect)[0]

    async def _messages(self, record: ResponseRecord, first: int) -> Sequence[MessageRecord]:
        """Return the messages from ``first`` up to a response; none if they are gone."""
        messages = await self.store.messages(record.conversation, start=first, stop=record.message_count)
        if [message.position for message in messages] != list(range(first, record.message_count + 1)):
            return ()
        if messages and messages[-1].message_id == record.tip.hex():
            return messages
        return await self._answered_messages(record, first)

    async def _answered_messages(self, record: ResponseRecord, first: int) -> Sequence[MessageRecord]:
        """Return the messages as they were when the response was made; its client changed answers since.

        Before a response, the client's wording may be that of the time, or all answers changed at once later.
        """
        originals = await self.store.originals(record.conversation)
        answered = {
            place: original for place, original in originals.items() if place <= record.message_count and original.raw
        }
        if record.message_count not in answered or min(answered) < 2:
            return ()
        stored = await self.store.messages(record.conversation, stop=record.message_count)
        for places in ({record.message_count}, answered.keys()):
            messages = [answered[message.position] if message.position in places else message for message in stored]
            unchanged = min(places) - 1
            read = partial(self.formats.read, [message.raw for message in messages[unchanged:]])
            digests = [message.digest for message in await offloaded(read, [message.raw for message in messages])]
            if linked(bytes.fromhex(stored[unchanged - 1].message_id), digests)[-1] == record.tip:
                return messages[first - 1 :]
        return ()


def with_systems(
    record: ResponseRecord, systems: Mapping[bytes, bytes], messages: Sequence[tuple[int, bytes]]
) -> list[bytes]:
    """Put the system messages of a response's request among its other messages.

    :param systems: their bytes, by digest
    :param messages: the others, each with its place among all of the conversation that are no system messages
    """
    raws: list[bytes] = []
    waiting = [(position, systems[digest]) for position, digest in record.systems if digest in systems]
    for place, raw in messages:
        while waiting and waiting[0][0] <= place:
            raws.append(waiting.pop(0)[1])
        raws.append(raw)
    return raws + [raw for _, raw in waiting]
