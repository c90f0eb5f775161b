"""Delivers queued entries to one consumer, in order within each conversation.

``worker.py`` tells it when to read the queue. An entry that the consumer does not take delays its own conversation and
no other. The store counts every attempt before it is made, so that an entry that ends the process every time becomes
a dead letter.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidemark.core.errors import FlushNotTaken, FlushRefused, StoreError, TidemarkError
from tidemark.core.events import Listener
from tidemark.core.flush_events import FlushBuried, FlushDelivered, FlushFailed
from tidemark.core.ports import FlushEntry
from tidemark.delivery.consumer import Consumer, RetryWaits
from tidemark.delivery.queue import RedisFlushQueue

T = TypeVar("T")

MAX_ENTRIES = 1000
"""Entries in this process for one consumer; the others wait in the store. It is large, so that one conversation whose
entries are not taken does not block the others."""
MAX_ENTRY_BYTES = 32 * 2**20
"""Bytes of these entries."""
PAGE = 16
"""Entries that are read at once."""
MAX_DELIVERIES = 4
"""Deliveries to one consumer at the same time, each of another conversation."""
STORE_WAIT_SECONDS = 1.0
"""Pause between two tries to record the outcome of a delivery in the store."""
_MAX_REASON_CHARACTERS = 300


class Courier:
    """Serves one consumer.

    The mutable state is the entries in this process with their sizes, a queue of them for each conversation, and the id
    of the newest entry that was read.

    :param reader: the worker's name among all workers
    :param clock: Unix time in seconds
    """

    def __init__(
        self,
        consumer: Consumer,
        queue: RedisFlushQueue,
        reader: str,
        *,
        waits: RetryWaits,
        emit: Listener,
        clock: Callable[[], float],
    ) -> None:
        self.consumer = consumer
        self._queue = queue
        self._reader = reader
        self._waits = waits
        self._emit = emit
        self._clock = clock
        self._entries: dict[str, deque[FlushEntry]] = {}
        """Entries to deliver, by conversation."""
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._sizes: dict[str, int] = {}
        """Bytes of each entry in this process, by its id."""
        self._newest_id = "0-0"
        self._deliveries = asyncio.Semaphore(MAX_DELIVERIES)

    async def claim(self, idle_seconds: float) -> None:
        """Take over entries that other readers were given and did not finish.

        :raises StoreUnavailable: the store did not answer in time
        """
        for entry in await self._queue.claim(self.consumer.name, self._reader, idle_seconds):
            self._add(entry)

    async def read(self) -> bool:
        """Read new entries, as far as the bounds allow, and return whether there may be more.

        :raises StoreUnavailable: the store did not answer in time
        """
        if not self._free_entries():
            return False
        entries = await self._queue.read(self.consumer.name, self._reader, self._free_entries(), self._newest_id)
        for entry in entries:
            self._add(entry)
        return bool(entries) and self._free_entries() > 0

    def _free_entries(self) -> int:
        return min(PAGE, MAX_ENTRIES - len(self._sizes)) if sum(self._sizes.values()) < MAX_ENTRY_BYTES else 0

    async def idle(self) -> None:
        """Wait until no entry is left in this process."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())
            await asyncio.sleep(0)

    async def drop(self) -> None:
        """Drop all entries of this process. They stay in the queue for the next reader that claims them."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._entries.clear()
        self._tasks.clear()
        self._sizes.clear()

    def _add(self, entry: FlushEntry) -> None:
        self._newest_id = max(self._newest_id, entry.id, key=_position)
        if entry.id in self._sizes:
            return
        self._sizes[entry.id] = len(entry.body)
        entries = self._entries.setdefault(entry.conversation, deque())
        entries.append(entry)
        if entry.conversation not in self._tasks:
            task = asyncio.create_task(self._deliver_all(entry.conversation, entries))
            self._tasks[entry.conversation] = task

    async def _deliver_all(self, conversation: str, entries: deque[FlushEntry]) -> None:
        try:
            while entries:
                await self._deliver(entries[0])
                self._sizes.pop(entries.popleft().id, None)
        finally:  # if this ends early, this worker or the next claims the other entries again
            for entry in entries:
                self._sizes.pop(entry.id, None)
            self._entries.pop(conversation, None)
            self._tasks.pop(conversation, None)

    async def _deliver(self, entry: FlushEntry) -> None:
        """Offer an entry until it is taken, a dead letter, or deleted meanwhile."""
        name = self.consumer.name
        if entry.only and entry.only != name:
            await self._insist(lambda: self._queue.done(name, entry, delivered=False))
            return
        while True:
            async with self._deliveries:  # before the store is asked: a waiting entry may be deleted meanwhile
                attempt = await self._insist(lambda: self._queue.begin(name, entry))
                if not attempt:
                    return
                if attempt > self._waits.attempts:  # the process ended in the last attempt
                    await self._bury(entry, attempt - 1, "the process ended in each attempt")
                    return
                failure = await self._offer(entry, attempt)
            if failure is None:
                await self._insist(lambda: self._queue.done(name, entry))
                self._emit(FlushDelivered(name, entry.conversation, entry.key, attempt, self._clock() - entry.at))
                return
            reason = _reason(failure)
            if isinstance(failure, FlushRefused) or attempt == self._waits.attempts:
                await self._bury(entry, attempt, reason)
                return
            retry_after = failure.retry_after if isinstance(failure, FlushNotTaken) else 0.0
            wait = self._waits.before(attempt, retry_after)
            self._emit(FlushFailed(name, entry.conversation, entry.key, attempt, reason, wait))
            await asyncio.sleep(wait)

    async def _offer(self, entry: FlushEntry, attempt: int) -> Exception | None:
        """Make one attempt, and return its failure; None if the consumer took the entry."""
        try:
            await self.consumer.deliver(entry, attempt)
        except Exception as error:  # noqa: BLE001 - whatever a consumer raises, the entry is offered again
            return error
        return None

    async def _bury(self, entry: FlushEntry, attempt: int, reason: str) -> None:
        name = self.consumer.name
        if await self._insist(lambda: self._queue.bury(name, entry, reason, attempt)):
            self._emit(FlushBuried(name, entry.conversation, entry.key, attempt, reason))

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Repeat a call to the store until it answers: the outcome of a delivery must not be lost."""
        while True:
            try:
                return await call()
            except StoreError:
                await asyncio.sleep(STORE_WAIT_SECONDS)


def _position(id_: str) -> tuple[int, int]:
    milliseconds, _, number = id_.partition("-")
    return int(milliseconds), int(number)


def _reason(failure: Exception) -> str:
    """Return the text of a failure; for a foreign error only its class, since its text may quote a conversation."""
    if isinstance(failure, TidemarkError):
        return str(failure)[:_MAX_REASON_CHARACTERS]
    return type(failure).__name__
