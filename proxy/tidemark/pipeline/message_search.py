"""Searches the earlier messages of a compacted conversation for a model that asked for them.

``search_rounds.py`` calls it between two rounds of one request. It searches the request's own messages behind the
summary's cut, by the index that the step ``recall`` uses (docs/adr/0027).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.frozen import frozen
from tidemark.core.ports import TokenCounter
from tidemark.core.recall.index import MessageIndex, ranked
from tidemark.core.recall.passage import handle_of, line_count, message_with, passage_of, read_range, shortened
from tidemark.core.recall.quotation import FRAME_TOKENS, chosen, text_with_calls
from tidemark.core.recall.search_function import (
    BEYOND,
    NO_MESSAGE,
    NO_QUERY,
    NO_RANGE,
    NO_ROOM,
    NO_ROOM_TO_READ,
    NO_TEXT,
    NOT_READY,
    NOTHING,
    SearchCall,
    passage_heading,
    read_call,
    search_result,
)
from tidemark.core.report import RecallOutcome
from tidemark.pipeline.originals import originals_of
from tidemark.pipeline.recall_indexes import RecallIndexes
from tidemark.pipeline.values import RequestContext

MOST_WAITS = 40
"""So often a search waits for an index that is being made.

That is 2 s, after which the model goes on without an answer.
"""
LEAST_TOKENS = FRAME_TOKENS + 32
"""A smaller answer would have no more than its frame."""


@frozen
class SearchAnswer:
    """What answers one call of the search function."""

    text: str
    outcome: RecallOutcome


@frozen
class _OriginalsQuery:
    """What is searched for, and in what."""

    query: str
    originals: Sequence[Message]
    """The messages behind the summary's cut."""
    tokens: Sequence[int]
    """Of each original."""
    max_tokens: int
    in_context: frozenset[bytes]
    model: str


class OriginalsSearch:
    """Searches earlier messages. It has no state but the indexes."""

    def __init__(self, counter: TokenCounter, indexes: RecallIndexes) -> None:
        self._counter = counter
        self._indexes = indexes

    async def answer(
        self,
        context: RequestContext,
        summary: PrefixSummary,
        arguments: str,
        max_tokens: int,
        in_context: frozenset[bytes] = frozenset(),
    ) -> SearchAnswer:
        """Search for what a call asks for.

        :param summary: what stands for the messages that are searched
        :param arguments: of the call, the model's own JSON text
        :param max_tokens: the most that the answer may take
        :param in_context: digests of the messages that the model has already
        """
        call = read_call(arguments)
        if not call.query and not call.handle:
            return SearchAnswer(NO_QUERY, "nothing")
        if max_tokens < LEAST_TOKENS:
            return SearchAnswer(NO_ROOM_TO_READ if call.handle else NO_ROOM, "no_room")
        originals, tokens = originals_of(context, summary.covered)
        if call.handle:
            model = context.route.upstream_model
            return await asyncio.to_thread(read_message, call, originals, max_tokens, self._counter, model)
        query = call.query
        index = await self._index(context, summary, originals)
        if index is None:
            return SearchAnswer(NOT_READY, "not_ready")
        search = _OriginalsQuery(query, originals, tokens, max_tokens, in_context, context.route.upstream_model)
        return await asyncio.to_thread(self._search, index, search)

    async def _index(
        self, context: RequestContext, summary: PrefixSummary, originals: Sequence[Message]
    ) -> MessageIndex | None:
        """Return the index of the originals; None if it takes too long to make."""
        prefix = context.chain.at(summary.covered)
        for _ in range(MOST_WAITS):
            index = await self._indexes.ready(prefix, originals, summary.previous)
            if index is not None:
                return index
        return None

    def _search(self, index: MessageIndex, search: _OriginalsQuery) -> SearchAnswer:
        """Return the exchanges that share words with a query and fit. Any thread may do this."""
        originals, max_tokens = search.originals, search.max_tokens
        count = len(originals)
        ranking = ranked(index.scores(search.query, count), count)
        if not ranking:
            return SearchAnswer(NOTHING, "nothing")
        rarity_by_term = {term.text: term.rarity for term in index.rare_terms(search.query, count)[0]}
        exchanges = chosen(
            originals,
            search.tokens,
            ranking,
            max_tokens,
            in_context=search.in_context,
            rarity_by_term=rarity_by_term,
        )
        while exchanges:
            text = search_result(originals, exchanges)
            excess = self._counter.count_text(text, search.model) - max_tokens
            if excess <= 0:
                return SearchAnswer(text, "recalled")
            while exchanges and excess > 0:  # the worst go first
                excess -= exchanges.pop().tokens
        return SearchAnswer(NO_ROOM, "no_room")


def read_message(
    call: SearchCall, originals: Sequence[Message], max_tokens: int, counter: TokenCounter, model: str
) -> SearchAnswer:
    """Return the part of a message that a call names, as it was; as much of its beginning as fits.

    :param max_tokens: the most that the answer may take, its heading included
    """
    message, part = message_with(call.handle, originals), read_range(call.range)
    if message is None:
        return SearchAnswer(NO_MESSAGE, "nothing")
    if call.range and part is None:
        return SearchAnswer(NO_RANGE, "nothing")
    text = text_with_calls(message)
    if not text:
        return SearchAnswer(NO_TEXT, "nothing")
    passage = passage_of(text, part)
    if passage is None:
        return SearchAnswer(BEYOND.format(lines=line_count(text), size=len(text.encode())), "nothing")
    handle, fitting = handle_of(message), passage.text
    free_tokens = max_tokens - counter.count_text(passage_heading(handle, message, passage), model)
    while free_tokens > 0:
        fitting = counter.cut_text(fitting, model, free_tokens)
        shorter = shortened(text, passage, len(fitting))
        if shorter is None:
            break
        answer = f"{passage_heading(handle, message, shorter)}\n{shorter.text}"
        excess = counter.count_text(answer, model) - max_tokens
        if excess <= 0:
            return SearchAnswer(answer, "recalled")
        free_tokens -= excess  # a part in bytes has a longer heading, and the line end is a token
    return SearchAnswer(NO_ROOM_TO_READ, "no_room")
