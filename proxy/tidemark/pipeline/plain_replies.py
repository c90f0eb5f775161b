"""Undoes the content coding of a reply whose upstream compresses although Tidemark asked it not to.

Such a reply is carried as it came, and a decoded copy is read for the history (``pipeline/relay.py``). The client
gets it decoded only if other bytes join it: a comment has begun the response, an error event may follow, or an event
is left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace

from tidemark.codings.decoders import DECODE_ERRORS, DECODERS, Decoder, coding_names
from tidemark.core.errors import UpstreamBroken
from tidemark.core.ports import Headers, UpstreamReply
from tidemark.pipeline.values import Exchange

ENCODING = b"content-encoding"
UNSERVED = frozenset({404, 405, 501})
"""Statuses of an upstream that has no such path, or nothing of that id."""
MAX_CODINGS = 3
"""The most codings of one reply; servers use one, and each needs its own pass over the bytes."""
MAX_PLAIN_BYTES = 2**26
"""64 MiB, the most of one reply that is decoded. What is carried has no such bound."""
_TOO_LONG = "The upstream answered with more than {most_bytes:,} bytes to a request whose answer is short."
_UNREADABLE = "The upstream of this model compresses its answers, and this one cannot be decompressed; send it again."


def codings_of(headers: Headers) -> list[str]:
    """Return the codings of a reply in the order in which they were applied; nearly always there are none."""
    for name, _ in headers:
        if name == ENCODING:
            return coding_names([value for other, value in headers if other == ENCODING])
    return []


def is_event_stream(headers: Headers, *, is_requested: bool) -> bool:
    """Return whether a reply is an event stream; if one was requested, the server may name its type oddly."""
    for name, value in headers:
        if name == b"content-type":
            kind = value.split(b";")[0].strip().lower()
            return kind == b"text/event-stream" or (is_requested and kind != b"application/json")
    return is_requested


def are_known(codings: Sequence[str]) -> bool:
    """Return whether the codings can be undone."""
    return len(codings) <= MAX_CODINGS and all(coding in DECODERS for coding in codings)


class ReplyDecoder:
    """Decodes one reply piece by piece. Its state is that of its decoders, and how much they gave.

    :param codings: of ``are_known`` names, in the order in which they were applied
    """

    def __init__(self, codings: Sequence[str]) -> None:
        self._decoders = [DECODERS[coding]() for coding in reversed(codings)]
        self._size = 0

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Take in the next bytes, and yield what they become; raise one of ``DECODE_ERRORS``."""
        for piece in _through(self._decoders, data):
            self._size += len(piece)
            if self._size > MAX_PLAIN_BYTES:
                message = f"it becomes more than {MAX_PLAIN_BYTES} bytes"
                raise ValueError(message)
            yield piece


async def read_whole(reply: UpstreamReply, most_bytes: int = MAX_PLAIN_BYTES) -> bytes:
    """Read the body of a reply to a request that is no model request, and close it.

    Only errors among such replies have a bound of their own (``limits.max_error_mb``).

    :raises UpstreamBroken: the connection ended before the body did, or the body is longer than ``most_bytes``
    """
    pieces: list[bytes] = []
    size = 0
    try:
        async for piece in reply.body():
            size += len(piece)
            if size > most_bytes:
                raise UpstreamBroken(_TOO_LONG.format(most_bytes=most_bytes))
            pieces.append(piece)
    finally:
        await reply.close()
    return b"".join(pieces)


def decode_whole(headers: Headers, data: bytes) -> bytes | None:
    """Return a whole body without its codings; None if they cannot be undone. It may take long."""
    codings = codings_of(headers)
    if not codings or not data:
        return data
    if not are_known(codings):
        return None
    try:
        return b"".join(ReplyDecoder(codings).pieces(data))
    except DECODE_ERRORS:
        return None


def plain_where_needed(exchange: Exchange, *, is_begun: bool, is_stream: bool) -> Exchange:
    """Return the exchange with a reply that is decoded for the client, if nothing else would do.

    :param is_begun: whether the response has begun, so that its headers name no coding
    """
    reply, turn = exchange.reply, exchange.turn
    codings = codings_of(reply.headers)
    if not codings:
        return exchange
    is_changed = is_stream and (turn.give_up is not None or turn.leave_out is not None)
    if is_begun or (is_changed and are_known(codings)):
        return replace(exchange, reply=DecodedReply(reply, codings))
    return exchange


class DecodedReply:
    """An ``UpstreamReply`` without its codings.

    :param codings: those of the reply
    """

    def __init__(self, reply: UpstreamReply, codings: Sequence[str]) -> None:
        self.status = reply.status
        self.headers: Headers = [line for line in reply.headers if line[0] != ENCODING]
        self.is_unreadable = False
        """Whether the bytes turned out to be of another coding."""
        self._reply = reply
        self._codings = codings

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the decoded pieces.

        :raises UpstreamBroken: the bytes cannot be decoded
        """
        try:
            if not are_known(self._codings):
                raise ValueError(", ".join(self._codings)[:80])
            decoder = ReplyDecoder(self._codings)
            async for chunk in self._reply.body():
                for piece in decoder.pieces(chunk):
                    yield piece
                    await asyncio.sleep(0)  # one chunk may become many pieces
        except DECODE_ERRORS as error:
            self.is_unreadable = True
            raise UpstreamBroken(_UNREADABLE, internal=repr(error)) from error

    async def close(self) -> None:
        """Abort the connection, unless the body was read to its end."""
        await self._reply.close()


def _through(decoders: Sequence[Decoder], data: bytes) -> Iterator[bytes]:
    """Yield what bytes become by all decoders, one after another."""
    if not decoders:
        yield data
        return
    for piece in decoders[0].pieces(data):
        yield from _through(decoders[1:], piece)
