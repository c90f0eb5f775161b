"""Offers the search function to the model of a compacted conversation, if ``recall: {tool: true}`` says so.

It takes the place of the step ``send`` for such a request. The relay, the store and the client see one reply, without
calls of the function and without their answers (docs/adr/0027).

Its streamed reply goes on with the next round if the one before ended in searches alone; what the client has of it
stays.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import UpstreamBroken, UpstreamError
from tidemark.core.lessons import Lessons
from tidemark.core.ports import Clock, UpstreamReply
from tidemark.dialects.sse import WholeEvents
from tidemark.pipeline.plain_replies import ENCODING, DecodedReply, codings_of, decode_whole, is_event_stream
from tidemark.pipeline.search_rounds import RoundParts, SearchOffer, SearchRounds
from tidemark.pipeline.values import BufferedReply, FittedRequest, RequestContext, Watch

_ABOUT_THE_BODY = (400, 404, 405, 415, 422, 500, 501)
"""Statuses with which servers refuse functions: llama.cpp without templates answers 500, OpenRouter 404."""
REFUSED = 400
"""From this status on a reply is an error."""
_NO_ANSWER = "The upstream could not be asked again after a search of the earlier messages: "


class SearchOffers:
    """Offers the function, and sends the requests that do. Its state is which upstreams take it.

    :param timer: seconds, of any origin
    """

    def __init__(self, parts: RoundParts, timer: Clock) -> None:
        self._parts = parts
        self._lessons: Lessons[tuple[str, str]] = Lessons(timer)
        """By address and model."""

    def tokens(self, context: RequestContext) -> int:
        """Return the tokens that the function takes in a compacted request; 0 if it is not offered."""
        function = context.request.dialect.search_function
        if self._offering(context) is None or function is None:
            return 0
        return self._parts.counter.count_text(function.definition, context.route.upstream_model)

    def offer(
        self, context: RequestContext, fitted: FittedRequest, thinking: Watch | None = None
    ) -> SearchOffer | None:
        """Return the request with the function; None if it goes out without.

        :param thinking: what watches over the request's thinking, if its upstream may check that
        """
        summary, function = fitted.summary, context.request.dialect.search_function
        offering = self._offering(context) if fitted.has_search_tokens else None
        if summary is None or function is None or offering is None:
            return None
        return SearchOffer(context, fitted, summary, offering, function, thinking)

    def _offering(self, context: RequestContext) -> ModelRequest | None:
        """Return a request with the function; None if the policy, the client or the upstream does not want it."""
        function = context.request.dialect.search_function
        if function is None or not context.profile.policy.recall_tool:
            return None
        if self._lessons.refuses(context.caller.fingerprint, _place(context)):
            return None
        return function.offering(context.request)

    async def send(self, offer: SearchOffer) -> UpstreamReply:
        """Send the request, and return the reply to the client's.

        A reply that is no stream is returned when all its rounds are over.

        :raises UpstreamError: there was no answer
        """
        rounds = SearchRounds(self._parts, offer)
        reply = await rounds.send(offer.request)
        if reply.status < REFUSED:
            self._lessons.note_taken(offer.context.caller.fingerprint, _place(offer.context))
        if reply.status in _ABOUT_THE_BODY:
            return await self._without_function(rounds, reply)
        if reply.status < REFUSED and is_event_stream(reply.headers, is_requested=offer.request.stream):
            return SearchedStreamReply(rounds, reply)
        return await whole_reply(rounds, reply)

    async def _without_function(self, rounds: SearchRounds, reply: UpstreamReply) -> UpstreamReply:
        """Send the client's own request if the upstream refused the function; else return the refusal."""
        data, context = await read_reply(reply), rounds.offer.context
        if not rounds.offer.format.is_refused(decode_whole(reply.headers, data) or data):
            return BufferedReply(reply.status, reply.headers, data)
        own = await rounds.send(context.request)
        if own.status < REFUSED:
            self._lessons.note_refused(context.caller.fingerprint, _place(context))
        return own


def without_search(context: RequestContext) -> RequestContext:
    """Return a context in which the function is not offered."""
    policy = replace(context.profile.policy, recall_tool=False)
    return replace(context, profile=replace(context.profile, policy=policy))


def _place(context: RequestContext) -> tuple[str, str]:
    return context.route.base_url, context.route.upstream_model


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
