"""Makes one reply of the rounds in which a model searches, streamed or not.

The relay reads it like any upstream's reply. A stream goes on with the next round if the one before ended in
searches alone; what the client has of it stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tidemark.core.errors import UpstreamBroken, UpstreamError
from tidemark.core.ports import UpstreamReply
from tidemark.dialects.sse import WholeEvents
from tidemark.pipeline.plain_replies import ENCODING, DecodedReply, codings_of, decode_whole, is_event_stream
from tidemark.pipeline.search_rounds import SearchRounds
from tidemark.pipeline.values import BufferedReply

REFUSED = 400
"""From this status on a reply is an error."""
_NO_ANSWER = "The upstream could not be asked again after a search of the earlier messages: "


async def read_reply(reply: UpstreamReply) -> bytes:
    """Read a reply's body, and close it.

    :raises UpstreamBroken: the connection ended before the body did
    """
    try:
        return b"".join([chunk async for chunk in reply.body()])
    finally:
        await reply.close()


async def whole_reply(rounds: SearchRounds, reply: UpstreamReply) -> UpstreamReply:
    """Go through the rounds of a reply that is not streamed, and return the client's.

    :param reply: the first round's
    :raises UpstreamError: a round had no answer
    """
    reader = rounds.offer.format.whole()
    while True:
        data = await read_reply(reply)
        plain = await asyncio.to_thread(decode_whole, reply.headers, data) if codings_of(reply.headers) else data
        if reply.status >= REFUSED or plain is None:
            return BufferedReply(reply.status, reply.headers, data)
        own = reader.read(plain)
        if reader.calls is not None:
            following = await rounds.send_next(reader.calls)
            if following is not None:
                reader.next_round()
                reply = following
                continue
            own = reader.end()
        if own is plain:  # not a byte changes
            return BufferedReply(reply.status, reply.headers, data)
        headers = [line for line in reply.headers if line[0] != ENCODING]
        return BufferedReply(reply.status, headers, own)


class SearchedStreamReply:
    """``UpstreamReply`` of a stream over all its rounds. Its state is the round that is being read.

    :param reply: the first round's
    """

    def __init__(self, rounds: SearchRounds, reply: UpstreamReply) -> None:
        self._rounds = rounds
        self._reader = rounds.offer.format.stream()
        self._reply = _plain(reply)
        self.status = self._reply.status
        self.headers = self._reply.headers

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the client's events.

        :raises UpstreamBroken: a round stopped before it was complete, or the next one could not be asked for
        """
        while True:
            async for events in self._events_of(self._reply):
                yield events
            if self._reader.calls is None:
                return
            following = await self._send_next()
            if following is None:
                yield self._reader.end()
                return
            self._reader.next_round()
            self._reply = following
            if following.status >= REFUSED or not is_event_stream(following.headers, is_requested=True):
                yield await self._late_event()
                return

    async def close(self) -> None:
        await self._reply.close()

    async def _events_of(self, reply: UpstreamReply) -> AsyncIterator[bytes]:
        """Yield the client's events of one round."""
        events, reader = WholeEvents(), self._reader
        async for chunk in reply.body():
            if own := reader.read(events.feed(chunk)):
                yield own
        if events.pending and (own := reader.read(bytes(events.pending))):
            yield own
        await reply.close()

    async def _send_next(self) -> UpstreamReply | None:
        """Send the next round; None if there is none."""
        calls = self._reader.calls
        try:
            following = None if calls is None else await self._rounds.send_next(calls)
        except UpstreamError as error:
            raise UpstreamBroken(_NO_ANSWER + str(error), internal=error.internal) from error
        return None if following is None else _plain(following)

    async def _late_event(self) -> bytes:
        """Return a round's reply that is no stream as an event: an error, or a whole answer."""
        reply = self._reply
        data = await read_reply(reply)
        return self._reader.read(self._rounds.offer.request.dialect.late_reply_event(reply.status, data))


def _plain(reply: UpstreamReply) -> UpstreamReply:
    """Return a reply whose events can be read."""
    codings = codings_of(reply.headers)
    return DecodedReply(reply, codings) if codings else reply
