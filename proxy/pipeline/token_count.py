"""Counts the input of one request before it is sent: ``POST /v1/responses/input_tokens`` and its like.

It stands beside the pipeline. Nothing is stored. A provider that counts itself is asked, and all others are spared the
request: the counter that plans compactions counts for them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from proxy.core.conversation.request import Dialect
from proxy.core.ports import Caller, Route, TokenCounter, Upstream, UpstreamReply


@dataclass(frozen=True, slots=True)
class InputTokenCounting:
    """Counts requests of any dialect; it has no state."""

    upstream: Upstream
    counter: TokenCounter
    counts_itself: Callable[[Route], bool]
    """Returns whether a route leads to a provider's own address, where requests are counted."""

    async def count(self, dialect: Dialect, body: bytes, caller: Caller, path: str) -> int | UpstreamReply:
        """Return the tokens of a request, or the provider's own answer.

        :param path: of the provider's endpoint, below its base URL
        :raises InvalidRequest, ModelNotFound, TokenizerFailed: there is nothing to count, or no way to
        :raises UpstreamUnreachable, UpstreamTimedOut: the provider gave no answer
        """
        request = await dialect.parse(body, anonymous=True)
        if not request.model:
            return (await self.counter.count(request, "")).total
        route = await self.upstream.resolve(request.model)
        if self.counts_itself(route):
            model = route.upstream_model
            forwarded = body if model == request.model else dialect.body_with_model(request, model)
            return await self.upstream.forward(route, "POST", path, forwarded, caller)
        return (await self.counter.count(request, route.upstream_model)).total
