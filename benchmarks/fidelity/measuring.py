"""Makes the figures: how many facts survive a compaction, beside the tokens that it left.

A compaction is a function from outside, so that the same code measures each strategy.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence

from benchmarks.fidelity.cases import Case, Conversation, Fact
from benchmarks.fidelity.generated import planted_rounds
from benchmarks.fidelity.survival import surviving, text_of
from tidemark.fidelity import NEWEST, Compact, Count, Figure, Spending, Sums

MODEL = "gpt-4o"
ROUNDS, SEEDS = 10, 2
"""The rounds of a talk that is summarized round by round, and how many such talks there are."""
Summarize = Callable[[str | None, Conversation, int], Awaitable[str]]
"""Writes a summary of the previous summary and messages, within a number of tokens."""


class CaseSums(Sums):
    """Adds up the results of cases."""

    def add(self, case: Case, budget: int, shares: tuple[float, float | None], standing: Sequence[Fact]) -> None:
        """Add the result of one case."""
        self.share(case.corpus, budget, *shares)
        names = {id(fact) for fact in standing}
        for fact in case.facts:
            for kind in ("all", fact.kind):
                self.count(case.corpus, kind, budget, id(fact) in names, 1)


async def measure(
    cases: Sequence[Case],
    compact: Compact,
    count: Count,
    budgets: Sequence[int],
    *,
    spent: Callable[[], Spending] = Spending,
) -> list[Figure]:
    """Compact each conversation once at each budget.

    :param budgets: percent of each conversation's tokens
    :param spent: returns what was spent since it was last asked
    """
    sums = CaseSums(spent)
    for case in cases:
        body = json.dumps({"model": MODEL, "messages": case.messages}).encode()
        tokens = json.loads(await count(body))["input_tokens"]
        for budget in budgets:
            done = json.loads(await compact(body, max(tokens * budget // 100, 1)))
            covered = done["summarized_messages"]
            newest = newest_share(case.messages, covered)
            remaining = [text_of(message) for message in case.messages[covered:]]
            texts = [*remaining, *done["summary"].split("\n")]
            sums.add(case, budget, (done["tokens_after"] / tokens, newest), surviving(case, case.facts, texts))
    return sums.figures()


def newest_share(messages: Conversation, covered: int) -> float:
    """Return the share of the newest messages that stay word for word."""
    return max(min(len(messages) - covered, NEWEST), 0) / min(len(messages), NEWEST)


async def measure_rounds(
    summarize: Summarize,
    count: Count,
    budgets: Sequence[int],
    rounds: int = ROUNDS,
    seeds: int = SEEDS,
    *,
    spent: Callable[[], Spending] = Spending,
) -> list[Figure]:
    """Summarize talks round by round, each summary from the one before, and tell what is left at the end.

    The budget is a share of the whole talk, and bounds the summary of every round.

    :param spent: returns what was spent since it was last asked
    """
    sums = CaseSums(spent)
    for seed in range(1, seeds + 1):
        parts = planted_rounds(seed, rounds)
        messages = [message for part in parts for message in part.messages]
        body = json.dumps({"model": MODEL, "messages": messages}).encode()
        tokens = json.loads(await count(body))["input_tokens"]
        whole = Case(f"{rounds} rounds", messages, [fact for part in parts for fact in part.facts])
        for budget in budgets:
            summary = None
            for part in parts:
                summary = await summarize(summary, part.messages, max(tokens * budget // 100, 1))
            lines = (summary or "").split("\n")
            sums.add(whole, budget, (budget / 100, None), surviving(whole, whole.facts, lines))
    return sums.figures()
