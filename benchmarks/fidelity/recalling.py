"""Measures recall: how many answers a compacted conversation still has, beside what recall puts back for the question.

Of each budget, recall may use a share, so the summary gets less. It ranks and chooses as ``pipeline/recall.py`` does,
for one question after the other.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks.fidelity.cases import Case, Conversation, Fact
from benchmarks.fidelity.measuring import MODEL, CaseSums, newest_share
from benchmarks.fidelity.survival import surviving, text_of
from tidemark.core.conversation.messages import Message, digest_of
from tidemark.core.recall.index import MessageIndex, ranked
from tidemark.core.recall.quotation import chosen
from tidemark.core.recall.relevance import lacks_answer, passages_of
from tidemark.fidelity import Compact, Count, Figure, Spending

PRIMING_TOKENS = 3
"""Those that open a reply, which every count includes once."""


async def measure_recall(
    cases: Sequence[Case],
    compact: Compact,
    count: Count,
    budgets: Sequence[int],
    *,
    share: int,
    spent: Callable[[], Spending] = Spending,
) -> list[Figure]:
    """Compact each conversation without recall and with it, within the same budget.

    :param budgets: percent of each conversation's tokens
    :param share: percent of each conversation's tokens that recall may use, less than the smallest budget
    :param spent: returns what was spent since it was last asked
    """
    sums = CaseSums(spent)
    for case in cases:
        body = json.dumps({"model": MODEL, "messages": case.messages}).encode()
        total = json.loads(await count(body))["input_tokens"]
        tokens = [await _tokens_of(message, count) for message in case.messages]
        for budget in budgets:
            for recalled in (0, share):
                done = json.loads(await compact(body, max(total * (budget - recalled) // 100, 1)))
                covered = done["summarized_messages"]
                remaining = [text_of(message) for message in case.messages[covered:]]
                texts = [*remaining, *done["summary"].split("\n")]
                standing = surviving(case, case.facts, texts)
                if recalled:
                    passages = passages_of(done["summary"], _messages(case.messages[covered:]))
                    index = MessageIndex()
                    index.add(_messages(case.messages[:covered]))
                    most = total * recalled // 100
                    standing += _recalled(case, index, standing, passages, tokens=tokens[:covered], max_tokens=most)
                ratio = done["tokens_after"] / total + recalled / 100
                name = f"{case.corpus}, {recalled} % recalled"
                shares = (ratio, newest_share(case.messages, covered))
                sums.add(Case(name, case.messages, case.facts), budget, shares, standing)
    return sums.figures()


def _recalled(
    case: Case,
    index: MessageIndex,
    standing: Sequence[Fact],
    passages: Sequence[str],
    *,
    tokens: Sequence[int],
    max_tokens: int,
) -> list[Fact]:
    """Return the further facts that stand in what is recalled for their questions.

    :param index: of the messages that the summary stands for
    :param passages: what is in context
    :param tokens: of each message that the summary stands for
    """
    covered = len(tokens)
    originals = _messages(case.messages[:covered])
    names = {id(fact) for fact in standing}
    facts: list[Fact] = []
    for fact in case.facts:
        if id(fact) in names or not fact.question:
            continue
        if not lacks_answer(index, fact.question, originals, passages, is_statement=False):
            continue
        ranking = ranked(index.scores(fact.question, covered), covered)
        exchanges = chosen(originals, tokens, ranking, max_tokens)
        places = [place for exchange in exchanges for place in exchange.places]
        facts += surviving(case, [fact], [originals[place].text for place in places])
    return facts


def _messages(messages: Conversation) -> list[Message]:
    """Return messages as the ranker takes them; a case has no calls."""
    return [
        Message(
            raw=str(place).encode(),
            role="user" if message["role"] == "user" else "tool" if message["role"] == "tool" else "assistant",
            text=message["content"],
            digest=digest_of(str(place).encode()),
        )
        for place, message in enumerate(messages)
    ]


async def _tokens_of(message: Mapping[str, Any], count: Count) -> int:
    """Return the tokens of a message in a request."""
    body = json.dumps({"model": MODEL, "messages": [message]}).encode()
    return int(json.loads(await count(body))["input_tokens"]) - PRIMING_TOKENS
