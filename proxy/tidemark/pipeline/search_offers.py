"""Offers the search function to the model of a compacted conversation, if ``recall: {tool: true}`` says so.

It takes the place of the step ``send`` for such a request. The relay, the store and the client see one reply, without
calls of the function and without their answers (docs/adr/0027).
"""

from __future__ import annotations

from dataclasses import replace

from tidemark.core.conversation.request import ModelRequest
from tidemark.core.lessons import Lessons
from tidemark.core.ports import Clock, UpstreamReply
from tidemark.pipeline.plain_replies import decode_whole, is_event_stream
from tidemark.pipeline.search_rounds import RoundParts, SearchOffer, SearchRounds
from tidemark.pipeline.searched_replies import REFUSED, SearchedStreamReply, read_reply, whole_reply
from tidemark.pipeline.values import BufferedReply, FittedRequest, RequestContext, Watch

_ABOUT_THE_BODY = (400, 404, 405, 415, 422, 500, 501)
"""Statuses with which servers refuse functions: llama.cpp without templates answers 500, OpenRouter 404."""


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
