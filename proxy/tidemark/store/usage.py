"""Counts what each credential has stored, and notes which credentials an upstream has accepted; for all workers.

The bytes of a turn are noted in memory and written some seconds later, so that no request waits for it. The written
number only grows, since conversations expire without notice. If it comes near the bound, the conversations that are
still stored are weighed, and their sum replaces it.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from tidemark.core.bounded import BoundedCache
from tidemark.core.errors import ImportLimit, StoreError, StoreFull
from tidemark.store import keys
from tidemark.store.commands import Ask
from tidemark.store.scripts import ADD_USAGE

Weigh = Callable[[str], Awaitable[int]]
"""The bytes of memory that a conversation takes, by its id."""
MEGABYTE = 1_048_576
UNPROVEN_BYTES = MEGABYTE
"""The most that a credential may import before an upstream has accepted it: some conversations, as a trial."""
UNPROVEN_BYTES_A_DAY = 16 * MEGABYTE
"""The same bound for all such credentials together, since a client can invent any number of them."""
A_DAY_SECONDS = 86_400
TURN_BYTES = 500
"""What a turn takes beside its messages: hashes, record, entry of the list of turns."""
WRITE_SECONDS = 5.0
"""Between two writes, and between two checks of credentials at their bound; other workers learn of it as soon."""
SOON_SECONDS = 0.05
"""Until a credential's acceptance by an upstream is written: its client may be about to import."""
WEIGH_SECONDS = 300
"""Between two weighings of one credential's conversations, by any worker: each conversation is a round trip."""
PAGE = 500
_CACHED = 20_000
"""Credentials of which this process knows that an upstream accepted them; about 4 MB."""
FULL = (
    "What is stored for this credential has reached store.max_tenant_mb, so nothing more is stored. Forget "
    "conversations, or have the bound raised."
)
STORE_FULL = "The store is full. Forget conversations, or raise store.max_mb."
OUT_OF_MEMORY = "used memory > 'maxmemory'"
"""Part of the server's error when it refuses a write for lack of memory."""
_NUMBER = {name: re.compile(rb"\b%b:(\d+)" % name.encode()) for name in ("used_memory", "maxmemory")}


class OwnerUsage:
    """Counts. The mutable state is what has yet to be written, which credentials are at the bound, and which accepted.

    :param weigh: returns the bytes of memory that a conversation takes
    :param weigh_others: returns the same of all else that a credential has stored
    :param max_bytes: bound of one credential, in the store's memory; None for no bound
    :param own_bytes: the same by owner, for those that have a bound of their own
    :param keep_seconds: the lifetime of an unused credential's numbers; 0 for no limit
    """

    def __init__(
        self,
        ask: Ask,
        weigh: Weigh,
        *,
        max_bytes: int | None,
        keep_seconds: int,
        own_bytes: Mapping[str, int] | None = None,
        weigh_others: Weigh | None = None,
    ) -> None:
        self._ask = ask
        self._weigh_others = weigh_others
        self._weigh = weigh
        self._max = max_bytes
        self._own_bytes = own_bytes or {}
        self._keep = keep_seconds
        self._added: dict[str, int] = {}
        self._proven: set[str] = set()
        self._accepted: BoundedCache[str, bool] = BoundedCache(_CACHED)
        self.full: set[str] = set()
        """The owners whose bound is reached; nothing more is stored for them."""
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def note(self, owner: str, size: int, *, accepted: bool) -> None:
        """Note that a turn was stored.

        :param size: bytes of its messages
        :param accepted: whether an upstream answered it
        """
        self._added[owner] = self._added.get(owner, 0) + TURN_BYTES + size
        if accepted and owner not in self._accepted:
            self._accepted.put(owner, value=True)
            self._proven.add(owner)
            self._later(SOON_SECONDS)
        elif self._timer is None:
            self._later(WRITE_SECONDS)

    async def forgotten(self, owner: str) -> None:
        """Note that a conversation was deleted, and check at once whether its owner is still at the bound.

        :raises StoreUnavailable: the store did not answer in time
        """
        if owner in self.full:
            await self._ask("DEL", keys.weighing(owner))
            self._later(0)

    async def admit(self, owner: str, size: int, now: float, *, trusted: bool) -> bool:
        """Count an import before it is stored.

        :param size: bytes of its lines
        :param now: Unix time, seconds
        :param trusted: whether the operator asks
        :returns: whether it counts against the bound of credentials that no upstream has accepted
        :raises StoreFull: the store, or what one credential may store in it, is full
        :raises ImportLimit: no upstream has accepted the credential, and what it may import is used up
        :raises StoreUnavailable: the store did not answer in time
        """
        await self.settle()
        await self._check_memory(size)
        stored, accepted = await self._ask("HMGET", keys.usage(owner), "bytes", "accepted")
        total, most = int(stored or 0) + size, self._own_bytes.get(owner, self._max)
        if most is not None and total > most:
            total = await self._weighed(owner) + size
        if most is not None and total > most:
            raise StoreFull(FULL)
        if accepted or trusted:
            return False
        await self._reserve(owner, size, now)
        return True

    async def withdraw(self, owner: str, size: int, now: float) -> None:
        """Take back what was counted for an import that was not stored."""
        await self._ask("HINCRBY", keys.usage(owner), "imported", -size)
        await self._ask("DECRBY", keys.unproven(_day(now)), size)

    async def settle(self) -> None:
        """Write now what waits, and check who is still at the bound; an outage is ignored."""
        for _ in range(2):  # a write under way may have begun before the newest turn was noted
            if not (self._added or self._is_due() or (self._task is not None and not self._task.done())):
                return
            self._begin()
            if self._task is not None:
                await asyncio.gather(asyncio.shield(self._task), return_exceptions=True)  # others wait for it too

    def _is_due(self) -> bool:
        return self._timer is not None and self._timer.when() <= asyncio.get_running_loop().time()

    async def aclose(self) -> None:
        await self.settle()
        if self._timer is not None:
            self._timer.cancel()

    def _later(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._begin)

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._write())

    async def _write(self) -> None:
        """Write what was added, and check the bounds; what the store does not take waits."""
        added, self._added = self._added, {}
        proven, self._proven = self._proven, set()
        try:
            for owner in {**added, **dict.fromkeys(self.full)}:
                size, accepted = added.get(owner, 0), int(owner in proven)
                total = await self._ask("EVAL", ADD_USAGE.source, 1, keys.usage(owner), size, accepted, self._keep)
                added.pop(owner, None)
                proven.discard(owner)
                if int(total) == size and not accepted:  # the store was emptied, acceptances included
                    self._accepted.pop(owner, None)
                await self._check(owner, int(total))
        except StoreError:
            for owner, size in added.items():
                self._added[owner] = self._added.get(owner, 0) + size
            self._proven |= proven
        if self.full or self._added:
            self._later(WRITE_SECONDS)

    async def _check(self, owner: str, total: int) -> None:
        """Note whether a credential is at its bound; above half of it, its conversations are weighed now and then."""
        most = self._own_bytes.get(owner, self._max)
        if most is None:
            return
        if 2 * total > most:
            claim = await self._ask("SET", keys.weighing(owner), 1, "NX", "EX", WEIGH_SECONDS)
            total = await self._weighed(owner) if claim is not None else total
        if total > most:
            self.full.add(owner)
        else:
            self.full.discard(owner)

    async def _weighed(self, owner: str) -> int:
        """Weigh the conversations that are still stored, store their sum as the new number, and return it."""
        total, start = 0 if self._weigh_others is None else await self._weigh_others(owner), 0
        while page := await self._ask("ZRANGE", keys.owner_index(owner), start, start + PAGE - 1):
            for conversation in page:
                total += await self._weigh(conversation.decode())
            start += PAGE
        await self._ask("HSET", keys.usage(owner), "bytes", total)
        return total

    async def _check_memory(self, size: int) -> None:
        """Check that the server has memory for an import, if it reports its memory.

        :raises StoreFull: it has none
        """
        facts = await self._ask("INFO", "memory")
        used, most = _number(facts, "used_memory"), _number(facts, "maxmemory")
        if most and used + size > most:
            raise StoreFull(STORE_FULL)

    async def _reserve(self, owner: str, size: int, now: float) -> None:
        """Count an import of a credential that no upstream has accepted, before it is stored.

        :raises ImportLimit: it would be too much
        """
        advice = "Send a chat request with this credential first, or import with the admin token."
        own = await self._ask("HINCRBY", keys.usage(owner), "imported", size)
        together = await self._ask("INCRBY", keys.unproven(_day(now)), size)
        await self._ask("EXPIRE", keys.usage(owner), self._keep or A_DAY_SECONDS)
        await self._ask("EXPIRE", keys.unproven(_day(now)), A_DAY_SECONDS)
        if int(own) <= UNPROVEN_BYTES and int(together) <= UNPROVEN_BYTES_A_DAY:
            return
        await self.withdraw(owner, size, now)
        if int(own) > UNPROVEN_BYTES:
            raise ImportLimit(f"No upstream has accepted this credential yet, so it may import 1 MB in all. {advice}")
        raise ImportLimit(f"Credentials that no upstream has accepted yet have imported enough for today. {advice}")


def _day(now: float) -> int:
    return int(now // A_DAY_SECONDS)


def _number(facts: Any, name: str) -> int:
    """Return a number of ``INFO``, which redis-py has parsed already; 0 if the server gives none, as a cluster."""
    if isinstance(facts, Mapping):
        value = facts.get(name, 0)
        return value if isinstance(value, int) else 0
    text = facts if isinstance(facts, bytes) else str(facts).encode()
    match = _NUMBER[name].search(text)
    return int(match[1]) if match else 0
