"""The step ``send``: sends a request as it was fitted, and asks for the provider's counts where they are needed.

It comes after ``fit`` and before the relay. Only streams of calibrated models need counts that nobody asked for; every
other request goes out with the client's own members.
"""

from __future__ import annotations

from collections.abc import Awaitable

from tidemark.core.conversation.request import ModelRequest
from tidemark.core.lessons import Lessons
from tidemark.core.ports import Clock, Upstream, UpstreamReply
from tidemark.pipeline.plain_replies import decode_whole
from tidemark.pipeline.values import BufferedReply, FittedRequest, LeaveOut, RequestContext, Watch


class RequestSender:
    """Sends fitted requests. Its state is which upstreams take the question for counts.

    :param timer: seconds, of any origin
    """

    def __init__(self, upstream: Upstream, timer: Clock) -> None:
        self._upstream = upstream
        self._lessons: Lessons[tuple[str, str, str]] = Lessons(timer)
        """By address, model and dialect."""

    async def send(
        self,
        context: RequestContext,
        fitted: FittedRequest,
        *,
        with_counts: bool,
        thinking: Watch | None = None,
    ) -> tuple[UpstreamReply, LeaveOut | None]:
        """Send a request, and return its reply and what takes out of it what the client did not ask for.

        :param with_counts: whether the provider's own counts of the reply are needed
        :param thinking: what watches over the request's thinking, where its upstream may check that
        :raises UpstreamError: there was no answer
        """
        request = context.request
        counts = request.dialect.stream_counts if with_counts and request.stream else None
        if counts is None:
            return await self._send(context, request, fitted, thinking), None
        credential = context.caller.fingerprint
        key = (context.route.base_url, context.route.upstream_model, request.dialect.name)
        asking = None if self._lessons.refuses(credential, key) else counts.asking(request)
        if asking is None:
            return await self._send(context, request, fitted, thinking), None
        reply = await self._send(context, asking, fitted, thinking)
        if reply.status < 400:
            self._lessons.note_taken(credential, key)
        if not 400 <= reply.status < 500:
            return reply, counts.leave_out
        try:
            body = b"".join([chunk async for chunk in reply.body()])
        finally:
            await reply.close()
        if not counts.is_refused(decode_whole(reply.headers, body) or body) or self._lessons.of(credential, key):
            return BufferedReply(reply.status, reply.headers, body), None
        own = await self._send(context, request, fitted, thinking)
        if own.status < 400:  # else the words of the refusal may be the client's
            self._lessons.note_refused(credential, key)
        return own, None

    def _send(
        self, context: RequestContext, request: ModelRequest, fitted: FittedRequest, thinking: Watch | None
    ) -> Awaitable[UpstreamReply]:
        body = _body(context, request, fitted)
        if thinking is not None:
            return thinking.send(self._upstream, request, body, changed=fitted.changed)
        return self._upstream.send(context.route, body, context.caller, dialect=request.dialect, stream=request.stream)


def _body(context: RequestContext, request: ModelRequest, fitted: FittedRequest) -> bytes:
    """Return the bytes to send: the client's own where nothing changes (promise 1)."""
    model = context.route.upstream_model
    if fitted.changed:
        return request.dialect.body_with(request, fitted.messages, model=model)
    continuation = request.continuation
    if continuation is not None and continuation.received is not None:  # the upstream has the earlier messages itself
        request = continuation.received
    return request.body if model == request.model else request.dialect.body_with_model(request, model)
