"""The adapter of ``LearnedWindowStore``: what overflows taught, by credential, as the room upstream packs it.

Beside the road of a request: read once by each worker for each credential, written when an upstream has refused a
request for its length.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from proxy.store import keys
from proxy.store.models import Ask

MOST_LESSONS = 256
"""Of one credential; clients choose models' names, so there must be a bound."""
_KEEP = """
local at, field, value, most, ttl = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
if redis.call('HLEN', at) < most or redis.call('HEXISTS', at, field) == 1 then redis.call('HSET', at, field, value) end
if ttl ~= '0' then redis.call('EXPIRE', at, ttl) end
"""


class RedisLearnedWindows:
    """Lessons in Redis. All state is the server's.

    :param ttl_seconds: how long they are kept after the last one; None keeps them for good
    """

    def __init__(self, ask: Ask, *, ttl_seconds: float | None) -> None:
        self._ask = ask
        self._ttl = max(1, math.ceil(ttl_seconds)) if ttl_seconds else 0

    async def lessons(self, owner: str) -> Sequence[bytes]:
        """All that was taught to one credential.

        :raises StoreUnavailable: the store did not answer in time
        """
        found: Sequence[bytes] = await self._ask("HVALS", keys.lessons(owner), briefly=True)
        return found

    async def keep_lesson(self, owner: str, name: str, packed: bytes) -> None:
        """Keep one, in place of an older one of that name.

        :raises StoreUnavailable: the store did not answer in time
        """
        await self._ask("EVAL", _KEEP, 1, keys.lessons(owner), name, packed, MOST_LESSONS, self._ttl)
