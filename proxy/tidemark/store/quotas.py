"""Counts what tenants and keys use, by one script and one round trip for each request: the adapter of ``QuotaStore``.

All keys of a tenant are in one slot. ``server/quotas.py`` asks for tenants that have a bound, and for nobody else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from tidemark.core.grants import Quota
from tidemark.core.ports import Bound, Taken, Use, UsedUp
from tidemark.store import keys
from tidemark.store.commands import Ask
from tidemark.store.scripts import GIVE_QUOTA, RENEW_QUOTA, TAKE_QUOTA, Script

LEASE_SECONDS = 60
"""After so long without a renewal a request in progress is taken for ended: its worker has died."""


class RedisQuotas:
    """The counts in Redis. All state is the server's."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def take(self, owner: str, bounds: Sequence[Bound], lease: str) -> Taken:
        arguments = [argument for bound in bounds for argument in (bound.name, *_numbers(bound.quota))]
        kind, place, retry, midnight, *counts = map(
            _digits, await self._run(TAKE_QUOTA, owner, lease, LEASE_SECONDS, *arguments)
        )
        triples = zip(counts[::3], counts[1::3], counts[2::3], strict=True)
        uses = [Use(int(requests), float(reset), int(tokens), float(midnight)) for requests, reset, tokens in triples]
        return Taken(cast("UsedUp", kind.decode()), int(place), float(retry), uses)

    async def give_back(self, owner: str, bounds: Sequence[Bound], lease: str, tokens: int) -> None:
        arguments = [part for bound in bounds for part in (bound.name, int(bound.quota.tokens_per_day is not None))]
        await self._run(GIVE_QUOTA, owner, lease, tokens, *arguments)

    async def renew(self, owner: str, bounds: Sequence[Bound], leases: Sequence[str]) -> None:
        names = [bound.name for bound in bounds]
        await self._run(RENEW_QUOTA, owner, LEASE_SECONDS, len(names), *names, *leases)

    async def _run(self, script: Script, owner: str, *arguments: str | float) -> list[bytes | int]:
        answer: list[bytes | int] = await self._ask(
            "EVAL", script.source, 1, keys.quotas(owner), *arguments, briefly=True
        )
        return answer


def _digits(answer: bytes | int) -> bytes:
    """Return a number of a script's answer as its digits, like all others, which Lua would cut to whole ones."""
    return answer if isinstance(answer, bytes) else b"%d" % answer


def _numbers(quota: Quota) -> tuple[int, int, int]:
    return quota.requests_per_minute or 0, quota.tokens_per_day or 0, quota.concurrent or 0
