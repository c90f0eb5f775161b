"""Replaces the stored summary of a prefix, for compaction by hand. Every other writer leaves the first one.

The compactor calls it through a port (``compaction/storing.py``).
"""

from __future__ import annotations

from proxy.core.conversation.prefix import split_id
from proxy.core.conversation.summary import PrefixSummary
from proxy.store import keys, scripts
from proxy.store.codec import Codec
from proxy.store.commands import Ask
from proxy.store.lifetimes import Lifetimes, lifetime
from proxy.store.references import pack_reference


class RedisSummaryReplacement:
    """``SummaryReplacement``; it has no state.

    :param ttl_seconds: how long an unused conversation is stored; None for no limit
    :param lifetimes: the same and more, by tenant
    """

    def __init__(
        self, ask: Ask, codec: Codec, *, ttl_seconds: float | None, lifetimes: Lifetimes | None = None
    ) -> None:
        self._ask = ask
        self._codec = codec
        self._lifetimes = lifetimes or Lifetimes(lifetime(ttl_seconds))

    async def replace(self, tenant: str, conversation: str, summary: PrefixSummary) -> None:
        """Store a summary of a prefix of ``conversation`` in place of any other one of that prefix.

        :raises StoreUnavailable: the store did not answer in time
        """
        family, own = split_id(conversation)
        ttl, packed = self._lifetimes.of(tenant).idle, self._codec.pack_summary(summary)
        arguments = (own, ttl, summary.created_at, tenant, pack_reference(summary), packed)
        await self._ask("EVAL", scripts.REPLACE_SUMMARY.source, 1, keys.family_prefix(family), b"", 0, *arguments)
