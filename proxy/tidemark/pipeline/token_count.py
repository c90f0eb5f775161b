"""Counts the input of one request before it is sent: ``POST /v1/responses/input_tokens`` and its like.

It stands beside the pipeline. Nothing is stored. A provider that counts itself is asked, and all others are spared the
request: the counter that plans compactions counts for them.
"""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus

from tidemark.core.conversation.request import Dialect, ModelRequest
from tidemark.core.errors import DialectNotServed
from tidemark.core.frozen import frozen
from tidemark.core.lessons import Lessons
from tidemark.core.ports import Caller, Route, TokenCounter, Upstream, UpstreamReply
from tidemark.pipeline.bound_thinking import without_thinking
from tidemark.pipeline.continuing import ContinuedRequests
from tidemark.pipeline.plain_replies import UNSERVED, decode_whole, read_whole
from tidemark.pipeline.refused_items import readable_body
from tidemark.pipeline.shared_accounts import SharedAccounts
from tidemark.pipeline.values import BufferedReply


@frozen
class InputTokenCounting:
    """Counts requests of any dialect. Its state is which upstreams do not count."""

    upstream: Upstream
    counter: TokenCounter
    counts_itself: Callable[[Route], bool]
    """Returns whether a route leads to a provider's own address, where requests are counted."""
    lessons: Lessons[tuple[str, str, str]]
    """Which base URLs count, by model and path."""
    accounts: SharedAccounts | None = None
    """Knows whose the files of a request are; None if no provider is asked with a configured key."""
    continued: ContinuedRequests | None = None
    """Resolves earlier responses and items, which count; None if nothing is stored of them."""

    async def count(
        self, dialect: Dialect, body: bytes, caller: Caller, path: str, *, asks_any: bool = False
    ) -> int | UpstreamReply:
        """Return the tokens of a request, or the provider's own answer.

        :param path: of the provider's endpoint, below its base URL, with its query
        :param asks_any: whether an upstream of another address is asked, too, until it does not have the endpoint
        :raises InvalidRequest, ModelNotFound, TokenizerFailed: there is nothing to count, or no way to
        :raises EarlierResponseUnreachable, ItemNotFound, ObjectNotFound: the provider would be asked about something
            of another tenant
        :raises StoreUnavailable: nobody knows at present whether it would
        :raises UpstreamUnreachable, UpstreamTimedOut: the provider gave no answer
        """
        request = await dialect.parse(body, anonymous=True)
        if not request.model:
            return (await self.counter.count(request, "")).total
        if self.continued is not None:
            request = await self.continued.resolve(request, caller)
        route = await self.upstream.resolve(request.model)
        question = (route.base_url, route.upstream_model, path.partition("?")[0])
        speaks = not route.dialects or dialect.name in route.dialects  # what is configured is not asked
        if speaks and (
            self.counts_itself(route) or (asks_any and not self.lessons.refuses(caller.fingerprint, question))
        ):
            if self.accounts is not None:
                await self.accounts.check_mentioned(route, request, caller)
            reply = await self._ask(request, route, caller, path)
            if reply is not None:
                if reply.status < HTTPStatus.BAD_REQUEST:
                    self.lessons.note_taken(caller.fingerprint, question)
                return reply
            self.lessons.note_refused(caller.fingerprint, question)
        return (await self.counter.count(request, route.upstream_model)).total

    async def _ask(self, request: ModelRequest, route: Route, caller: Caller, path: str) -> UpstreamReply | None:
        """Return the provider's answer; None if it does not have the endpoint."""
        if request.continuation is not None and request.continuation.received is not None:
            request = request.continuation.received
        model = route.upstream_model
        body = request.body if model == request.model else request.dialect.body_with_model(request, model)
        try:
            reply = await self.upstream.forward(route, "POST", path, body, caller)
        except DialectNotServed:
            return None
        if reply.status == HTTPStatus.BAD_REQUEST and (form := request.dialect.bound_thinking) and form.is_in(body):
            refusal = await read_whole(reply)
            if form.refused_place(decode_whole(reply.headers, refusal) or refusal) is None:
                return BufferedReply(reply.status, reply.headers, refusal)
            # The client's whole history is counted, and some of its thinking was made behind a summary.
            reply = await self.upstream.forward(route, "POST", path, without_thinking(form, body), caller)
        if (responses := request.dialect.responses) is not None:
            reply, again = await readable_body(reply, body, responses)
            if again is not None:
                reply = await self.upstream.forward(route, "POST", path, again, caller)
        if reply.status not in UNSERVED:
            return reply
        refusal = await read_whole(reply)  # one that names the model is about the model
        return BufferedReply(reply.status, reply.headers, refusal) if b"model" in refusal.lower() else None
