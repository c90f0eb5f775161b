"""Stores what overflows taught of models' windows, by credential.

Each worker reads it once for each credential, and writes when an upstream has refused a request for its length.
``catalog/learned.py`` packs and unpacks the content.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence

from tidemark.core.errors import RecordUnreadable
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.commands import Ask

MOST_LESSONS = 256
"""Of one credential; clients choose models' names, so there must be a bound."""
_KEEP = """
local at, field, value, most, ttl = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4]
if redis.call('HLEN', at) < most or redis.call('HEXISTS', at, field) == 1 then redis.call('HSET', at, field, value) end
if ttl ~= '0' then redis.call('EXPIRE', at, ttl) end
"""


class RedisLearnedWindows:
    """Learned windows in Redis. All state is the server's.

    :param ttl_seconds: how long a credential's windows are stored after the last one; None for no limit
    """

    def __init__(self, ask: Ask, codec: Codec, *, ttl_seconds: float | None) -> None:
        self._ask = ask
        self._codec = codec
        self._ttl = max(1, math.ceil(ttl_seconds)) if ttl_seconds else 0

    async def lessons(self, owner: str) -> Sequence[bytes]:
        """Return all that overflows taught of one credential's models.

        :raises StoreUnavailable: the store did not answer in time
        """
        lessons: list[bytes] = []
        at = keys.lessons(owner)
        for name, sealed in (await self._ask("HGETALL", at, briefly=True)).items():
            with contextlib.suppress(RecordUnreadable):
                lessons.append(self._codec.open(sealed, at, name))
        return lessons

    async def keep_lesson(self, owner: str, name: str, packed: bytes) -> None:
        """Store a lesson, in place of an older one of that name.

        :raises StoreUnavailable: the store did not answer in time
        """
        await self._codec.prepare(owner)
        at = keys.lessons(owner)
        sealed = self._codec.seal(packed, owner, at, name)
        await self._ask("EVAL", _KEEP, 1, at, name, sealed, MOST_LESSONS, self._ttl)
