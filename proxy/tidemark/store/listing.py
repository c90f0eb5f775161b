"""Lists conversations, by credential and of all, and stores what clients call them.

The lists stand in slots of their own, so a turn's script cannot write them. A turn whose name does not lead to its
conversation yet waits until it does: by that name nobody could find it if this process died first. Other uses are
written a moment later, and those of a conversation that was written in the last minute by a sweep, which comes once a
minute; what a crash loses of them comes back with the next turn. A use that waits while another worker deletes the
conversation is not written any more: each list remembers for ten minutes what was deleted from it.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.prefix import split_id
from tidemark.core.errors import StoreError
from tidemark.core.events import ConversationsExpired, Listener
from tidemark.core.frozen import frozen
from tidemark.store import keys
from tidemark.store.commands import Ask
from tidemark.store.scripts import LIST_ADD, LIST_DROP

PAUSE_SECONDS = 60.0
"""Between two sweeps; a list's order is no older."""
SOON_SECONDS = 0.05
"""Until a use is written that does not wait for the sweep: those of a burst are written together."""
"""Until a new conversation is written: those of a burst are written together."""
DELETED_SECONDS = 600
"""How long a list remembers a deletion; as long as a conversation refuses the turns that began before its deletion."""
_CACHED = 20_000
"""Conversations that this process has listed; about 5 MB."""
_SCANNED, _SCANS = 10_000, 50
"""Entries that one command looks through for an id, and how many commands do so at most."""


@frozen
class Used:
    """A conversation and its last use."""

    owner: str
    conversation: str
    name: str
    """What its client calls it; empty for nothing."""
    at: str
    """Unix time, seconds, as it is stored."""
    ttl_seconds: int
    """Its lifetime after that; 0 for no limit."""
    is_new: bool = False
    """Whether the conversation began with this use, for the first time or after it was deleted."""


class Listing:
    """Lists in Redis.

    The mutable state is what has yet to be written, soon and later, where names lead, and when each was written and
    pruned.

    :param longest_seconds: the longest lifetime of an unused conversation; 0 for no limit
    :param emit: hears how many conversations have expired
    """

    def __init__(self, ask: Ask, longest_seconds: int, emit: Listener = lambda _: None) -> None:
        self._ask = ask
        self._emit = emit
        self._longest = longest_seconds
        self.followers: list[Callable[[str, str], None]] = []
        """Each is given the owner and the id of every conversation that is used."""
        self._soon: dict[tuple[str, str], Used] = {}
        self._later: dict[tuple[str, str], Used] = {}
        self._leading: BoundedCache[tuple[str, str], str] = BoundedCache(_CACHED)
        """By owner and name, the conversation that was used last under it."""
        self._written_names: BoundedCache[tuple[str, str], str] = BoundedCache(_CACHED)
        """By owner and name, the conversation that this process wrote last under it."""
        self._listed_at: BoundedCache[tuple[str, str], float] = BoundedCache(_CACHED)
        self._pruned_at: BoundedCache[str, float] = BoundedCache(_CACHED)
        self._unlimited: set[str] = set()
        """Lists that were written since they got their lifetime."""
        self._lifetime_timer: asyncio.TimerHandle | None = None
        self._limiting: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None

    async def add(self, used: Used) -> None:
        """Note that a conversation was used, and wait until its name leads to it."""
        self.note(used)
        leads_here = self._written_names.get((used.owner, used.name)) == used.conversation and not used.is_new
        if not used.name or leads_here:
            return
        if self._task is not None and not self._task.done():
            await asyncio.wait([self._task])  # it may have begun before
        if (used.owner, used.conversation) in self._soon:
            self._begin()
        if self._task is not None:
            await asyncio.wait([self._task])

    def note(self, used: Used) -> None:
        """Note that a conversation was used; it is listed soon."""
        for follow in self.followers:
            follow(used.owner, used.conversation)
        entry, name = (used.owner, used.conversation), (used.owner, used.name)
        if used.name:  # it leads to this conversation, though another one may be written after it
            self._leading.put(name, used.conversation)
        is_listed = not used.name or self._written_names.get(name) == used.conversation
        loop = asyncio.get_running_loop()
        written_at = self._listed_at.get(entry, -math.inf)
        if is_listed and not used.is_new and loop.time() - written_at < PAUSE_SECONDS:
            self._later[entry] = used
            if self._sweep_timer is None:
                self._sweep_timer = loop.call_later(PAUSE_SECONDS, self._sweep)
            return
        self._later.pop(entry, None)
        self._soon[entry] = used
        if self._timer is None:
            self._timer = loop.call_later(SOON_SECONDS, self._begin)

    async def newest(
        self, owner: str | None, limit: int, before: tuple[float, str] | None = None
    ) -> Sequence[tuple[float, str]]:
        """Return a list's conversations, the last used first: the time of use and the id of each.

        :param owner: None for the conversations of all credentials
        :param before: the last entry of the page before
        :raises StoreUnavailable: the store did not answer in time
        """
        await self.settle()
        top: str | float = "+inf" if before is None else before[0]
        command = ("ZREVRANGEBYSCORE", _index_of(owner), top, "-inf")
        return await self._first(limit, command, lambda entry: before is None or _after(entry, before))

    async def newer(self, owner: str | None, limit: int, after: tuple[float, str]) -> Sequence[tuple[float, str]]:
        """Return the conversations that stand right before an entry of a list, the nearest first.

        :param owner: None for the conversations of all credentials
        :param after: the entry that they were used after
        :raises StoreUnavailable: the store did not answer in time
        """
        await self.settle()
        command = ("ZRANGEBYSCORE", _index_of(owner), after[0], "+inf")
        return await self._first(limit, command, lambda entry: _after(after, entry))

    async def _first(
        self, limit: int, command: Sequence[str | float], accepts: Callable[[tuple[float, str]], bool]
    ) -> Sequence[tuple[float, str]]:
        """Return the first entries that are accepted; many of one time may stand before them."""
        entries: list[tuple[float, str]] = []
        skip = 0
        while len(entries) < limit:
            page = _pairs(await self._ask(*command, "WITHSCORES", "LIMIT", skip, limit + 1))
            entries += [entry for entry in page if accepts(entry)]
            skip += len(page)
            if len(page) <= limit:
                break
        return entries[:limit]

    async def count(self, owner: str | None) -> int:
        return int(await self._ask("ZCARD", _index_of(owner)))

    async def ids_beginning(self, owner: str | None, beginning: str) -> Sequence[tuple[float, str]]:
        """Return the conversations whose ids begin with a text, the last used first; the store looks through its list.

        :param beginning: hex digits
        :raises StoreUnavailable: the store did not answer in time
        """
        await self.settle()
        index, entries, place = _index_of(owner), list[tuple[float, str]](), "0"
        for _ in range(_SCANS):
            following, flat = await self._ask("ZSCAN", index, place, "MATCH", f"{beginning}*", "COUNT", _SCANNED)
            entries += _pairs(flat)
            place = following.decode() if isinstance(following, bytes) else str(following)
            if place == "0":
                break
        return sorted(set(entries), reverse=True)

    async def drop(self, owner: str | None, conversation: str, name: str, until: float) -> None:
        """Remove a conversation from the lists, unless it was used again, and its name if nothing else has it.

        :param owner: None if only the list of all conversations has it
        :param until: Unix time, seconds; a use up to then is not listed later, whichever worker still has to write it
        :raises StoreUnavailable: the store did not answer in time
        """
        await self.settle()
        if owner is not None:
            self._listed_at.pop((owner, conversation), None)
        for index in dict.fromkeys((_index_of(owner), _index_of(None))):
            marks = keys.deleted_from(index)
            await self._ask("EVAL", LIST_DROP.source, 2, index, marks, conversation, until, DELETED_SECONDS)
        if name and owner is not None:
            self._written_names.pop((owner, name), None)
            await self._drop_name(keys.name(owner, name), conversation)

    async def settle(self) -> None:
        """Write now what waits."""
        while self._soon or self._later or (self._task is not None and not self._task.done()):
            self._sweep()
            if self._task is not None:
                await asyncio.gather(asyncio.shield(self._task), return_exceptions=True)  # others wait for it too

    async def aclose(self) -> None:
        await self.settle()
        if self._limiting is not None:
            await self._limiting
        await self._limit()
        for timer in (self._timer, self._sweep_timer, self._lifetime_timer):
            if timer is not None:
                timer.cancel()

    def _sweep(self) -> None:
        """Write what waits for the sweep, together with what is new."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        self._soon = {**self._later, **self._soon}
        self._later = {}
        self._begin()

    def _begin(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is None or self._task.done():
            waiting, self._soon = self._soon, {}
            self._task = asyncio.create_task(self._write(waiting))
        elif self._soon:  # the task writes other entries now; these come after them
            self._timer = asyncio.get_running_loop().call_later(SOON_SECONDS, self._begin)

    async def _write(self, waiting: Mapping[tuple[str, str], Used]) -> None:
        """Write what is due; what the store does not take is dropped, since lists are only a convenience.

        Entries that are noted meanwhile have their own time.
        """
        with contextlib.suppress(StoreError):
            lists = _by_index(waiting.values()).items()
            deletions = await asyncio.gather(*(self._write_index(index, entries) for index, entries in lists))
            deleted = set(itertools.chain.from_iterable(deletions))
            listed = {entry: used for entry, used in waiting.items() if used.conversation not in deleted}
            for used in listed.values():
                if used.name and self._leading.get((used.owner, used.name), used.conversation) == used.conversation:
                    await self._write_name(used)
            now = asyncio.get_running_loop().time()
            for entry in listed:
                self._listed_at.put(entry, now)

    async def _write_index(self, index: str, entries: Sequence[Used]) -> Sequence[str]:
        """Write entries of one list; return the conversations that were deleted since they were used."""
        flat = [piece for used in entries for piece in (used.at, used.conversation)]
        deleted = await self._ask("EVAL", LIST_ADD.source, 2, index, keys.deleted_from(index), *flat)
        await self._limit_index(index, entries)
        return [conversation.decode() for conversation in deleted]

    async def _limit_index(self, index: str, entries: Sequence[Used]) -> None:
        """Give a list its lifetime, and remove what is older than any lifetime; once a minute."""
        if not self._longest:
            return
        loop = asyncio.get_running_loop()
        if loop.time() - self._pruned_at.get(index, -math.inf) < PAUSE_SECONDS:
            self._unlimited.add(index)  # if its last entry was deleted meanwhile, it has begun anew
            if self._lifetime_timer is None:
                self._lifetime_timer = loop.call_later(PAUSE_SECONDS, self._limit_soon)
            return
        self._pruned_at.put(index, loop.time())
        self._unlimited.discard(index)
        # The longest lifetime of all: a credential may be of several tenants, whose lifetimes differ.
        await self._ask("EXPIRE", index, self._longest)
        oldest = max(float(used.at) for used in entries) - self._longest
        expired = int(await self._ask("ZREMRANGEBYSCORE", index, "-inf", f"({oldest}"))
        if expired and index == keys.everybodys_index():  # whoever removes one from the list of all counts it, once
            self._emit(ConversationsExpired(expired))

    def _limit_soon(self) -> None:
        self._lifetime_timer = None
        self._limiting = asyncio.create_task(self._limit())

    async def _limit(self) -> None:
        """Give a lifetime to the lists that were written since they got theirs."""
        indexes, self._unlimited = self._unlimited, set()
        with contextlib.suppress(StoreError):
            for index in indexes:
                await self._ask("EXPIRE", index, self._longest)

    async def _write_name(self, used: Used) -> None:
        lifetime = ("EX", used.ttl_seconds) if used.ttl_seconds else ()
        await self._ask("SET", keys.name(used.owner, used.name), used.conversation, *lifetime)
        self._written_names.put((used.owner, used.name), used.conversation)

    async def _drop_name(self, key: str, conversation: str) -> None:
        """Remove a name, unless another conversation has it.

        A client may use one name for forks of a family, or for models at two upstreams.
        """
        current = await self._ask("GET", key)
        family, _ = split_id(conversation)
        if current is None or not current.decode().startswith(family):
            return
        if await self._ask("GET", keys.head(family)) is None:
            await self._ask("DEL", key)


def _by_index(waiting: Collection[Used]) -> dict[str, list[Used]]:
    lists: dict[str, list[Used]] = {}
    for used in waiting:
        for index in (keys.owner_index(used.owner), keys.everybodys_index()):
            lists.setdefault(index, []).append(used)
    return lists


def _index_of(owner: str | None) -> str:
    return keys.everybodys_index() if owner is None else keys.owner_index(owner)


def _pairs(flat: Sequence[Any]) -> list[tuple[float, str]]:
    """Return the entries that a command answers with scores; redis-py returns pairs, our own connection a flat list."""
    if flat and isinstance(flat[0], list | tuple):
        return [(float(score), member.decode(errors="replace")) for member, score in flat]
    return [(float(flat[i + 1]), flat[i].decode(errors="replace")) for i in range(0, len(flat), 2)]


def _after(entry: tuple[float, str], before: tuple[float, str]) -> bool:
    """Return whether an entry follows another in Redis' order: by time, then by name, both falling."""
    return entry < before
