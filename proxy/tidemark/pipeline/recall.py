"""The step ``recall``: puts the originals that bear on the user's questions back into a compacted request.

It comes after ``fit`` and before the upstream. The originals are the request's own messages, quoted at the beginning of
the question that they were found for. They stay there until the next compaction, so each request is the beginning of
the next one (docs/adr/0025). An epoch's recall follows from the request alone; the cache only saves time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.request import RequestFormat
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.frozen import frozen
from tidemark.core.ports import TokenCounter
from tidemark.core.recall.epoch import LEAST_TOKENS, EpochRecall, RecalledText, questions
from tidemark.core.recall.index import MessageIndex, ranked
from tidemark.core.recall.quotation import chosen, quoted
from tidemark.core.recall.relevance import lacks_answer, passages_of
from tidemark.pipeline.notices import NO_RECALL, NOT_READY, with_warning
from tidemark.pipeline.originals import client_places, originals_of
from tidemark.pipeline.recall_indexes import RecallIndexes
from tidemark.pipeline.values import FittedRequest, RequestContext

REMEMBERED_QUESTIONS = 256
"""Questions whose epoch's recall is cached: the steps of a turn, and the next question, go on from it."""
_Key = tuple[bytes, str, int, int, int, str, str]


@frozen
class _Question:
    """A question for which nothing was looked up yet."""

    key: _Key
    position: int
    """Among the client messages, counted from 1."""
    at: int
    """Its place in the forwarded request."""
    tokens: int
    asked_tokens: int
    """Of the request up to the question, without what was recalled."""


@frozen
class _Epoch:
    """What the questions of an epoch are answered from."""

    summary: str
    forwarded: Sequence[Message]
    originals: Sequence[Message]
    """The messages behind the summary's cut."""
    tokens: Sequence[int]
    """Of each original."""
    mark: int
    """The most tokens of a request together with the recalled messages."""
    bound: int
    """The most tokens that are recalled in the epoch."""
    dialect: RequestFormat
    model: str


class Recaller:
    """Puts originals back. The mutable state is caches."""

    def __init__(self, counter: TokenCounter, indexes: RecallIndexes | None = None) -> None:
        self._counter = counter
        self._indexes = RecallIndexes() if indexes is None else indexes
        self._epochs: BoundedCache[_Key, EpochRecall] = BoundedCache(REMEMBERED_QUESTIONS)

    def begin(self, context: RequestContext, covered: int) -> None:
        """Begin the index of the messages that a coming summary covers, while it is being made."""
        if context.budget.max_recall >= LEAST_TOKENS:
            summary = context.stored.summary
            originals, _ = originals_of(context, covered)
            previous = summary.prefix if summary else None
            self._indexes.begin(context.chain.at(covered), originals, previous)

    async def recall(
        self, context: RequestContext, fitted: FittedRequest, summary: PrefixSummary
    ) -> EpochRecall | None:
        """Return what bears on the questions since the compaction; None if recall is off.

        :param summary: what stands for the oldest messages of the request
        """
        if context.budget.max_recall < LEAST_TOKENS or context.controls.mode == "off":
            return None
        pending, epoch = self._pending(context, fitted, summary)
        if not pending or epoch.share(context.budget.max_recall) < LEAST_TOKENS:
            return epoch.extended("no_room") if pending else epoch
        originals, tokens = originals_of(context, summary.covered)
        prefix = context.chain.at(summary.covered)
        is_within = len(pending) > 1 or bool(epoch.texts)
        index = await self._indexes.ready(prefix, originals, summary.previous, patient=is_within)
        if index is None:
            return replace(epoch.extended("not_ready"), is_partial=len(pending) > 1)
        source = _Epoch(
            summary.text,
            fitted.messages,
            originals,
            tokens,
            recall_mark(context),
            context.budget.max_recall,
            context.request.dialect,
            context.route.upstream_model,
        )
        return await asyncio.to_thread(self._extended, index, source, epoch, pending)

    def put_back(self, context: RequestContext, fitted: FittedRequest, epoch: EpochRecall) -> FittedRequest:
        """Return a compacted request with what its epoch recalled, unless it would pass the limit."""
        report = with_warning(fitted.report, NOT_READY if epoch.is_partial else None)
        if not epoch.texts:
            return replace(fitted, report=replace(report, recall=epoch.outcome))
        after = report.local_tokens + epoch.tokens
        if after > context.budget.limit:
            return replace(fitted, report=with_warning(replace(report, recall="no_room"), NO_RECALL))
        forwarded, places = list(fitted.messages), client_places(context.request.messages, len(context.chain))
        shift = len(forwarded) - len(context.request.messages)
        for text in epoch.texts:
            at = places[text.position - 1] + shift
            question = forwarded[at]
            forwarded[at] = (
                text.message  # made before; a client may have moved its cache mark since
                if question.raw == text.question.raw
                else context.request.dialect.replace_middle(question, 0, 0, text.text)
            )
        tokens = context.measure.provider_tokens
        report = replace(
            report,
            tokens_after=tokens(after),
            local_tokens=after,
            recall=epoch.outcome,
            recalled_tokens=tokens(epoch.tokens),
            local_recalled_tokens=epoch.tokens,
        )
        return replace(fitted, messages=tuple(forwarded), report=report)

    async def aclose(self) -> None:
        """Wait for the threads that make indexes."""
        await self._indexes.aclose()

    def _pending(
        self, context: RequestContext, fitted: FittedRequest, summary: PrefixSummary
    ) -> tuple[list[_Question], EpochRecall]:
        """Return the questions since the compaction without a cached recall, oldest first, and that before them."""
        messages, counts, chain = context.request.messages, context.count.messages, context.chain
        mark, bound = recall_mark(context), context.budget.max_recall
        asked_tokens, end, shift = fitted.report.local_tokens, len(messages), len(fitted.messages) - len(messages)
        pending: list[_Question] = []
        for place, later in questions(messages):
            position = len(chain) - later
            # Behind a rewind the newest one may be older than the summary: recalled now, it would recall nothing later.
            is_asked = position >= summary.first_question if summary.first_question else not pending
            if position <= summary.covered or not is_asked:
                break
            key = (
                chain.at(position),
                summary.version,
                summary.first_question,
                mark,
                bound,
                context.route.upstream_model,
                context.request.dialect.name,
            )
            epoch = self._epochs.get(key)
            if epoch is not None:
                return pending[::-1], epoch
            asked_tokens, end = asked_tokens - sum(counts[place + 1 : end]), place + 1
            pending.append(_Question(key, position, place + shift, counts[place], asked_tokens))
        return pending[::-1], EpochRecall()

    def _extended(
        self, index: MessageIndex, source: _Epoch, epoch: EpochRecall, pending: Sequence[_Question]
    ) -> EpochRecall:
        """Return an epoch's recall with what bears on further questions. Any thread may do this."""
        for question in pending:
            most = min(source.mark - question.asked_tokens - epoch.tokens, epoch.share(source.bound))
            if most < LEAST_TOKENS:
                epoch = epoch.extended("no_room")
            elif question.tokens > source.bound:  # a pasted document has words of everything
                epoch = epoch.extended("nothing")
            else:
                text = self._text(index, source, epoch, question, most)
                epoch = epoch.extended("nothing" if text is None else "recalled", text)
            self._epochs.put(question.key, epoch)
        return epoch

    def _text(
        self, index: MessageIndex, source: _Epoch, epoch: EpochRecall, turn: _Question, most: int
    ) -> RecalledText | None:
        """Return the quotation of what bears on a question and fits; None if nothing does."""
        question, count = source.forwarded[turn.at], len(source.originals)
        near = [*source.forwarded[: turn.at], *(source.originals[place] for place in epoch.places)]
        passages = passages_of(source.summary, [message for message in near if message.digest != question.digest])
        if not lacks_answer(index, question.text, count, passages):
            return None
        ranking = ranked(index.scores(question.text, count), count)
        in_context = frozenset([question.digest, *(message.digest for message in near)])
        exchanges = chosen(source.originals, source.tokens, ranking, most, in_context)
        own_tokens = self._counter.count_message(question, source.model)
        while exchanges:
            text = quoted(source.originals, exchanges)
            message = source.dialect.replace_middle(question, 0, 0, text)
            tokens = self._counter.count_message(message, source.model) - own_tokens
            if tokens <= most:
                places = tuple(place for exchange in exchanges for place in exchange.places)
                return RecalledText(turn.position, question, text, message, tokens, places)
            excess = tokens - most
            while exchanges and excess > 0:  # the worst go first
                excess -= exchanges.pop().tokens
        return None


def recall_mark(context: RequestContext) -> int:
    """Return the most tokens of a request with recalled messages: a threshold in tokens, or the limit."""
    return context.budget.high_water if context.profile.policy.threshold > 1 else context.budget.limit
