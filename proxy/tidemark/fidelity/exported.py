"""Measures what would survive of the user's own conversations, while nothing changes them (shadow mode).

Nobody has planted facts in them. So what is counted is what a loss receipt counts: rules, decisions, numbers, names.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence

from tidemark.core.errors import TidemarkError
from tidemark.core.frozen import frozen
from tidemark.core.receipt import DETAIL_KINDS, Detail
from tidemark.features.offline.service import MIN_BUDGET_TOKENS
from tidemark.fidelity.figures import NEWEST, Figure, Spending, Sums

CORPUS = "stored"
LEAST_MESSAGES = 10
"""A shorter conversation is left out: it says nothing about a compaction."""
Compact = Callable[[bytes, int], Awaitable[bytes]]
"""Compacts a chat request within a number of tokens; answers as ``POST /tidemark/compact`` does."""
Count = Callable[[bytes], Awaitable[bytes]]
"""Counts a chat request; answers as ``POST /tidemark/count`` does."""
Details = Callable[[bytes, bytes], Awaitable[Sequence[Detail]]]
"""Compares a chat request with its compacted form: returns what was said, and what became of it."""


@frozen
class ExportedConversation:
    """A conversation as it was exported."""

    id: str
    model: str
    messages: Sequence[bytes]
    """Each message as JSON, oldest first."""

    @property
    def body(self) -> bytes:
        """Return a chat request with all messages."""
        return b'{"model":%b,"messages":[%b]}' % (json.dumps(self.model).encode(), b",".join(self.messages))


@frozen
class ExportMeasurement:
    """What would survive of stored conversations."""

    figures: Sequence[Figure]
    measured: int
    """How many conversations the figures describe."""
    failures: Sequence[str]
    """Why a conversation could not be compacted within a budget; one sentence for each time."""


async def measure_exported(
    conversations: Iterable[ExportedConversation],
    compact: Compact,
    count: Count,
    details: Details,
    budgets: Sequence[int],
    *,
    spent: Callable[[], Spending] = Spending,
) -> ExportMeasurement:
    """Compact each conversation once at each budget, and compare the result with the whole.

    :param budgets: percent of each conversation's tokens
    :param spent: returns what was spent since it was last asked
    """
    sums, failures, measured = Sums(spent), list[str](), 0
    for conversation in conversations:
        if len(conversation.messages) < LEAST_MESSAGES:
            continue
        measured += 1
        for budget in budgets:
            try:
                await _add(sums, conversation, budget, compact=compact, count=count, details=details)
            except TidemarkError as error:
                failures.append(f"{conversation.id} at {budget} %: {error}")
    return ExportMeasurement(sums.figures(), measured, failures)


async def _add(
    sums: Sums,
    conversation: ExportedConversation,
    budget: int,
    *,
    compact: Compact,
    count: Count,
    details: Details,
) -> None:
    """Add the figures of one conversation at one budget.

    :raises TidemarkError: it cannot be counted or compacted
    """
    body = conversation.body
    tokens = json.loads(await count(body))["input_tokens"]
    compacted = json.loads(await compact(body, max(tokens * budget // 100, MIN_BUDGET_TOKENS)))
    all_details = await details(body, json.dumps(compacted["request"]).encode())
    totals = Counter(detail.kind for detail in all_details)
    survivors = Counter(detail.kind for detail in all_details if detail.survival != "dropped")
    newest = _newest_share(conversation.messages, compacted["request"]["messages"])
    sums.share(CORPUS, budget, compacted["tokens_after"] / tokens, newest)
    sums.count(CORPUS, "all", budget, survivors.total(), totals.total())
    for kind in DETAIL_KINDS:
        if totals[kind]:
            sums.count(CORPUS, kind, budget, survivors[kind], totals[kind])


def _newest_share(messages: Sequence[bytes], remaining: Sequence[object]) -> float:
    """Return the share of the newest messages with which a compacted request still ends."""
    newest = [json.loads(message) for message in messages[-NEWEST:]]
    equal = 0
    for before, after in zip(reversed(newest), reversed(remaining), strict=False):
        if before != after:
            break
        equal += 1
    return equal / len(newest)
