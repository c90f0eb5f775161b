"""Keeps, for all workers, the newest answer to a turn of stored history with an ``Idempotency-Key``.

It is one key of the conversation, so it is deleted with it.
"""

from __future__ import annotations

import msgspec

from tidemark.core.errors import RecordUnreadable
from tidemark.core.ports import KeptAnswer
from tidemark.store import keys
from tidemark.store.codec import VERSION, Codec, unreadable
from tidemark.store.commands import Ask

_KEEP = """
if redis.call('EXISTS', KEYS[2]) == 1 then redis.call('SET', KEYS[1], ARGV[1], 'EX', ARGV[2]) end
"""
_pack = msgspec.msgpack.Encoder().encode
_ANSWER = msgspec.msgpack.Decoder(KeptAnswer)


class RedisAnswers:
    """``AnswerStore``; it has no state.

    :param redacts: whether texts are changed before they are stored. An answer must stay as it is, so none is stored
    """

    def __init__(self, ask: Ask, codec: Codec, *, redacts: bool = False) -> None:
        self._redacts = redacts
        self._ask = ask
        self._codec = codec

    async def find(self, conversation: str) -> KeptAnswer | None:
        packed = await self._ask("GET", keys.newest_answer(conversation))
        try:
            return None if packed is None else unpack_answer(self._codec, packed, conversation)
        except RecordUnreadable:
            return None

    async def keep(self, owner: str, conversation: str, answer: KeptAnswer, seconds: int) -> None:
        if self._redacts:
            return
        packed = self._codec.seal(VERSION + _pack(answer), owner, "k", conversation)
        names = (keys.newest_answer(conversation), keys.record_hash(conversation))
        await self._ask("EVAL", _KEEP, 2, *names, packed, seconds)


def unpack_answer(codec: Codec, packed: bytes, conversation: str) -> KeptAnswer:
    """Return a kept answer.

    :raises RecordUnreadable: another version wrote it, or its bytes have changed since
    """
    plain = codec.open(packed, "k", conversation)
    if plain[:1] != VERSION:
        raise unreadable(f"version {plain[:1].hex()} of an answer")
    try:
        return _ANSWER.decode(plain[1:])
    except msgspec.MsgspecError as error:
        raise unreadable(str(error)) from error
