"""Previews of regenerated summaries, until somebody uses one or its time is over.

``features/summaries/summary_changes.py`` keeps and reads them. A preview is the whole record that is stored when
somebody uses it, so people use exactly what they saw.
"""

from __future__ import annotations

import msgspec

from tidemark.core.conversation.prefix import split_id
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.store import keys, scripts
from tidemark.store.codec import Codec, unreadable
from tidemark.store.commands import Ask

MAX_PREVIEWS = 8
"""Previews of one conversation; of more the oldest goes."""
ID_BYTES = 16

_pack = msgspec.msgpack.Encoder().encode
_PAIR = msgspec.msgpack.Decoder(tuple[bytes, bytes])


def read_preview(codec: Codec, entry: bytes, family: str) -> tuple[PrefixSummary, PrefixSummary]:
    """Return the summary of a preview, and the one that it was made to replace; raises ``RecordUnreadable``."""
    try:
        summary, present = _PAIR.decode(entry[ID_BYTES:])
    except msgspec.MsgspecError as error:
        raise unreadable(str(error)) from error
    return codec.unpack_summary(summary, family), codec.unpack_summary(present, family)


class RedisPreviews:
    """The previews in Redis. All state is the server's."""

    def __init__(self, ask: Ask, codec: Codec) -> None:
        self._ask = ask
        self._codec = codec

    async def keep(
        self,
        conversation: str,
        preview_id: bytes,
        summary: PrefixSummary,
        present: PrefixSummary,
        seconds: int,
        *,
        owner: str,
    ) -> bool:
        """Store a preview for some seconds, and return whether the conversation is still there.

        :param preview_id: ``ID_BYTES`` random bytes
        :param present: the summary that it was made to replace
        :raises StoreUnavailable: the store did not answer in time
        """
        family, own = split_id(conversation)
        entry = preview_id + _pack([self._codec.pack_summary(record, owner, family) for record in (summary, present)])
        arguments = (b"", 0, own, entry, seconds, MAX_PREVIEWS)
        answer = await self._ask("EVAL", scripts.KEEP_PREVIEW.source, 1, keys.family_prefix(family), *arguments)
        return bool(answer)

    async def read(self, conversation: str, preview_id: bytes) -> tuple[PrefixSummary, PrefixSummary] | None:
        """Return a preview and the summary that it was made to replace; None if it has expired.

        :raises RecordUnreadable: its bytes have changed since
        :raises StoreUnavailable: the store did not answer in time
        """
        for entry in await self._ask("LRANGE", keys.preview_list(conversation), 0, -1):
            if entry[:ID_BYTES] == preview_id:
                return read_preview(self._codec, entry, split_id(conversation)[0])
        return None
