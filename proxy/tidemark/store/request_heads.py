"""Reads the system messages that began the last request of a conversation.

Stored history and the features ask for them, since no client sends them there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from tidemark.core.conversation.prefix import split_id
from tidemark.core.errors import RecordUnreadable
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.commands import Ask

_NEWEST_TURNS = 8
"""The newest turns that are searched for one that can be read."""


class RedisRequestHeads:
    """``RequestHeads``; it has no state."""

    def __init__(self, ask: Ask, codec: Codec) -> None:
        self._ask = ask
        self._codec = codec

    async def leading_system_messages(self, conversation: str) -> Sequence[bytes]:
        """Return the system messages that began the conversation's last request, in the client's bytes.

        :raises StoreUnavailable: the store did not answer in time
        """
        messages, _ = await self.with_missing(conversation)
        return messages

    async def with_missing(self, conversation: str) -> tuple[Sequence[bytes], str]:
        entries = await self._ask("LRANGE", keys.turn_list(conversation), -_NEWEST_TURNS, -1)
        read, family = self._codec.readable_turn, split_id(conversation)[0]
        readable = (turn for entry in reversed(entries) if (turn := read(entry, family)) is not None)
        newest = next(readable, None)
        digests = [digest for position, digest in newest.systems if position == 0] if newest is not None else []
        sealed = await self._ask("HMGET", keys.system_hash(conversation), *digests) if digests else ()
        messages: list[bytes] = []
        for digest, message in zip(digests, sealed, strict=False):
            if message is not None:
                with contextlib.suppress(RecordUnreadable):
                    messages.append(self._codec.open(message, "y", family, digest))
        missing = str(len(digests) - len(messages)) if len(messages) < len(digests) else ""
        return messages, missing if entries else "unknown"

    async def summarized_count(self, conversation: str) -> int:
        entry = await self._ask("LINDEX", keys.turn_list(conversation), -1)
        turn = self._codec.readable_turn(entry, split_id(conversation)[0]) if entry else None
        return turn.summarized if turn is not None else 0
