"""The lists of conversations, by credential and of all: written beside the road, since they lie in slots of their own.

After a turn is recorded, its conversation is noted here, and a moment later written by a task of its own. One that was
written in the last minute waits for a sweep, of which there is one a minute. What is lost, by a crash or with an
emptied store, comes back within a minute of the conversation's next turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from proxy.core.bounded import BoundedCache
from proxy.core.conversation.prefix import split_id
from proxy.core.errors import StoreError
from proxy.store import keys
from proxy.store.commands import Ask

PAUSE_SECONDS = 60.0
"""Between two sweeps; a list's order is no older."""
SOON_SECONDS = 0.05
"""Until a new one is written: those of a burst are written together."""
_REMEMBERED = 20_000
"""Conversations that are known to be listed; about 4 MB."""


class Used(NamedTuple):
    """A conversation and its use."""

    owner: str
    conversation: str
    name: str
    """What its client calls it; empty for nothing."""
    at: str
    """Unix time, seconds, as it is stored."""
    ttl_seconds: int
    """After which it is forgotten; 0 for never."""


class Listing:
    """Lists in Redis.

    The mutable state is what is to be written soon and later, where names lead, and what was written and pruned.
    """

    def __init__(self, ask: Ask, longest_seconds: int) -> None:
        """Nothing is written yet.

        :param longest_seconds: after which nobody's conversations are kept unused; 0 for never
        """
        self._ask = ask
        self._longest = longest_seconds
        self._soon: dict[tuple[str, str], Used] = {}
        self._later: dict[tuple[str, str], Used] = {}
        self._leading: BoundedCache[tuple[str, str], str] = BoundedCache(_REMEMBERED)
        self._listed: BoundedCache[tuple[str, str], float] = BoundedCache(_REMEMBERED)
        self._pruned: BoundedCache[str, float] = BoundedCache(_REMEMBERED)
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sweep: asyncio.TimerHandle | None = None

    def note(self, used: Used) -> None:
        """A conversation was used; it is listed soon."""
        entry = (used.owner, used.conversation)
        if used.name:
            self._leading.put((used.owner, used.name), used.conversation)
        loop = asyncio.get_running_loop()
        if loop.time() - self._listed.get(entry, -math.inf) < PAUSE_SECONDS:
            self._later[entry] = used
            if self._sweep is None:
                self._sweep = loop.call_later(PAUSE_SECONDS, self._swept)
            return
        self._later.pop(entry, None)
        self._soon[entry] = used
        if self._timer is None:
            self._timer = loop.call_later(SOON_SECONDS, self._begin)

    async def newest(
        self, owner: str | None, limit: int, before: tuple[float, str] | None = None
    ) -> Sequence[tuple[float, str]]:
        """When they were used last, and the ids of a list's conversations, the newest first.

        :param owner: None for all conversations of everybody
        :param before: the last entry of the page before
        :raises StoreUnavailable: the store did not answer in time
        """
        await self.settle()
        index = keys.everybodys_index() if owner is None else keys.tenant_index(owner)
        top: str | float = "+inf" if before is None else before[0]
        found: list[tuple[float, str]] = []
        skip = 0
        while len(found) < limit:
            flat = await self._ask("ZREVRANGEBYSCORE", index, top, "-inf", "WITHSCORES", "LIMIT", skip, limit + 1)
            page = _pairs(flat)
            found += [entry for entry in page if before is None or _after(entry, before)]
            skip += len(page)
            if len(page) <= limit:
                break
        return found[:limit]

    async def drop(self, owner: str, conversation: str, name: str) -> None:
        """Take a conversation off the lists, and its name away where that leads to no other one.

        :raises StoreUnavailable: the store did not answer in time
        """
        await self.settle()
        self._listed.pop((owner, conversation), None)
        for index in (keys.tenant_index(owner), keys.everybodys_index()):
            await self._ask("ZREM", index, conversation)
        if name:
            await self._unname(keys.name(owner, name), conversation)

    async def settle(self) -> None:
        """Write what waits now."""
        while self._soon or self._later or (self._task is not None and not self._task.done()):
            self._swept()
            if self._task is not None:
                await asyncio.gather(asyncio.shield(self._task), return_exceptions=True)  # not this reader's alone

    async def aclose(self) -> None:
        """Write what waits, and end."""
        await self.settle()
        for timer in (self._timer, self._sweep):
            if timer is not None:
                timer.cancel()

    def _swept(self) -> None:
        """What waits for the sweep is written with what is new."""
        if self._sweep is not None:
            self._sweep.cancel()
            self._sweep = None
        self._soon = {**self._later, **self._soon}
        self._later = {}
        self._begin()

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._written())
        elif self._soon:  # others are being written; this comes after them
            self._timer = asyncio.get_running_loop().call_later(SOON_SECONDS, self._begin)

    async def _written(self) -> None:
        """Write what is to be written soon; what the store does not take is dropped: lists are only a convenience.

        What is noted meanwhile has its own time.
        """
        waiting, self._soon = self._soon, {}
        with contextlib.suppress(StoreError):
            for index, entries in _by_index(waiting.values()).items():
                await self._write(index, entries)
            for used in waiting.values():
                if used.name and self._leading.get((used.owner, used.name), used.conversation) == used.conversation:
                    await self._name(used)
            now = asyncio.get_running_loop().time()
            for entry in waiting:
                self._listed.put(entry, now)

    async def _write(self, index: str, entries: Sequence[Used]) -> None:
        flat = [piece for used in entries for piece in (used.at, used.conversation)]
        await self._ask("ZADD", index, *flat)
        now = asyncio.get_running_loop().time()
        if self._longest and now - self._pruned.get(index, -math.inf) >= PAUSE_SECONDS:
            self._pruned.put(index, now)
            # The longest: a credential may be of several tenants, which keep theirs for different times.
            await self._ask("EXPIRE", index, self._longest)
            oldest = max(float(used.at) for used in entries) - self._longest
            await self._ask("ZREMRANGEBYSCORE", index, "-inf", f"({oldest}")

    async def _unname(self, name: str, conversation: str) -> None:
        """A client may call several by one name: forks of one family, or those of models at two upstreams."""
        led = await self._ask("GET", name)
        family, _ = split_id(conversation)
        if led is not None and led.decode().startswith(family) and await self._ask("GET", keys.head(family)) is None:
            await self._ask("DEL", name)

    async def _name(self, used: Used) -> None:
        lasting = ("EX", used.ttl_seconds) if used.ttl_seconds else ()
        await self._ask("SET", keys.name(used.owner, used.name), used.conversation, *lasting)


def _by_index(waiting: Collection[Used]) -> dict[str, list[Used]]:
    lists: dict[str, list[Used]] = {}
    for used in waiting:
        for index in (keys.tenant_index(used.owner), keys.everybodys_index()):
            lists.setdefault(index, []).append(used)
    return lists


def _pairs(flat: Sequence[Any]) -> list[tuple[float, str]]:
    """What ZREVRANGEBYSCORE answers, by whichever carrier: flat, or in pairs."""
    if flat and isinstance(flat[0], list | tuple):
        return [(float(score), member.decode(errors="replace")) for member, score in flat]
    return [(float(flat[i + 1]), flat[i].decode(errors="replace")) for i in range(0, len(flat), 2)]


def _after(entry: tuple[float, str], before: tuple[float, str]) -> bool:
    """Whether an entry stands behind another in Redis' order: by time, then by name, both falling."""
    return entry < before
