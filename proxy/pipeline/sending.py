"""The step ``send``: sends a request as it was fitted, and asks for the provider's counts where they are needed.

It comes after ``fit`` and before the relay. Only streams of calibrated models need counts that nobody asked for; every
other request goes out with the client's own members.
"""

from __future__ import annotations

from collections.abc import Awaitable

from proxy.core.bounded import BoundedCache
from proxy.core.conversation.request import ModelRequest
from proxy.core.ports import Upstream, UpstreamReply
from proxy.pipeline.plain_replies import decode_whole
from proxy.pipeline.values import BufferedReply, FittedRequest, LeaveOut, RequestContext

MAX_REFUSING = 1024
"""Upstreams that are remembered because they refuse the question; a configuration names few."""


class RequestSender:
    """Sends fitted requests. Its state is which upstreams refuse to be asked for counts."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._refusing: BoundedCache[tuple[str, str, str], None] = BoundedCache(MAX_REFUSING)
        """Address, model and dialect of each."""

    async def send(
        self, context: RequestContext, fitted: FittedRequest, *, with_counts: bool
    ) -> tuple[UpstreamReply, LeaveOut | None]:
        """Send a request, and return its reply and what takes out of it what the client did not ask for.

        :param with_counts: whether the provider's own counts of the reply are needed
        :raises UpstreamError: there was no answer
        """
        request = context.request
        counts = request.dialect.stream_counts if with_counts and request.stream else None
        key = (context.route.base_url, context.route.upstream_model, request.dialect.name)
        asking = counts.asking(request) if counts is not None and key not in self._refusing else None
        if counts is None or asking is None:
            return await self._send(context, request, fitted), None
        reply = await self._send(context, asking, fitted)
        if not 400 <= reply.status < 500:
            return reply, counts.leave_out
        try:
            body = b"".join([chunk async for chunk in reply.body()])
        finally:
            await reply.close()
        if not counts.is_refused(decode_whole(reply.headers, body) or body):
            return BufferedReply(reply.status, reply.headers, body), None
        self._refusing.put(key, None)
        return await self._send(context, request, fitted), None

    def _send(self, context: RequestContext, request: ModelRequest, fitted: FittedRequest) -> Awaitable[UpstreamReply]:
        return self._upstream.send(
            context.route,
            _body(context, request, fitted),
            context.caller,
            dialect=request.dialect,
            stream=request.stream,
        )


def _body(context: RequestContext, request: ModelRequest, fitted: FittedRequest) -> bytes:
    """Return the bytes to send: the client's own where nothing changes (promise 1)."""
    model = context.route.upstream_model
    if fitted.changed:
        return request.dialect.body_with(request, fitted.messages, model=model)
    continuation = request.continuation
    if continuation is not None and continuation.received is not None:  # the upstream has the earlier messages itself
        request = continuation.received
    return request.body if model == request.model else request.dialect.body_with_model(request, model)
