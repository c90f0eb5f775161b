"""The step ``replay``: sends a request once more, smaller, after its upstream refused it as too long.

It is the last step. What the refusal says of the model's window is learned for all later requests.

OpenAI answers a streamed request of the Responses API with status 200 and says only in the first events that the input
was too long, LM Studio every streamed request, and OpenRouter some that are not streamed. So the step looks at how an
answer opens, but only if the request may be too long, or the window is unknown. No content of a stream waits: the
events that wait say only that it was begun.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from tidemark.codings.opened_reply import read_opening
from tidemark.core.errors import UpstreamError
from tidemark.core.planning.budget import budget_for
from tidemark.core.ports import Clock, ModelCatalog
from tidemark.pipeline.fit import BudgetFitter
from tidemark.pipeline.notices import replay_warning
from tidemark.pipeline.plain_replies import codings_of, decode_whole
from tidemark.pipeline.values import BufferedReply, Exchange, Progress, Refused, RequestContext, Result
from tidemark.pipeline.walk import Walk

SendAgain = Callable[[RequestContext, Progress], Awaitable[Exchange | Refused]]
REFUSED = 400
"""The status of the same error if the request is not streamed."""
SUSPECT_SHARE = 2
"""A request that takes less than one part of so many of its limit is not too long."""


class Replay:
    """Replays refused requests. It has no state of its own.

    :param again: sends an identified request once more
    """

    def __init__(self, catalog: ModelCatalog, fitter: BudgetFitter, timer: Clock, again: SendAgain) -> None:
        self._catalog = catalog
        self._fitter = fitter
        self._timer = timer
        self._again = again

    async def __call__(self, walk: Walk) -> Result:
        """Return the exchange, or that of the smaller request."""
        exchange = walk.exchange
        if exchange.turn.answered_here or walk.context.mode in ("off", "shadow"):
            return exchange
        context = walk.context
        if exchange.reply.status < 400:
            return await self._replay_opened(context, exchange, walk.progress)
        return await self._replay(context, exchange, walk.progress)

    async def _replay_opened(self, context: RequestContext, exchange: Exchange, progress: Progress) -> Result:
        """Send a request once more if the reply, of status 200, only says that it was too long."""
        exchange, refused = await look_at_opening(context, exchange)
        if refused is None:
            return exchange
        try:
            resent = await self._replay(context, refused, progress)
        except BaseException:  # cancelled, too: no other code has the upstream's reply
            await exchange.reply.close()
            raise
        if isinstance(resent, Exchange) and resent.turn is refused.turn:  # nothing could be made smaller
            return exchange
        await exchange.reply.close()
        return resent

    async def _replay(self, context: RequestContext, refused: Exchange, progress: Progress) -> Exchange | Refused:
        """Send a request once more, smaller, after the upstream refused it as too long.

        :param refused: the exchange with an error as its reply, of whatever kind
        """
        try:
            body = b"".join([chunk async for chunk in refused.reply.body()])
        except UpstreamError as error:
            return Refused(error, refused.report)
        finally:
            await refused.reply.close()
        answer = replace(refused, reply=BufferedReply(refused.reply.status, refused.reply.headers, body))
        profile = await self._catalog.learn(
            context.route,
            context.caller,
            context.profile,
            status=refused.reply.status,
            body=decode_whole(refused.reply.headers, body) or body,
            sent_tokens=refused.report.local_tokens,
            factor=context.measure.factor,
            asked_tokens=context.request.max_output_tokens,
        )
        if profile is None:
            return answer
        budget = budget_for(profile, context.request.max_output_tokens, context.controls.retention)
        measure = replace(context.measure, budget=budget, factor=max(context.measure.factor, profile.density))
        request = replace(context.request, left_to_upstream="")  # the upstream had its turn
        smaller = replace(context, request=request, profile=profile, measure=measure, put_in_use=refused.summary)
        smaller = replace(smaller, started=self._timer())
        if not self._fitter.could_shrink(smaller):
            return answer
        resent = await self._again(smaller, progress)
        warning = replay_warning(context.profile, profile, resent.report.warning)
        return replace(resent, report=replace(resent.report, warning=warning))


async def look_at_opening(context: RequestContext, exchange: Exchange) -> tuple[Exchange, Exchange | None]:
    """Look at the first events of a stream, or at a body.

    :returns: the exchange to go on with; if its reply only says that the request was refused, the same refusal
        as an answer with an error's status, else None
    """
    reply = exchange.reply
    if not _may_be_too_long(context, exchange) or codings_of(reply.headers):
        return exchange, None
    opened, error = await read_opening(reply, context.request.dialect.opening_error)
    refused = replace(exchange, reply=BufferedReply(REFUSED, reply.headers, error)) if error else None
    return replace(exchange, reply=opened), refused


def _may_be_too_long(context: RequestContext, exchange: Exchange) -> bool:
    """Return whether the upstream may find an accepted request too long, as far as its size is known here."""
    request, report = context.request, exchange.report
    if exchange.reply.status >= REFUSED:
        return False
    at_upstream = request.continuation is not None and bool(request.continuation.upstream_has)
    is_unknown = at_upstream or bool(request.left_to_upstream) or context.profile.window.source == "default"
    return is_unknown or report.tokens_after * SUSPECT_SHARE > report.limit
