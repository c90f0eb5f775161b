"""Makes the figures: how many facts survive a compaction, beside the tokens that it left.

A compaction is a function from outside, so that the same code measures each strategy.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from tidemark.fidelity.cases import Case, Conversation, Fact
from tidemark.fidelity.generated import planted_rounds
from tidemark.fidelity.spending import NOTHING_SPENT, Spending
from tidemark.fidelity.survival import surviving

MODEL = "gpt-4o"
ROUNDS, SEEDS = 10, 2
"""The rounds of a talk that is summarized round by round, and how many such talks there are."""
NEWEST = 10
"""Messages at the end of which the share is told that stays word for word."""
Compact = Callable[[bytes, int], Awaitable[bytes]]
"""Compacts a chat request within a number of tokens; answers as ``POST /tidemark/compact`` does."""
Count = Callable[[bytes], Awaitable[bytes]]
"""Counts a chat request; answers as ``POST /tidemark/count`` does."""
Summarize = Callable[[str | None, Conversation, int], Awaitable[str]]
"""Writes a summary of the previous summary and messages, within a number of tokens."""


@dataclass(frozen=True, slots=True)
class Figure:
    """What survived of one kind of facts in one corpus, at one budget."""

    corpus: str
    kind: str
    budget: int
    """The budget in percent of the conversation's tokens."""
    ratio: float
    """The tokens that were left, as a share of those before."""
    newest: float | None
    """The share of the newest messages that stay word for word; None where a summary alone was measured."""
    survivors: int
    facts: int
    spending: Spending = NOTHING_SPENT
    """What the summaries of this corpus cost at this budget, for all kinds of facts together."""

    @property
    def survival(self) -> float:
        """The share of the facts that survived."""
        return self.survivors / self.facts if self.facts else 1.0


class Sums:
    """Adds up the results of cases, by corpus, kind of fact and budget.

    :param spent: returns what was spent since it was last asked
    """

    def __init__(self, spent: Callable[[], Spending] = Spending) -> None:
        self._spent = spent
        self._spending: dict[tuple[str, int], Spending] = defaultdict(Spending)
        self._facts: dict[tuple[str, str, int], list[int]] = defaultdict(lambda: [0, 0])
        self._shares: dict[tuple[str, int], list[tuple[float, float | None]]] = defaultdict(list)

    def add(self, case: Case, budget: int, shares: tuple[float, float | None], standing: Sequence[Fact]) -> None:
        """Add the result of one case."""
        self.share(case.corpus, budget, *shares)
        names = {id(fact) for fact in standing}
        for fact in case.facts:
            for kind in ("all", fact.kind):
                self.count(case.corpus, kind, budget, id(fact) in names, 1)

    def share(self, corpus: str, budget: int, ratio: float, newest: float | None) -> None:
        """Add what a compaction left of a conversation's tokens, and of its newest messages."""
        self._shares[corpus, budget].append((ratio, newest))
        self._spending[corpus, budget] += self._spent()

    def count(self, corpus: str, kind: str, budget: int, survivors: int, facts: int) -> None:
        """Add facts of one kind, and how many of them survived."""
        pair = self._facts[corpus, kind, budget]
        pair[0] += survivors
        pair[1] += facts

    def figures(self) -> list[Figure]:
        """Return the figures in the order in which corpora and kinds came."""
        result = []
        for (corpus, kind, budget), (survivors, facts) in self._facts.items():
            shares = self._shares[corpus, budget]
            ratio = sum(ratio for ratio, _ in shares) / len(shares)
            newest = [share for _, share in shares if share is not None]
            verbatim = sum(newest) / len(newest) if newest else None
            spending = self._spending[corpus, budget]
            result.append(Figure(corpus, kind, budget, round(ratio, 4), verbatim, survivors, facts, spending))
        return result


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
    sums = Sums(spent)
    for case in cases:
        body = json.dumps({"model": MODEL, "messages": case.messages}).encode()
        tokens = json.loads(await count(body))["input_tokens"]
        for budget in budgets:
            done = json.loads(await compact(body, max(tokens * budget // 100, 1)))
            covered = done["summarized_messages"]
            newest = newest_share(case.messages, covered)
            remaining = [message["content"] for message in case.messages[covered:]]
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
    sums = Sums(spent)
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
