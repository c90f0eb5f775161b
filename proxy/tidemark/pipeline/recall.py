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
from tidemark.core.planning.budget import Budget
from tidemark.core.planning.situation import PlanInput
from tidemark.core.ports import TokenCounter
from tidemark.core.recall.asking import asking
from tidemark.core.recall.epoch import LEAST_SHARE_TOKENS, LEAST_TOKENS, EpochRecall, RecalledText, questions
from tidemark.core.recall.index import MessageIndex, ranked
from tidemark.core.recall.quotation import RecalledExchange, chosen, quoted
from tidemark.core.recall.relevance import lacks_answer, passages_of
from tidemark.core.report import Report
from tidemark.pipeline.notices import NO_RECALL, NOT_READY, with_warning
from tidemark.pipeline.originals import client_places, originals_of
from tidemark.pipeline.recall_indexes import RecallIndexes
from tidemark.pipeline.values import FittedRequest, RequestContext

LONGEST_QUESTION_TOKENS = 1_000
"""A longer user message is a document, unless the bound is larger."""
PROPOSAL_CHARS = 1_000
"""Of what an agent said before, its end: there it proposes or asks."""
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
    """The most tokens that are recalled for one question."""
    dialect: RequestFormat
    model: str


@frozen
class _Query:
    """By which words the originals for a question are found."""

    text: str
    near: Sequence[Message]
    """The messages in context that may tell as much as an original does."""
    is_statement: bool = False
    """Whether it asks for nothing, and is said to an agent, which needs identifiers."""


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
        if not pending:
            return epoch
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
            epoch = self._answered(index, source, epoch, question)
            self._epochs.put(question.key, epoch)
        return epoch

    def _answered(self, index: MessageIndex, source: _Epoch, epoch: EpochRecall, turn: _Question) -> EpochRecall:
        """Return an epoch's recall with what bears on one further question."""
        if turn.tokens > max(source.bound, LONGEST_QUESTION_TOKENS):  # a pasted document has words of everything
            return epoch.extended("nothing")
        query = _query(index, source, turn)
        passages = passages_of(source.summary, query.near)
        for earlier in epoch.texts:
            passages += earlier.text.split("\n")
        if not lacks_answer(index, query.text, source.originals, passages, is_statement=query.is_statement):
            return epoch.extended("nothing")
        most = min(source.mark - turn.asked_tokens - epoch.tokens, epoch.share(source.bound))
        if most < LEAST_TOKENS:
            return epoch.extended("no_room")
        recalled = [source.originals[place].digest for place in epoch.places]
        in_context = frozenset([*recalled, *(message.digest for message in source.forwarded[: turn.at + 1])])
        exchanges = _exchanges(index, source, query.text, most, in_context)
        text = self._text(source, turn, exchanges, most)
        return epoch.extended("nothing" if text is None else "recalled", text)

    def _text(
        self, source: _Epoch, turn: _Question, exchanges: list[RecalledExchange], most: int
    ) -> RecalledText | None:
        """Return the quotation of the best exchanges that fit; None if none does."""
        question = source.forwarded[turn.at]
        own_tokens = self._counter.count_message(question, source.model)
        while exchanges:
            text = quoted(source.originals, exchanges)
            message = source.dialect.replace_middle(question, 0, 0, text)
            tokens = self._counter.count_message(message, source.model) - own_tokens
            if tokens <= most:
                # Of a message in an excerpt a further question may need another part.
                places = tuple(place for exchange in exchanges if not exchange.excerpt for place in exchange.places)
                return RecalledText(turn.position, question, text, message, tokens, places)
            excess = tokens - most
            while exchanges and excess > 0:  # the worst go first
                excess -= exchanges.pop().tokens
        return None


def _exchanges(
    index: MessageIndex, source: _Epoch, query: str, most: int, in_context: frozenset[bytes]
) -> list[RecalledExchange]:
    """Return the exchanges that bear on a query and fit, best first."""
    count = len(source.originals)
    rarity_by_term = {term.text: term.rarity for term in index.rare_terms(query, count)[0]}
    ranking = ranked(index.scores(query, count), count)
    return chosen(source.originals, source.tokens, ranking, most, in_context=in_context, rarity_by_term=rarity_by_term)


def _query(index: MessageIndex, source: _Epoch, turn: _Question) -> _Query:
    """Return by which words originals are found.

    A user who talks to an agent confirms ("Yes, Option 2"): what the agent proposed says what the next step needs.
    """
    question = source.forwarded[turn.at]
    near = [message for message in source.forwarded[: turn.at] if message.digest != question.digest]
    is_agents = index.first_call is not None and index.first_call < len(source.originals)
    if not is_agents or asking(question.text):
        return _Query(question.text, near)
    place = next((place for place in range(len(near) - 1, -1, -1) if _proposes(near[place])), None)
    if place is None:
        return _Query(question.text, near, is_statement=True)
    proposal, others = near[place].text[-PROPOSAL_CHARS:], near[:place] + near[place + 1 :]
    return _Query(f"{question.text}\n{proposal}", others, is_statement=True)


def _proposes(message: Message) -> bool:
    return message.role == "assistant" and bool(message.text)


def recall_mark(context: RequestContext) -> int:
    """Return the most tokens of a request with recalled messages: a threshold in tokens, or the limit."""
    return context.budget.high_water if context.profile.policy.threshold > 1 else context.budget.limit


def recalled_before_next(report: Report, budget: Budget) -> int:
    """Return the recalled tokens to expect until the next summary comes into use, at most those that are free.

    The next question may come before, unless none recalled anything so far.
    """
    recalled = report.local_recalled_tokens
    expected = recalled + min(LEAST_SHARE_TOKENS, budget.max_recall) if recalled else 0
    return max(min(expected, budget.high_water - (report.local_tokens - recalled)), 0)


def without_recalled(plan_input: PlanInput, recalled_tokens: int) -> PlanInput:
    """Return the input of a plan that makes space for recalled messages by a prepared summary.

    It was prepared for more tokens to come than came, so it may leave less than a summary that is made now.
    """
    budget = plan_input.budget
    retention = max(budget.retention - recalled_tokens, 0)
    return replace(
        plan_input, budget=replace(budget, high_water=budget.high_water - recalled_tokens, retention=retention)
    )
