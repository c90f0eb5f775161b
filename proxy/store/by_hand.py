"""Serves compaction by hand: reads the newest system messages, and replaces a summary.

The archive calls it over the connection of the conversations. Every other writer leaves the first summary of a prefix.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from proxy.core.conversation.prefix import split_id
from proxy.core.conversation.summary import PrefixSummary
from proxy.core.errors import RecordUnreadable
from proxy.store import keys, scripts
from proxy.store.codec import Codec
from proxy.store.commands import Ask
from proxy.store.lifetimes import Lifetimes, lifetime
from proxy.store.references import pack_reference

_NEWEST_TURNS = 8
"""The newest turns that are searched for one that can be read."""


class RedisByHand:
    """Stored conversations as compaction by hand sees them; it holds no state.

    :param ttl_seconds: how long an unused conversation is stored; None for no limit
    :param lifetimes: the same and more, by tenant
    """

    def __init__(
        self, ask: Ask, codec: Codec, *, ttl_seconds: float | None, lifetimes: Lifetimes | None = None
    ) -> None:
        self._ask = ask
        self._codec = codec
        self._lifetimes = lifetimes or Lifetimes(lifetime(ttl_seconds))

    async def leading_system_messages(self, conversation: str) -> Sequence[bytes]:
        """Return the system messages that began the conversation's last request, in the client's bytes.

        Only these are read: agents put clocks into them, so a long conversation has thousands.

        :raises StoreUnavailable: the store did not answer in time
        """
        entries = await self._ask("LRANGE", keys.turn_list(conversation), -_NEWEST_TURNS, -1)
        readable = (turn for entry in reversed(entries) if (turn := self._codec.readable_turn(entry)) is not None)
        newest = next(readable, None)
        digests = [digest for position, digest in newest.systems if position == 0] if newest is not None else []
        sealed = await self._ask("HMGET", keys.system_hash(conversation), *digests) if digests else ()
        messages: list[bytes] = []
        for message in sealed:
            if message is not None:
                with contextlib.suppress(RecordUnreadable):
                    messages.append(self._codec.open(message))
        return messages

    async def replace(self, tenant: str, conversation: str, summary: PrefixSummary) -> None:
        """Store a summary of a prefix of ``conversation`` in place of any other one of that prefix.

        :raises StoreUnavailable: the store did not answer in time
        """
        family, own = split_id(conversation)
        ttl, packed = self._lifetimes.of(tenant).idle, self._codec.pack_summary(summary)
        arguments = (own, ttl, summary.created_at, tenant, pack_reference(summary), packed)
        await self._ask("EVAL", scripts.REPLACE_SUMMARY.source, 1, keys.family_prefix(family), b"", 0, *arguments)
