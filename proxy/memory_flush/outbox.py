"""The outbox: takes what leaves the context from the flow, and queues it in the store while nobody waits.

Between the compactor, which must not be delayed, and the queue. While the store is away, what waits here is bounded and
tried again. What a process that dies leaves behind is made up for by ``recovery.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import OrderedDict
from collections.abc import Callable, Collection

from proxy.core.conversation.flush import Flush, document
from proxy.core.errors import StoreError
from proxy.core.events import FlushDelayed, FlushDropped, FlushQueued, Listener
from proxy.core.ports import ConversationStore, FlushEntry, FlushQueue
from proxy.memory_flush.recovery import note_of

MOST_WAITING = 1000
"""Flushes that wait for the store in one process."""
MOST_BYTES = 64 * 2**20
"""Of their messages."""
FIRST_WAIT_SECONDS = 0.25
LONGEST_WAIT_SECONDS = 10.0
LEAVE_SECONDS = 2.0
"""How long the end of the process waits for what is still here."""
INLINE_BYTES = 64 * 1024
"""A longer document is put together in a thread, as the event loop has requests to serve."""


class Outbox:
    """Implements ``MemoryFlush``. The mutable state is what waits, by key, oldest first.

    :param notes: the same queue over the connection that requests use, where ``queue`` has one of its own; a request
        must not wait behind what others flush
    :param clock: Unix time in seconds
    :param nudge: told that something was queued
    """

    def __init__(
        self,
        queue: FlushQueue,
        store: ConversationStore,
        *,
        notes: FlushQueue | None = None,
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
        """Note that this is about to leave. Where the store does not answer, the summary cannot be kept either.

        Where nothing leaves, as for a summary that is made anew, an earlier note of that key stands: it tells what did.
        """
        if not flush.leaving:
            return
        with contextlib.suppress(StoreError):
            await self._notes.intend(flush.key, note_of(flush, self._clock()))

    def put(self, flush: Flush) -> None:
        """Take it; it is queued by a task of its own.

        Of a conversation whose summaries cannot be kept now, every request makes one anew: the newest alone counts.
        """
        if not flush.leaving:
            return
        name = flush.key if flush.stored else f"loose {flush.conversation}"
        self._remove(name)
        self._waiting[name] = (flush, self._clock())
        self._bytes += flush.size
        while len(self._waiting) > MOST_WAITING or (self._bytes > MOST_BYTES and len(self._waiting) > 1):
            oldest = next(iter(self._waiting))
            self._emit(FlushDropped(self._waiting[oldest][0].conversation, "too much waits for the store"))
            self._remove(oldest)
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._send())

    def forget(self, conversations: Collection[str]) -> None:
        """Let go of what waits here of these conversations."""
        for name in [name for name, (flush, _) in self._waiting.items() if flush.conversation in conversations]:
            self._remove(name)

    async def aclose(self) -> None:
        """Send what is still here, if that is soon done."""
        if self._task is not None:
            await asyncio.wait([self._task], timeout=LEAVE_SECONDS)
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        for flush, _ in self._waiting.values():
            self._emit(FlushDropped(flush.conversation, "the process ended while the store was away"))

    def _remove(self, name: str) -> None:
        gone = self._waiting.pop(name, None)
        if gone is not None:
            self._bytes -= gone[0].size

    async def _send(self) -> None:
        wait = FIRST_WAIT_SECONDS
        while self._waiting:
            name, (flush, at) = next(iter(self._waiting.items()))
            try:
                await self._queued(flush, at)
            except StoreError as error:
                self._emit(FlushDelayed(len(self._waiting), error.internal or str(error)))
                await asyncio.sleep(wait)
                wait = min(2 * wait, LONGEST_WAIT_SECONDS)
                continue
            except Exception as error:  # noqa: BLE001 - one that cannot be told must not hold up the others
                self._emit(FlushDropped(flush.conversation, type(error).__name__))
            wait = FIRST_WAIT_SECONDS
            if self._waiting.get(name) == (flush, at):
                self._remove(name)

    async def _queued(self, flush: Flush, at: float) -> None:
        if not flush.stored:
            # It was made without the store, so what had left before was not known.
            known = await self._store.recall(flush.chain, flush.summary.recipe)
            flush = flush.after(known.summary) if known.summary else flush
        if not flush.leaving:
            return
        small = flush.size < INLINE_BYTES
        body = document(flush, at) if small else await asyncio.to_thread(document, flush, at)
        entry = FlushEntry(flush.key, flush.tenant, flush.conversation, body, at)
        if await self._queue.add(entry):
            self._emit(FlushQueued(flush.conversation, flush.key, len(flush.leaving), self._clock() - at))
            self._nudge()
