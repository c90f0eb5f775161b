"""A courier: takes a consumer's entries from the queue and delivers them, in order within each conversation.

Below the worker, which says when to look. An entry that is not taken holds up its own conversation and no other; every
attempt is counted in the store before it is made, so that an entry that ends the process is a dead letter in the end.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from proxy.core.errors import FlushNotTaken, FlushRefused, StoreError, TidemarkError
from proxy.core.events import FlushBuried, FlushDelivered, FlushFailed, Listener
from proxy.core.ports import FlushEntry, FlushQueue
from proxy.memory_flush.consumer import Consumer, Waits

T = TypeVar("T")

MOST_HELD = 1000
HELD_BYTES = 32 * 2**20
"""Entries in this process for one consumer; the others wait in the store. So much that one conversation whose entries
are not taken does not keep the others' out."""
PAGE = 16
"""Entries taken in at once."""
MOST_AT_ONCE = 4
"""Deliveries under way to one consumer, each of another conversation."""
STORE_WAIT_SECONDS = 1.0
"""Between two tries to tell the store what became of an entry."""
_REASON_CHARACTERS = 300


class Courier:
    """Serves one consumer.

    The mutable state is the entries that are held, with their sizes, a line of them for each conversation; and the last
    one of the queue that ever came in.
    """

    def __init__(
        self,
        consumer: Consumer,
        queue: FlushQueue,
        reader: str,
        *,
        waits: Waits,
        emit: Listener,
        clock: Callable[[], float],
    ) -> None:
        self.consumer = consumer
        self._queue = queue
        self._reader = reader
        self._waits = waits
        self._emit = emit
        self._clock = clock
        self._lines: dict[str, deque[FlushEntry]] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._held: dict[str, int] = {}
        self._last = "0-0"
        self._at_once = asyncio.Semaphore(MOST_AT_ONCE)

    async def claim(self, idle_seconds: float) -> None:
        """Take over what other readers were given and did not finish.

        :raises StoreUnavailable: the store did not answer in time
        """
        for entry in await self._queue.claim(self.consumer.name, self._reader, idle_seconds):
            self._take(entry)

    async def look(self) -> bool:
        """Take in what is new, as far as there is room; whether there may be more.

        :raises StoreUnavailable: the store did not answer in time
        """
        if not self._room():
            return False
        entries = await self._queue.read(self.consumer.name, self._reader, self._room(), self._last)
        for entry in entries:
            self._take(entry)
        return bool(entries) and self._room() > 0

    def _room(self) -> int:
        return min(PAGE, MOST_HELD - len(self._held)) if sum(self._held.values()) < HELD_BYTES else 0

    async def idle(self) -> None:
        """Wait until nothing is held any more."""
        while self._tasks:
            await asyncio.wait(self._tasks.values())
            await asyncio.sleep(0)

    async def drop(self) -> None:
        """Let go of all that is held; it stays in the queue, and is somebody's who claims it."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._lines.clear()
        self._tasks.clear()
        self._held.clear()

    def _take(self, entry: FlushEntry) -> None:
        self._last = max(self._last, entry.id, key=_place)
        if entry.id in self._held:
            return
        self._held[entry.id] = len(entry.body)
        line = self._lines.setdefault(entry.conversation, deque())
        line.append(entry)
        if entry.conversation not in self._tasks:
            task = asyncio.create_task(self._walk(entry.conversation, line))
            self._tasks[entry.conversation] = task

    async def _walk(self, conversation: str, line: deque[FlushEntry]) -> None:
        try:
            while line:
                await self._settle(line[0])
                self._held.pop(line.popleft().id, None)
        finally:  # whatever ends it early: what is let go is claimed again, by this worker or the next
            for entry in line:
                self._held.pop(entry.id, None)
            self._lines.pop(conversation, None)
            self._tasks.pop(conversation, None)

    async def _settle(self, entry: FlushEntry) -> None:
        """Offer an entry until it is taken, a dead letter, or forgotten meanwhile."""
        name = self.consumer.name
        if entry.only and entry.only != name:
            await self._surely(lambda: self._queue.done(name, entry, delivered=False))
            return
        while True:
            async with self._at_once:  # before the store is asked: who waits here may be forgotten meanwhile
                attempt = await self._surely(lambda: self._queue.begin(name, entry))
                if not attempt:
                    return
                if attempt > self._waits.attempts:  # the process ended in the last one
                    await self._bury(entry, attempt - 1, "the process ended in each attempt")
                    return
                failure = await self._offer(entry, attempt)
            if failure is None:
                await self._surely(lambda: self._queue.done(name, entry))
                self._emit(FlushDelivered(name, entry.conversation, entry.key, attempt, self._clock() - entry.at))
                return
            reason = _reason(failure)
            if isinstance(failure, FlushRefused) or attempt == self._waits.attempts:
                await self._bury(entry, attempt, reason)
                return
            asked = failure.retry_after if isinstance(failure, FlushNotTaken) else 0.0
            wait = self._waits.before(attempt, asked)
            self._emit(FlushFailed(name, entry.conversation, entry.key, attempt, reason, wait))
            await asyncio.sleep(wait)

    async def _offer(self, entry: FlushEntry, attempt: int) -> Exception | None:
        """What came of one attempt; None where the entry was taken."""
        try:
            await self.consumer.deliver(entry, attempt)
        except Exception as error:  # noqa: BLE001 - whatever a consumer raises, it is offered the entry again
            return error
        return None

    async def _bury(self, entry: FlushEntry, attempt: int, reason: str) -> None:
        name = self.consumer.name
        if await self._surely(lambda: self._queue.bury(name, entry, reason, attempt)):
            self._emit(FlushBuried(name, entry.conversation, entry.key, attempt, reason))

    async def _surely(self, tell: Callable[[], Awaitable[T]]) -> T:
        """The store is told, however long it is away: what became of an entry must not be forgotten."""
        while True:
            try:
                return await tell()
            except StoreError:
                await asyncio.sleep(STORE_WAIT_SECONDS)


def _place(id_: str) -> tuple[int, int]:
    """Where an entry stands in the queue."""
    milliseconds, _, number = id_.partition("-")
    return int(milliseconds), int(number)


def _reason(failure: Exception) -> str:
    """Of a foreign error only the kind: its words may quote a conversation."""
    if isinstance(failure, TidemarkError):
        return str(failure)[:_REASON_CHARACTERS]
    return type(failure).__name__
