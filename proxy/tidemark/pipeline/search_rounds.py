"""The rounds of one request whose model may search: sends each round, and answers the searches between two of them.

``search_offers.py`` begins them, and makes one reply of what comes back (docs/adr/0027).
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.request import ModelRequest, SearchFunctionFormat
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.events import Listener, MessagesSearched
from tidemark.core.frozen import frozen
from tidemark.core.planning.budget import RECALL_SHARE
from tidemark.core.ports import TokenCounter, Upstream, UpstreamReply
from tidemark.core.recall.search_function import MOST_SEARCHES
from tidemark.pipeline.message_search import OriginalsSearch
from tidemark.pipeline.values import FittedRequest, RequestContext, Watch


@frozen
class SearchOffer:
    """A request that offers the search function."""

    context: RequestContext
    fitted: FittedRequest
    """The function is among the tokens of its report."""
    summary: PrefixSummary
    request: ModelRequest
    """The client's, with the function."""
    format: SearchFunctionFormat
    thinking: Watch | None = None
    """What watches over the thinking of the rounds, if the upstream may check that."""


@frozen
class RoundParts:
    """What every round uses."""

    upstream: Upstream
    counter: TokenCounter
    search: OriginalsSearch
    emit: Listener


class SearchRounds:
    """The rounds of one request. Its state is the messages that they have added, and how many there were."""

    def __init__(self, parts: RoundParts, offer: SearchOffer) -> None:
        self.offer = offer
        self._parts = parts
        self._added: tuple[Message, ...] = ()
        self._tokens = offer.fitted.report.local_tokens
        self._number = 0

    def send(self, request: ModelRequest) -> Awaitable[UpstreamReply]:
        """Send a request with the messages of all rounds so far."""
        context, dialect = self.offer.context, request.dialect
        messages = (*self.offer.fitted.messages, *self._added)
        body = dialect.body_with(request, messages, model=context.route.upstream_model)
        if (thinking := self.offer.thinking) is not None:
            return thinking.send(self._parts.upstream, request, body, changed=True)
        return self._parts.upstream.send(context.route, body, context.caller, dialect=dialect, stream=request.stream)

    async def send_next(self, calls: Message) -> UpstreamReply | None:
        """Answer the calls of a round, and send the next one.

        None if the next one would pass the limit, or the round was the last.

        :param calls: the message that has the calls
        :raises UpstreamError: there was no answer
        """
        offer, limit = self.offer, self.offer.context.budget.limit
        if self._number == MOST_SEARCHES:
            return None
        self._number += 1
        message = offer.request.dialect.parse_messages([offer.format.call_message(calls)])[0]
        added = (message, *await self._answers(message, limit - self._tokens - self._count([message])))
        tokens = self._tokens + self._count(added)
        if tokens > limit:
            return None
        self._added, self._tokens = (*self._added, *added), tokens
        if self._number == MOST_SEARCHES:
            return await self.send(offer.format.without_calls(offer.context.request, offer.request))
        return await self.send(offer.request)

    async def _answers(self, message: Message, free_tokens: int) -> tuple[Message, ...]:
        """Return the messages that answer calls, each with an equal share of what is free.

        :param free_tokens: up to the limit
        """
        offer, dialect = self.offer, self.offer.request.dialect
        context, report, function = offer.context, offer.fitted.report, offer.format
        overhead = self._count(dialect.parse_messages([function.result("", "")]))
        # A model searches for more than one question asks: the ceiling of ``auto`` does not hold for it.
        bound = context.profile.policy.max_recall_tokens or int(RECALL_SHARE * context.budget.limit)
        share = min(bound, free_tokens) // max(len(message.calls), 1) - overhead
        in_context = frozenset([message.digest for message in offer.fitted.messages])
        raws: list[bytes] = []
        for call in message.calls:
            answer = await self._parts.search.answer(context, offer.summary, call.arguments, share, in_context)
            self._parts.emit(MessagesSearched(report.conversation, context.profile.name, answer.outcome, self._number))
            raws.append(function.result(call.id, answer.text))
        return dialect.parse_messages(raws)

    def _count(self, messages: Sequence[Message]) -> int:
        model = self.offer.context.route.upstream_model
        return sum([self._parts.counter.count_message(message, model) for message in messages])
