"""Learns from answers whether upstreams keep responses, and says how a refused request goes on.

It is the end of the step ``continue``: ``continuing.py`` has resolved the earlier messages, and asks here what the
upstream keeps.
"""

from __future__ import annotations

import re
from dataclasses import replace

from tidemark.core.conversation.prefix import owner_of
from tidemark.core.conversation.request import ContinuedRequest, ModelRequest
from tidemark.core.conversation.responses import ResponseFormat
from tidemark.core.errors import EarlierResponseUnknown, UpstreamError
from tidemark.core.lessons import Lessons
from tidemark.core.ports import Caller, Clock, Route, Upstream
from tidemark.pipeline.kept_conversations import KeptConversations
from tidemark.pipeline.kept_responses import learning_of_upstream
from tidemark.pipeline.plain_replies import decode_whole, read_whole
from tidemark.pipeline.values import BufferedReply, Exchange, Refused, Result

_UNSUPPORTED = re.compile(
    rb"support|not permitted|not allowed|unexpected|unknown (?:param|field|arg)|unrecogni", re.IGNORECASE
)
"""Says that an upstream keeps no responses, unless the words are those of the client's own id."""
_PLAIN_ID = re.compile(rb"[\w-]*")
"""An id as servers make them. Another one may say anything, and an error may quote it escaped."""

NOT_STORED = "the earlier response is not stored here; the upstream was asked to go on from it"
"""The warning of a request whose earlier messages nobody here knows, and perhaps nobody at all."""


class ContinuedAnswers:
    """Looks at answers. Its state is which upstreams were seen to keep responses, or not to.

    :param conversations: those of the Conversations API that Tidemark keeps
    :param timer: seconds, of any origin
    """

    def __init__(self, upstream: Upstream, conversations: KeptConversations, timer: Clock) -> None:
        self._upstream = upstream
        self._conversations = conversations
        self._lessons: Lessons[str] = Lessons(timer)
        """Which base URLs keep responses."""

    def keeps(self, route: Route, caller: Caller) -> bool | None:
        """Return whether a route's upstream keeps a caller's responses; None if nobody knows."""
        keeps = self._upstream.keeps_responses(route, caller)
        return self._lessons.of(caller.fingerprint, route.base_url) if keeps is None else keeps

    async def checked(self, request: ModelRequest, result: Result, caller: Caller) -> Result | ModelRequest:
        """Look at what the upstream answered to a request that goes on from an earlier response.

        :returns: the result; if the upstream has lost what it should have kept, the request to send in its place
        """
        continuation, responses = request.continuation, request.dialect.responses
        if continuation is None or responses is None or not isinstance(result, Exchange):
            return result
        route = await self._upstream.resolve(request.model)
        if continuation.kept_turn is not None and result.reply.status < 400:
            turn = self._conversations.adding(
                result.turn, continuation.kept_turn, owner_of(caller.fingerprint), responses
            )
            return replace(result, turn=turn)
        if result.reply.status < 400:
            if continuation.received is not None:
                self._lessons.note_taken(caller.fingerprint, route.base_url)
            if continuation.received is not None or not request.continues:
                return result
            return self._handed_on(request.continues, responses, route, result, caller)
        if result.reply.status not in (400, 404):
            return result
        return await self._refused(request, continuation, route.base_url, result, caller)

    def _handed_on(
        self, earlier: str, responses: ResponseFormat, route: Route, result: Exchange, caller: Caller
    ) -> Exchange:
        """Return an exchange whose upstream was asked to go on from a response that Tidemark does not know."""

        def note(repeats: bool) -> None:  # noqa: FBT001 - the one thing that it notes
            if repeats:
                self._lessons.note_taken(caller.fingerprint, route.base_url)

        turn, report = learning_of_upstream(result.turn, responses, earlier, note), result.report
        if not self.keeps(route, caller) and report.warning is None:
            report = replace(report, warning=NOT_STORED)
        return replace(result, turn=turn, report=report)

    async def _refused(
        self,
        request: ModelRequest,
        continuation: ContinuedRequest,
        base_url: str,
        result: Exchange,
        caller: Caller,
    ) -> Result | ModelRequest:
        """Return what to do if an upstream refuses a request, perhaps because of what it refers to."""
        reply, responses = result.reply, request.dialect.responses
        try:
            body = await read_whole(reply)
        except UpstreamError as error:
            return Refused(error, result.report)
        result = replace(result, reply=BufferedReply(reply.status, reply.headers, body))
        body = decode_whole(reply.headers, body) or body
        if responses is None or not responses.refuses_continuation(body):
            return result
        earlier = (request.continues or "").encode()
        if _PLAIN_ID.fullmatch(earlier) and not _UNSUPPORTED.search(earlier) and _UNSUPPORTED.search(body):
            self._lessons.note_refused(caller.fingerprint, base_url)
        if continuation.received is not None:
            return replace(request, continuation=replace(continuation, received=None))
        if not request.continues or b"previous_response_not_found" in body:
            return result
        return Refused(EarlierResponseUnknown(request.continues), result.report)
