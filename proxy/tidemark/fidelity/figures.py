"""Adds up how much survives compactions, and what the calls of a summarizer cost: tokens, USD and seconds."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.frozen import frozen
from tidemark.core.ports import Route, TextRequest, TokenCounter
from tidemark.upstream.answers import content_of

NEWEST = 10
"""How many of the newest messages are compared: a figure says which share of them stays word for word."""


@frozen
class Spending:
    """What some calls cost."""

    asked_tokens: int = 0
    answered_tokens: int = 0
    is_estimated: bool = False
    """Whether an upstream did not say its tokens, so that they were counted here."""
    usd: float | None = 0.0
    """By litellm's prices; None if a model has none."""
    seconds: float = 0.0
    rejected: int = 0
    """Answers that were no usable summary, so that the deterministic one was measured in their place."""

    def __add__(self, other: Spending) -> Spending:
        usd = None if self.usd is None or other.usd is None else self.usd + other.usd
        return Spending(
            self.asked_tokens + other.asked_tokens,
            self.answered_tokens + other.answered_tokens,
            self.is_estimated or other.is_estimated,
            usd,
            self.seconds + other.seconds,
            self.rejected + other.rejected,
        )


NOTHING_SPENT = Spending()


@dataclass(slots=True)
class Meter:
    """Notes the calls of a summarizer, for ``LiteLLMUpstream.note_completions``.

    :param prices: USD for each token of input and of output, by a model's name (``LiteLLMModelData.prices``)
    """

    counter: TokenCounter
    prices: Mapping[str, tuple[float, float]]
    timer: Callable[[], float] = time.perf_counter
    models: dict[str, None] = field(default_factory=dict)
    """The models that were asked, by the upstreams' names, in order."""
    _sum: Spending = field(default_factory=Spending)

    def note(self, route: Route, request: TextRequest, answer: JsonValue) -> None:
        model = route.upstream_model
        self.models[model] = None
        usage = answer.get("usage") if isinstance(answer, dict) else None
        counts = usage if isinstance(usage, dict) else {}
        prompt, reply = counts.get("prompt_tokens"), counts.get("completion_tokens")
        is_estimated = False
        if not (isinstance(prompt, int) and isinstance(reply, int)):
            is_estimated = True
            texts = (str(message.get("content")) for message in request.messages)
            prompt = sum(self.counter.count_text(text, model) for text in texts)
            reply = self.counter.count_text(content_of(answer), model)
        names = (f"{route.provider}/{model}", model)
        price = next((self.prices[name] for name in names if name in self.prices), None)
        usd = None if price is None else prompt * price[0] + reply * price[1]
        self._sum += Spending(prompt, reply, is_estimated, usd)

    def note_rejected(self) -> None:
        """Add one answer that was no summary."""
        self._sum += Spending(rejected=1)

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Add the seconds that the block takes."""
        started = self.timer()
        try:
            yield
        finally:
            self._sum += Spending(seconds=self.timer() - started)

    def take(self) -> Spending:
        """Return the sum since the last time."""
        spending, self._sum = self._sum, Spending()
        return spending


@frozen
class Figure:
    """What survived of one kind of facts in one corpus, at one budget."""

    corpus: str
    kind: str
    budget: int
    """The budget in percent of the conversation's tokens."""
    ratio: float
    """The tokens that were left, as a share of those before."""
    newest: float | None
    """The share of the newest messages that stay word for word; None if a summary alone was measured."""
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

    def share(self, corpus: str, budget: int, ratio: float, newest: float | None) -> None:
        """Add what a compaction left of a conversation's tokens, and of its newest messages."""
        self._shares[corpus, budget].append((ratio, newest))
        self._spending[corpus, budget] += self._spent()

    def count(self, corpus: str, kind: str, budget: int, survivors: int, facts: int) -> None:
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
