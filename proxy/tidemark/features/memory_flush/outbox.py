"""Takes flushes from the compaction, and queues them in the store while no request waits.

``compaction/storing.py`` calls it through the port ``MemoryFlush``. During an outage the waiting flushes are bounded,
and sending them is retried. ``recovery.py`` queues what a process left behind that died.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Collection

from tidemark.core.conversation.flush import Flush, document
from tidemark.core.errors import StoreError
from tidemark.core.events import Listener
from tidemark.core.flush_events import FlushDelayed, FlushDropped, FlushQueued
from tidemark.core.ports import ConversationStore, FlushEntry
from tidemark.delivery.queue import RedisFlushQueue
from tidemark.delivery.recovery import note_of

MAX_WAITING = 1000
"""Flushes that wait for the store in one process."""
MAX_WAITING_BYTES = 64 * 2**20
"""Bytes of their messages."""
FIRST_WAIT_SECONDS = 0.25
LONGEST_WAIT_SECONDS = 10.0
CLOSE_SECONDS = 2.0
"""The time that the end of the process waits for flushes to be sent."""
INLINE_BYTES = 64 * 1024
"""A longer document is rendered in a thread, so that the event loop can serve requests."""


class Outbox:
    """Implements ``MemoryFlush``. The mutable state is the waiting flushes, by key, oldest first.

    :param notes: the same queue over the connection that requests use, if ``queue`` has its own connection, so that
        no request waits behind the flushes of others
    :param clock: Unix time in seconds
    :param nudge: called when an entry was queued
    """

    def __init__(
        self,
        queue: RedisFlushQueue,
        store: ConversationStore,
        *,
        notes: RedisFlushQueue | None = None,
        emit: Listener,
        clock: Callable[[], float],
        nudge: Callable[[], None] = lambda: None,
    ) -> None:
        self._queue = queue
        self._notes = notes or queue
        self._store = store
        self._emit = emit
        self._clock = clock
        self._nudge = nudge
        self._waiting: OrderedDict[str, tuple[Flush, float]] = OrderedDict()
        self._bytes = 0
        self._task: asyncio.Task[None] | None = None

    async def intend(self, flush: Flush) -> None:
        """Note in the store that messages are about to leave.

        If the store does not answer, it cannot store the summary either. If no message leaves, as for a summary
        that is made again, an earlier note of that key stays, because it names the messages that left.
        """
        if not flush.leaving:
            return
        with contextlib.suppress(StoreError):
            await self._notes.intend(flush.owner or flush.tenant, flush.key, note_of(flush, self._clock()))

    def put(self, flush: Flush) -> None:
        """Accept a flush, which a task of its own queues.

        If a conversation's summaries cannot be stored now, every request makes one again: only the newest counts.
        """
        if not flush.leaving:
            return
        name = flush.key if flush.stored else f"loose {flush.conversation}"
        self._remove(name)
        self._waiting[name] = (flush, self._clock())
        self._bytes += flush.size
        while len(self._waiting) > MAX_WAITING or (self._bytes > MAX_WAITING_BYTES and len(self._waiting) > 1):
            oldest = next(iter(self._waiting))
            self._emit(FlushDropped(self._waiting[oldest][0].conversation, "too much waits for the store"))
            self._remove(oldest)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send())

    def forget(self, conversations: Collection[str]) -> None:
        """Drop the waiting flushes of deleted conversations."""
        for name in [name for name, (flush, _) in self._waiting.items() if flush.conversation in conversations]:
            self._remove(name)

    async def aclose(self) -> None:
        """Send the waiting flushes, as far as a short time allows."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=CLOSE_SECONDS)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for flush, _ in self._waiting.values():
            self._emit(FlushDropped(flush.conversation, "the process ended while the store was away"))

    def _remove(self, name: str) -> None:
        entry = self._waiting.pop(name, None)
        if entry is not None:
            self._bytes -= entry[0].size

    async def _send(self) -> None:
        wait = FIRST_WAIT_SECONDS
        while self._waiting:
            name, (flush, at) = next(iter(self._waiting.items()))
            try:
                await self._queue_entry(flush, at)
            except StoreError as error:
                self._emit(FlushDelayed(len(self._waiting), error.internal or str(error)))
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT_SECONDS)
                continue
            except Exception as error:  # noqa: BLE001 - a flush that cannot be rendered must not block the others
                self._emit(FlushDropped(flush.conversation, type(error).__name__))
            wait = FIRST_WAIT_SECONDS
            if self._waiting.get(name) == (flush, at):
                self._remove(name)

    async def _queue_entry(self, flush: Flush, at: float) -> None:
        if not flush.stored:
            # The summary was made without the store, so it was unknown which messages had left before. Of the
            # request's system messages only those are known here that the summary absorbed.
            systems = dict.fromkeys(flush.summary.absorbed, 1)
            conversation_state = await self._store.recall(flush.chain, flush.summary.recipe, systems)
            flush = flush.after(conversation_state.summary) if conversation_state.summary else flush
        if not flush.leaving:
            return
        is_small = flush.size < INLINE_BYTES
        body = document(flush, at) if is_small else await asyncio.to_thread(document, flush, at)
        entry = FlushEntry(flush.key, flush.tenant, flush.conversation, body, at, owner=flush.owner)
        if await self._queue.add(entry):
            self._emit(FlushQueued(flush.conversation, flush.key, len(flush.leaving), self._clock() - at))
            self._nudge()
