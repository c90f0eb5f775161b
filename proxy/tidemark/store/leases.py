"""Takes, renews and releases the leases of summaries: the adapter of ``LeaseStore``.

The first worker that begins a summary takes its lease. A lease is a key that expires, so a worker that dies gives way
in time; its number keeps out a worker that only seemed dead. ``turns.py`` takes the leases of turns.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from typing import Any

from tidemark.core.conversation.prefix import PrefixChain
from tidemark.core.conversation.summary import SummaryRecipe
from tidemark.core.ports import Lease
from tidemark.store import keys
from tidemark.store.commands import Ask
from tidemark.store.references import reference
from tidemark.store.scripts import lua

_TAKE, _KEEP = lua(__file__, "take_lease"), lua(__file__, "keep_lease")


class RedisLeases:
    """Leases in Redis. All state is the server's."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask

    async def take(
        self,
        name: str,
        chain: PrefixChain,
        covered: int,
        recipe: SummaryRecipe,
        seconds: float,
        *,
        absorbed: Sequence[bytes] = (),
    ) -> Lease | None:
        prefix, purpose = keys.family_prefix(chain.family), reference(covered, chain.at(covered), recipe, absorbed)
        token = uuid.uuid4().hex  # a connection that repeats the command repeats this: then the lease is ours already
        value = await self._ask("EVAL", _TAKE, 1, prefix, name, _milliseconds(seconds), purpose, token)
        return None if value is None else Lease(chain.family, name, value)

    async def renew(self, lease: Lease, seconds: float) -> bool:
        return bool(await self._keep(lease, _milliseconds(seconds)))

    async def release(self, lease: Lease) -> None:
        """Release a lease; nothing happens if another worker has it by now.

        :raises StoreUnavailable: the store did not answer in time
        """
        await self._keep(lease, 0)

    async def is_taken(self, family: str, name: str) -> bool:
        return bool(await self._ask("EXISTS", keys.lease(family, name)))

    async def _keep(self, lease: Lease, milliseconds: int) -> Any:
        prefix = keys.family_prefix(lease.family)
        return await self._ask("EVAL", _KEEP, 1, prefix, lease.name, lease.value, milliseconds)


def _milliseconds(seconds: float) -> int:
    return max(1, math.ceil(seconds * 1000))
