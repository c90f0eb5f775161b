"""Reads of a stored conversation only what follows its summary, and nothing older (FR-4.3.1).

The steps ``history`` (``stored_history.py``) and ``continue`` (``unsummarized_resolver.py``) share one
``UnsummarizedReader``, and ask it when the last request was sent with a summary. So a turn costs what its newest
messages cost, however long the conversation is. If the older messages turn out to be needed, the request is made again
with all of them (``EarlierMessagesNeeded``).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.core.bounded import SizedCache
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.records import ConversationRecord
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.frozen import frozen
from tidemark.core.planning.situation import LeftOut
from tidemark.core.ports import ConversationStore, RequestHeads
from tidemark.dialects.message_formats import MessageFormats
from tidemark.pipeline.history_reader import offloaded, sendable_places
from tidemark.pipeline.values import Controls

MAX_LINKS = 200_000
"""Chain hashes that are cached, of all conversations together; each takes about 60 bytes."""


@frozen
class UnsummarizedMessages:
    """The messages of a stored conversation that follow its summary, oldest first."""

    raws: Sequence[bytes]
    """As a client would send them."""
    messages: Sequence[Message]
    """As they are stored."""
    hashes: tuple[bytes, ...]
    """The chain hash at each message of the conversation, from the first one on."""
    left_out: LeftOut


class UnsummarizedReader:
    """Reads what follows a summary.

    Its state is the chain hashes of conversations, by their ids; losing them costs one read.
    """

    def __init__(self, store: ConversationStore, heads: RequestHeads, formats: MessageFormats) -> None:
        self._store = store
        self._heads = heads
        self._formats = formats
        self._hashes: SizedCache[str, tuple[bytes, ...]] = SizedCache(MAX_LINKS, len)

    async def read(
        self, record: ConversationRecord, request: ModelRequest, controls: Controls
    ) -> UnsummarizedMessages | None:
        """Return what follows the summary of the last request; None if all messages must be read.

        :raises StoreUnavailable: the store did not answer in time
        """
        if not _may_leave_out(record, request, controls):
            return None
        covered = await self._heads.summarized_count(record.id)
        if not 0 < covered < record.message_count:
            return None
        records = await self._store.messages(record.id, start=covered + 1, stop=record.message_count)
        if [message.position for message in records] != list(range(covered + 1, record.message_count + 1)):
            return None
        left_out = LeftOut(covered, record.total_tokens - sum([message.tokens for message in records]))
        if left_out.tokens <= 0 or any(message.unreadable for message in records):
            return None
        hashes = await self._hashes_of(record.id, covered, [bytes.fromhex(message.message_id) for message in records])
        if hashes is None:
            return None
        stored = [message.raw for message in records]
        raws = [raw for _, raw in await sendable_places(records, request.dialect, self._formats)]
        messages = await offloaded(lambda: self._formats.read(stored), stored)
        return UnsummarizedMessages(raws, messages, hashes, left_out)

    async def _hashes_of(self, conversation: str, covered: int, newest: Sequence[bytes]) -> tuple[bytes, ...] | None:
        """Return all chain hashes; the one after ``covered`` proves that those before it are the same."""
        cached = self._hashes.get(conversation, ())
        if cached[covered : covered + 1] != (newest[0],):
            ids = await self._store.message_ids(conversation, covered)
            cached = tuple([bytes.fromhex(message_id) for message_id in ids])
            if len(cached) != covered:
                return None
        hashes = (*cached[:covered], *newest)
        self._hashes.put(conversation, hashes)
        return hashes


def has_its_calls(messages: Sequence[Message]) -> bool:
    """Return whether the call of each result is among the messages, so that none was left out."""
    calls: set[str] = set()
    for message in messages:
        if message.answers is not None and message.answers not in calls:
            return False
        calls.update([call.id for call in message.calls])
    return True


def _may_leave_out(record: ConversationRecord, request: ModelRequest, controls: Controls) -> bool:
    """Return whether a request may go out with its summary, as the last one of its conversation did."""
    return (
        record.summary_count > 0
        and record.model == request.model
        and record.lost_reply_position != record.message_count
        and controls.mode == "auto"
        and controls.retention is None
        and request.continuation is None
        and not request.left_to_upstream
    )
