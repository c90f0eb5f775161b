"""Remembers which credential made each object of a provider's account that several share: ids, and no content.

A conversation's responses are written with their turn (``lua/answered.lua``); all else is written when the answer to
its creation comes. Each id has a key of its own, so on a cluster they lie in any slot.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Sequence

from tidemark.core.bounded import BoundedCache
from tidemark.core.errors import StoreError
from tidemark.store import keys
from tidemark.store.commands import CommandSender

REMEMBERED = 4096
"""Ids whose owner a process knows during an outage of the store."""
MOST_READ = 1024
"""Ids that one command reads; the store serves others between two."""
MOST_NOTED = 1024
"""Pairs of credential and account that are noted for the operator."""
_NOTE = """
local at, field, now, most, seconds = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
if redis.call('HEXISTS', at, field) == 1 or redis.call('HLEN', at) < most then redis.call('HSET', at, field, now) end
if seconds > 0 then redis.call('EXPIRE', at, seconds) end
"""


class RedisOwners:
    """Owners in Redis. Its state is bounded caches: the newest owners, for outages, and which pairs are noted.

    :param keep_seconds: how long an owner is known after the last use of what it made; None for no limit
    """

    def __init__(self, sender: CommandSender, keep_seconds: float | None) -> None:
        self._sender = sender
        self._keep_seconds = max(1, math.ceil(keep_seconds)) if keep_seconds else 0
        self._newest: BoundedCache[tuple[str, str], str] = BoundedCache(REMEMBERED)
        self._noted: BoundedCache[tuple[str, str], bool] = BoundedCache(MOST_NOTED)
        self._slots_apart = sender.is_cluster
        """Whether one command cannot read several ids. Some servers turn out to be clusters."""

    async def owners(self, account: str, identifiers: Sequence[str]) -> Sequence[str | None]:
        if not identifiers:
            return []
        try:
            values = [
                value
                for start in range(0, len(identifiers), MOST_READ)
                for value in await self._read(
                    [keys.owned(account, name) for name in identifiers[start : start + MOST_READ]]
                )
            ]
        except StoreError:
            newest = [self._newest.get((account, name)) for name in identifiers]
            if None in newest:
                raise
            return newest
        return [None if value is None else value.decode() for value in values]

    async def claim(self, account: str, identifiers: Sequence[str], owner: str) -> None:
        await self.note(account, identifiers, owner)
        lasting = ("EX", self._keep_seconds) if self._keep_seconds else ()
        await asyncio.gather(
            *[self._sender.ask("SET", keys.owned(account, name), owner, *lasting) for name in identifiers]
        )

    async def renew(self, account: str, identifiers: Sequence[str]) -> None:
        if not self._keep_seconds:
            return
        with contextlib.suppress(StoreError):
            await asyncio.gather(
                *[self._sender.ask("EXPIRE", keys.owned(account, name), self._keep_seconds) for name in identifiers]
            )

    async def note(self, account: str, identifiers: Sequence[str], owner: str) -> None:
        """Note for the operator that a credential uses an account; an outage changes nothing."""
        for name in identifiers:
            self._newest.put((account, name), owner)
        if (account, owner) in self._noted:
            return
        self._noted.put((account, owner), value=True)
        arguments = (f"{owner} {account}", f"{time.time():.0f}", MOST_NOTED, self._keep_seconds)
        with contextlib.suppress(StoreError):
            await self._sender.ask("EVAL", _NOTE, 1, keys.ACCOUNTS, *arguments)

    async def _read(self, names: Sequence[str]) -> Sequence[bytes | None]:
        if not self._slots_apart:
            try:
                values: Sequence[bytes | None] = await self._sender.ask("MGET", *names, briefly=True)
            except StoreError as error:
                if "CROSSSLOT" not in error.internal:
                    raise
                self._slots_apart = True
            else:
                return values
        several: Sequence[bytes | None] = await asyncio.gather(
            *[self._sender.ask("GET", name, briefly=True) for name in names]
        )
        return several
