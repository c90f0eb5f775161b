"""The indexes of compacted conversations, made in threads and bounded by their bytes.

The step ``recall`` asks for one. Each holds exactly the messages behind one summary's cut, and has the hash over them
as its key, which contains the tenant (promise 8). A later summary's index goes on from the one before.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from tidemark.core.conversation.messages import Message
from tidemark.core.frozen import frozen
from tidemark.core.recall.index import MessageIndex

MAX_BYTES = 64_000_000
"""Of all indexes of a worker; one of 5,000 messages of 80 words takes about 5 MB."""
WAIT_SECONDS = 0.05
"""The longest that a request waits for an index: that of some hundred messages is made by then."""
PATIENCE = 10
"""So many times as long waits a request that had recalled messages before: without them it would miss the cache."""

AT_ONCE_CHARS = 20_000
"""Fewer new characters are indexed at once, which takes about 2 ms: then no request goes without."""


@frozen
class _RecallEntry:
    index: MessageIndex
    count: int
    """Messages behind the cut; the index may go further."""


class RecallIndexes:
    """Makes and keeps indexes. The mutable state is the indexes, last used last, and the tasks that make some.

    :param wait_seconds: the longest that a request waits for an index
    """

    def __init__(self, max_bytes: int = MAX_BYTES, wait_seconds: float = WAIT_SECONDS) -> None:
        self._max_bytes = max_bytes
        self._wait_seconds = wait_seconds
        self._entries: OrderedDict[bytes, _RecallEntry] = OrderedDict()
        self._tasks: dict[bytes, asyncio.Task[MessageIndex]] = {}
        self._growing: set[int] = set()
        """Ids of the indexes that a thread adds to."""

    def begin(self, prefix: bytes, messages: Sequence[Message], previous: bytes | None) -> None:
        """Begin to make an index, unless it is there or being made.

        :param prefix: the hash over the messages
        :param messages: all messages behind the cut
        :param previous: the hash over those behind the cut before, if there was one
        """
        if prefix in self._entries or prefix in self._tasks:
            return
        index = None if previous is None else self._base(previous, len(messages))
        if index is None:
            index = MessageIndex()
        if sum([len(message.raw) for message in messages[index.count :]]) <= AT_ONCE_CHARS:
            self._put(prefix, _completed(index, messages), len(messages))
            return
        self._growing.add(id(index))
        task = asyncio.create_task(asyncio.to_thread(_completed, index, messages))
        self._tasks[prefix] = task
        task.add_done_callback(lambda done: self._take(prefix, index, len(messages), done))

    async def ready(
        self,
        prefix: bytes,
        messages: Sequence[Message],
        previous: bytes | None,
        *,
        patient: bool = False,
    ) -> MessageIndex | None:
        """Return the index of the messages behind a cut; None if it is not made in time.

        :param patient: wait ``PATIENCE`` times as long
        """
        self.begin(prefix, messages, previous)
        if prefix in self._tasks:
            seconds = self._wait_seconds * (PATIENCE if patient else 1)
            await asyncio.wait({self._tasks[prefix]}, timeout=seconds)
        entry = self._entries.get(prefix)
        if entry is None:
            return None
        self._entries.move_to_end(prefix)
        return entry.index

    async def aclose(self) -> None:
        """Wait for the threads that make indexes."""
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _base(self, previous: bytes, count: int) -> MessageIndex | None:
        """Return the index that another one can go on from; None if a fork went on from it before."""
        entry = self._entries.get(previous)
        if entry is None or entry.count > count or id(entry.index) in self._growing:
            return None
        return entry.index if entry.index.count == entry.count else None

    def _take(self, prefix: bytes, index: MessageIndex, count: int, done: asyncio.Task[MessageIndex]) -> None:
        self._tasks.pop(prefix, None)
        self._growing.discard(id(index))
        if done.cancelled() or done.exception() is not None:
            return
        self._put(prefix, index, count)

    def _put(self, prefix: bytes, index: MessageIndex, count: int) -> None:
        self._entries[prefix] = _RecallEntry(index, count)
        while len(self._entries) > 1 and self._size() > self._max_bytes:
            self._entries.popitem(last=False)

    def _size(self) -> int:
        return sum({id(entry.index): entry.index.size for entry in self._entries.values()}.values())


def _completed(index: MessageIndex, messages: Sequence[Message]) -> MessageIndex:
    """Add the messages that an index does not have yet. Any thread may do this."""
    index.add(messages[index.count :])
    return index
