"""The step ``recall``: puts the originals that bear on the newest user message back into a compacted request.

It comes after ``fit`` and before the upstream. The originals are the request's own messages, quoted at the beginning of
the newest user message, so that everything before it keeps its bytes (docs/adr/0025).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from proxy.core.bounded import BoundedCache
from proxy.core.conversation.messages import Message
from proxy.core.conversation.request import RequestFormat
from proxy.core.conversation.summary import PrefixSummary
from proxy.core.ports import TokenCounter
from proxy.core.recall.index import TermIndex, ranked
from proxy.core.recall.quotation import FRAME_TOKENS, chosen, question_place, quoted
from proxy.core.recall.relevance import lacks_answer, passages_of
from proxy.core.report import RecallOutcome
from proxy.pipeline.recall_indexes import RecallIndexes
from proxy.pipeline.values import FittedRequest, RequestContext

REMEMBERED_TURNS = 256
"""Turns whose quotation is cached, since each step of a turn sends the same one."""
LEAST_TOKENS = FRAME_TOKENS + 32
"""A smaller quotation would have no more than its frame."""


@dataclass(frozen=True, slots=True)
class _Question:
    """The newest user message, and what may be recalled for it."""

    message: Message
    originals: Sequence[Message]
    """The messages behind the summary's cut."""
    tokens: Sequence[int]
    """Of each original."""
    in_context: frozenset[bytes]
    """Digests of the messages from the cut to the question."""
    passages: Sequence[str]
    """The summary's lines and the messages from the cut up to the question."""
    max_tokens: int
    dialect: RequestFormat
    model: str


class Recaller:
    """Puts originals back. The mutable state is caches."""

    def __init__(self, counter: TokenCounter, indexes: RecallIndexes | None = None) -> None:
        self._counter = counter
        self._indexes = RecallIndexes() if indexes is None else indexes
        self._texts: BoundedCache[tuple[bytes, str, int, str, str], str] = BoundedCache(REMEMBERED_TURNS)

    def begin(self, context: RequestContext, covered: int) -> None:
        """Begin the index of the messages that a coming summary covers, while it is being made."""
        if context.budget.max_recall >= LEAST_TOKENS:
            summary = context.stored.summary
            originals, _ = _originals(context, covered)
            self._indexes.begin(context.chain.at(covered), originals, summary.prefix if summary else None)

    async def put_back(self, context: RequestContext, fitted: FittedRequest, summary: PrefixSummary) -> FittedRequest:
        """Return a compacted request with the originals that bear on its newest user message.

        :param summary: what stands for the oldest messages of the request
        """
        if context.budget.max_recall < LEAST_TOKENS or context.controls.mode == "off":
            return fitted
        place = question_place(context.request.messages)
        outcome: RecallOutcome = "nothing"
        text, at = "", 0
        if place is not None and (at := place - len(context.request.messages) + len(fitted.messages)) >= 0:
            outcome, text = await self._text(context, fitted, summary, place, fitted.messages[at])
        if not text:
            return replace(fitted, report=replace(fitted.report, recall=outcome))
        return self._with_text(context, fitted, at, text)

    async def aclose(self) -> None:
        """Wait for the threads that make indexes."""
        await self._indexes.aclose()

    def _with_text(self, context: RequestContext, fitted: FittedRequest, at: int, text: str) -> FittedRequest:
        """Return the request with a quotation, unless it would pass the limit."""
        report, model = fitted.report, context.route.upstream_model
        question = fitted.messages[at]
        message = context.request.dialect.replace_middle(question, 0, 0, text)
        added = self._counter.count_message(message, model) - self._counter.count_message(question, model)
        after = report.local_tokens + added
        if after > context.budget.limit:
            return replace(fitted, report=replace(report, recall="no_room"))
        tokens = context.measure.provider_tokens
        report = replace(
            report, tokens_after=tokens(after), local_tokens=after, recall="recalled", recalled_tokens=tokens(added)
        )
        return replace(fitted, messages=(*fitted.messages[:at], message, *fitted.messages[at + 1 :]), report=report)

    async def _text(
        self, context: RequestContext, fitted: FittedRequest, summary: PrefixSummary, place: int, question: Message
    ) -> tuple[RecallOutcome, str]:
        """Return the quotation for a question; it is the same at each step of the question's turn."""
        messages, counts, dialect = context.request.messages, context.count.messages, context.request.dialect
        later = [message for message in messages[place + 1 :] if not message.is_system]
        position = len(context.chain) - len(later)  # of the question, counted from 1
        # The next request has the question without the text, so a long one would cost more than it gets.
        if position <= summary.covered or counts[place] > context.budget.max_recall:
            return "nothing", ""
        # What was free when the user asked: tool results since then must not change the text.
        asked_tokens = fitted.report.local_tokens - sum(counts[place + 1 :])
        mark = context.budget.high_water if context.profile.policy.threshold > 1 else context.budget.limit
        most = min(mark - asked_tokens, context.budget.max_recall)
        if most < LEAST_TOKENS:
            return "no_room", ""
        model = context.route.upstream_model
        key = (context.chain.at(position), summary.version, most, model, dialect.name)
        text = self._texts.get(key)
        if text is None:
            originals, tokens = _originals(context, summary.covered)
            index = await self._indexes.ready(context.chain.at(summary.covered), originals, summary.previous)
            if index is None:
                return "not_ready", ""
            near = fitted.messages[: len(fitted.messages) - len(later)]
            in_context = frozenset([message.digest for message in near])
            passages = passages_of(summary.text, [message for message in near if message.digest != question.digest])
            request = _Question(question, originals, tokens, in_context, passages, most, dialect, model)
            text = await asyncio.to_thread(self._quotation, index, request)
            self._texts.put(key, text)
        return ("recalled" if text else "nothing"), text

    def _quotation(self, index: TermIndex, question: _Question) -> str:
        """Return the text that quotes what fits; empty where nothing bears on the question. Any thread may do this."""
        count = len(question.originals)
        if not lacks_answer(index, question.message.text, count, question.passages):
            return ""
        ranking = ranked(index.scores(question.message.text, count), count)
        exchanges = chosen(question.originals, question.tokens, ranking, question.max_tokens, question.in_context)
        own_tokens = self._counter.count_message(question.message, question.model)
        while exchanges:
            text = quoted(question.originals, exchanges)
            message = question.dialect.replace_middle(question.message, 0, 0, text)
            excess = self._counter.count_message(message, question.model) - own_tokens - question.max_tokens
            if excess <= 0:
                return text
            while exchanges and excess > 0:  # the worst go first
                excess -= exchanges.pop().tokens
        return ""


def _originals(context: RequestContext, covered: int) -> tuple[Sequence[Message], Sequence[int]]:
    """Return the first messages that are no system messages, as the client sent them, and their tokens."""
    original = context.unclipped or context
    messages, counts = original.request.messages, original.count.messages
    first = next((place for place, message in enumerate(messages) if not message.is_system), 0)
    if len(messages) - first == len(original.chain):  # no system message is among them
        return messages[first : first + covered], counts[first : first + covered]
    places = [place for place, message in enumerate(messages) if not message.is_system][:covered]
    return [messages[place] for place in places], [counts[place] for place in places]
