"""Usage: how much each credential has stored, and which of them an upstream has accepted; of all workers together.

Beside the adapter: what a turn adds is noted in memory and written some seconds later, so that no request waits for
it. What is written only grows, since conversations expire without a word; where it comes near the bound, the
conversations that are still there are weighed, and their sum takes its place.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from proxy.core.bounded import BoundedCache
from proxy.core.errors import ImportLimit, StoreError, StoreFull
from proxy.store import keys
from proxy.store.commands import Ask
from proxy.store.scripts import ADD_USAGE

Weigh = Callable[[str], Awaitable[int]]
"""The bytes of memory that a conversation takes, by its id."""
MEGABYTE = 1_048_576
UNPROVEN_BYTES = MEGABYTE
"""What a credential may import in all before an upstream has accepted it: some talks, so that moving can be tried."""
UNPROVEN_BYTES_A_DAY = 16 * MEGABYTE
"""The same of all such credentials together: anybody can make up any number of them."""
A_DAY_SECONDS = 86_400
TURN_BYTES = 500
"""Of a turn beside its messages: hashes, record, entry of the list of turns."""
WRITE_SECONDS = 5.0
"""Between two writes, and two looks at credentials that are at their bound; other workers know no later."""
SOON_SECONDS = 0.05
"""Until it is written that an upstream accepted a credential: its client may be about to import."""
WEIGH_SECONDS = 300
"""Between two weighings of one credential's conversations, by whichever worker: each is a round trip."""
PAGE = 500
_REMEMBERED = 20_000
"""Credentials that are known to be accepted; about 2 MB."""
FULL = (
    "What is stored for this credential has reached store.max_tenant_mb, so nothing more is stored. Forget "
    "conversations, or have the bound raised."
)
STORE_FULL = "The store is full. Forget conversations, or raise store.max_mb."
OUT_OF_MEMORY = "used memory > 'maxmemory'"
"""In the server's words, where it refuses a write for it."""
_NUMBER = {name: re.compile(rb"\b%b:(\d+)" % name.encode()) for name in ("used_memory", "maxmemory")}


class TenantUsage:
    """Counts. The mutable state is what is yet to be written, who is at the bound, and who is known to be accepted.

    :param max_bytes: of one credential, in the store's memory; None for no bound
    :param keep_seconds: how long what is known of a credential is kept unused; 0 for good
    """

    def __init__(self, ask: Ask, weigh: Weigh, *, max_bytes: int | None, keep_seconds: int) -> None:
        self._ask = ask
        self._weigh = weigh
        self._max = max_bytes
        self._keep = keep_seconds
        self._added: dict[str, int] = {}
        self._proven: set[str] = set()
        self._accepted: BoundedCache[str, bool] = BoundedCache(_REMEMBERED)
        self.full: set[str] = set()
        """Whose bound is reached, by owner; read by whoever would store something."""
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def note(self, owner: str, size: int, *, accepted: bool) -> None:
        """A turn was stored.

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
        """A conversation was deleted: whether there is room again is found at once.

        :raises StoreUnavailable: the store did not answer in time
        """
        if owner in self.full:
            await self._ask("DEL", keys.weighing(owner))
            self._later(0)

    async def admit(self, owner: str, size: int, now: float, *, trusted: bool) -> bool:
        """Take an import into account before it is stored.

        :param size: bytes of its lines
        :param now: Unix time, seconds
        :param trusted: whether the operator asks
        :returns: whether it counts among what may be imported before an upstream has accepted the credential
        :raises StoreFull: the store, or what one credential may store in it, is full
        :raises ImportLimit: no upstream has accepted the credential, and what it may import is used up
        :raises StoreUnavailable: the store did not answer in time
        """
        await self.settle()
        await self._find_room(size)
        stored, accepted = await self._ask("HMGET", keys.usage(owner), "bytes", "accepted")
        total = int(stored or 0) + size
        if self._max is not None and total > self._max:
            total = await self._weighed(owner) + size
        if self._max is not None and total > self._max:
            raise StoreFull(FULL)
        if accepted or trusted:
            return False
        await self._reserve(owner, size, now)
        return True

    async def withdraw(self, owner: str, size: int, now: float) -> None:
        """Give back what was counted for an import that was not stored."""
        await self._ask("HINCRBY", keys.usage(owner), "imported", -size)
        await self._ask("DECRBY", keys.unproven(_day(now)), size)

    async def settle(self) -> None:
        """Write what waits now, and look who is still at the bound; in vain where the store does not answer."""
        for _ in range(2):  # what is being written may have begun before the newest was noted
            if not (self._added or self._is_due() or (self._task is not None and not self._task.done())):
                return
            self._begin()
            if self._task is not None:
                await asyncio.gather(asyncio.shield(self._task), return_exceptions=True)  # not this reader's alone

    def _is_due(self) -> bool:
        return self._timer is not None and self._timer.when() <= asyncio.get_running_loop().time()

    async def aclose(self) -> None:
        """Write what waits, and end."""
        await self.settle()
        if self._timer is not None:
            self._timer.cancel()

    def _later(self, seconds: float) -> None:
        """Write after some seconds at the latest."""
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
        """Write what was added, and look whose bound is reached; what the store does not take waits."""
        added, self._added = self._added, {}
        proven, self._proven = self._proven, set()
        try:
            for owner in {**added, **dict.fromkeys(self.full)}:
                size, accepted = added.get(owner, 0), int(owner in proven)
                total = await self._ask("EVAL", ADD_USAGE.source, 1, keys.usage(owner), size, accepted, self._keep)
                added.pop(owner, None)
                proven.discard(owner)
                if int(total) == size and not accepted:  # the store was emptied: what was known there is gone
                    self._accepted.pop(owner, None)
                await self._judge(owner, int(total))
        except StoreError:
            for owner, size in added.items():
                self._added[owner] = self._added.get(owner, 0) + size
            self._proven |= proven
        if self.full or self._added:
            self._later(WRITE_SECONDS)

    async def _judge(self, owner: str, total: int) -> None:
        """Whether a credential is at its bound; from half of it on, its conversations are weighed now and then."""
        if self._max is None:
            return
        if 2 * total > self._max:
            claim = await self._ask("SET", keys.weighing(owner), 1, "NX", "EX", WEIGH_SECONDS)
            total = await self._weighed(owner) if claim is not None else total
        if total > self._max:
            self.full.add(owner)
        else:
            self.full.discard(owner)

    async def _weighed(self, owner: str) -> int:
        """The bytes of the conversations that are still there, which count from now on."""
        total = start = 0
        while page := await self._ask("ZRANGE", keys.tenant_index(owner), start, start + PAGE - 1):
            for conversation in page:
                total += await self._weigh(conversation.decode())
            start += PAGE
        await self._ask("HSET", keys.usage(owner), "bytes", total)
        return total

    async def _find_room(self, size: int) -> None:
        """Pass what the server has memory for, where it tells.

        :raises StoreFull: it has none
        """
        facts = await self._ask("INFO", "memory")
        used, most = _number(facts, "used_memory"), _number(facts, "maxmemory")
        if most and used + size > most:
            raise StoreFull(STORE_FULL)

    async def _reserve(self, owner: str, size: int, now: float) -> None:
        """Count an import of a credential that no upstream has accepted; before it is stored, so that none slip by.

        :raises ImportLimit: it would be too much
        """
        mend = "Send a chat request with this credential first, or import with the admin token."
        own = await self._ask("HINCRBY", keys.usage(owner), "imported", size)
        together = await self._ask("INCRBY", keys.unproven(_day(now)), size)
        await self._ask("EXPIRE", keys.usage(owner), self._keep or A_DAY_SECONDS)
        await self._ask("EXPIRE", keys.unproven(_day(now)), A_DAY_SECONDS)
        if int(own) <= UNPROVEN_BYTES and int(together) <= UNPROVEN_BYTES_A_DAY:
            return
        await self.withdraw(owner, size, now)
        if int(own) > UNPROVEN_BYTES:
            raise ImportLimit(f"No upstream has accepted this credential yet, so it may import 1 MB in all. {mend}")
        raise ImportLimit(f"Credentials that no upstream has accepted yet have imported enough for today. {mend}")


def _day(now: float) -> int:
    return int(now // A_DAY_SECONDS)


def _number(facts: Any, name: str) -> int:
    """A number of ``INFO``: a text, or what redis-py has made of it; 0 where it is not told, as by a cluster."""
    if isinstance(facts, Mapping):
        value = facts.get(name, 0)
        return value if isinstance(value, int) else 0
    text = facts if isinstance(facts, bytes) else str(facts).encode()
    match = _NUMBER[name].search(text)
    return int(match[1]) if match else 0
