"""What compaction by hand needs of the store: the newest system messages, and to replace a summary.

Beside the adapter of conversations, over its connections. Of its own accord the first summary of a prefix stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.core.conversation.prefix import split_id
from proxy.core.conversation.summary import PrefixSummary
from proxy.store import codec, keys, scripts
from proxy.store.lifetimes import Lifetimes, lifetime
from proxy.store.models import Ask

_NEWEST_TURNS = 8
"""So many are looked at for one that can be read."""


class RedisByHand:
    """Stored conversations as compaction by hand sees them; it holds no state.

    :param ttl_seconds: how long what nobody uses is kept; None keeps it for good
    :param lifetimes: the same and more, by tenant
    """

    def __init__(self, ask: Ask, *, ttl_seconds: float | None, lifetimes: Lifetimes | None = None) -> None:
        self._ask = ask
        self._lifetimes = lifetimes or Lifetimes(lifetime(ttl_seconds))

    async def head(self, conversation: str) -> Sequence[bytes]:
        """The system messages that began the conversation's last request, in the client's bytes.

        Only these are read: agents put clocks into them, so a long conversation has thousands.

        :raises StoreUnavailable: the store did not answer in time
        """
        newest = await self._ask("LRANGE", keys.turn_list(conversation), -_NEWEST_TURNS, -1)
        noted = next((turn.systems for one in reversed(newest) if (turn := codec.readable_turn(one)) is not None), ())
        digests = [digest for position, digest in noted if position == 0]
        found = await self._ask("HMGET", keys.system_hash(conversation), *digests) if digests else ()
        return [raw for raw in found if raw is not None]

    async def replace(self, tenant: str, conversation: str, summary: PrefixSummary) -> None:
        """Store a summary of a prefix of ``conversation``, whatever was stored for that prefix before.

        :raises StoreUnavailable: the store did not answer in time
        """
        family, own = split_id(conversation)
        ttl, reference = self._lifetimes.of(tenant).idle, codec.pack_reference(summary)
        given = (own, ttl, summary.created_at, tenant, reference, codec.pack_summary(summary))
        await self._ask("EVAL", scripts.REPLACE_SUMMARY.source, 1, keys.family_prefix(family), b"", 0, *given)
