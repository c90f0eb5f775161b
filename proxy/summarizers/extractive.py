"""A summary without a model: the sentences that say most, in order, in the speakers' own words.

Beside ``llm`` and ``hybrid``, and what the compactor falls back on. Deterministic and without network. Each
sentence is weighed by its rare words, numbers, names and wording against its length; rules of the user come
first. The lines of the previous summary are taken apart and weighed again with the new ones (cascade).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from functools import cached_property

from proxy.core.conversation.summary import SummaryRecipe
from proxy.core.ports import SummaryTask, TokenCounter
from proxy.summarizers.fitting import cut_to_bound, is_large
from proxy.summarizers.salience import Candidate, candidates_of
from proxy.summarizers.transcript import join_line

_EARLIER_SHARE = 0.6
"""Of the bound that lines of the previous summary may take while new ones wait; rules are not counted."""
_RULES_SHARE = 0.7
"""Of the bound that rules may take before all else, the open request apart."""
_TRIES, _ENOUGH_TRIES = 12, 3
"""Of fitting the bound: the most there are, and those after which any fit will do."""
_GOOD_FILL = 0.93
_LINE_TOKENS = 3.0
"""Tokens of a speaker and a line end."""
_NOTHING = "Nothing was said."


class ExtractiveSummarizer:
    """Keeps whole sentences. Holds no state."""

    def __init__(self, counter: TokenCounter) -> None:
        self._counter = counter

    @cached_property
    def recipe(self) -> SummaryRecipe:
        """What its summaries depend on: nothing but these rules."""
        return SummaryRecipe("extractive", "", version=3)

    async def summarize(self, task: SummaryTask) -> str:
        """The best sentences within the bound; a large task is weighed in a thread."""
        if is_large(task):
            return await asyncio.to_thread(self._summarize, task)
        return self._summarize(task)

    def _summarize(self, task: SummaryTask) -> str:
        candidates = candidates_of(task.messages, task.previous, task.max_tokens)
        if not candidates:
            return cut_to_bound(_NOTHING, task, self._counter)
        ranked = _ranked(candidates)
        text = self._filled(ranked, task)
        if text and self._counter.count_text(text, task.model) < _GOOD_FILL * task.max_tokens:
            # All that says something is in, and there is room: for the bulk of what tools answered, too.
            everything = candidates_of(task.messages, task.previous, task.max_tokens, with_bulk=True)
            if len(everything) > len(candidates):
                text = max(text, self._filled(_ranked(everything), task), key=len)
        # Not one sentence fits a bound of a few words: the beginning of the most important one does.
        return text or cut_to_bound(_assembled([ranked[0]]), task, self._counter)

    def _filled(self, ranked: Sequence[Candidate], task: SummaryTask) -> str:
        """As many of the best as fit. Their tokens are estimates, which the count of the whole corrects."""
        best, budget = "", float(task.max_tokens)
        everything = sum(one.tokens + _LINE_TOKENS for one in ranked)
        for attempt in range(_TRIES):
            text = _assembled(_chosen(ranked, budget))
            tokens = self._counter.count_text(text, task.model)
            fits = tokens <= task.max_tokens
            if fits and len(text) > len(best):
                best = text
            if not text or (fits and (tokens >= _GOOD_FILL * task.max_tokens or budget >= everything)):
                break
            if best and attempt >= _ENOUGH_TRIES:
                break
            # Ask for as much more or less as it was off; a little less where that missed again.
            budget *= task.max_tokens / tokens * (0.98 if fits else 0.98 - 0.04 * attempt)
        return best


def _ranked(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Most important first."""
    return sorted(candidates, key=lambda one: (one.tier, -one.density, one.place))


def _chosen(ranked: Sequence[Candidate], budget: float) -> list[Candidate]:
    """The best that fit into ``budget`` estimated tokens, given most important first."""
    chosen: list[Candidate] = []
    waiting: list[Candidate] = []
    lines: set[int] = set()
    left, earlier, rules = budget, budget * _EARLIER_SHARE, budget * _RULES_SHARE
    for one in ranked:
        cost = one.tokens + (0.0 if one.line in lines else _LINE_TOKENS)
        if (one.tier == 0 and cost > rules) or (one.tier > 0 and one.earlier and cost > earlier):
            waiting.append(one)
        elif cost <= left:
            chosen.append(one)
            lines.add(one.line)
            left -= cost
            rules -= 0.0 if one.tier else cost
            earlier -= cost if one.tier > 0 and one.earlier else 0.0
    for one in waiting:
        cost = one.tokens + (0.0 if one.line in lines else _LINE_TOKENS)
        if cost <= left:
            chosen.append(one)
            lines.add(one.line)
            left -= cost
    return chosen


def _assembled(chosen: Sequence[Candidate]) -> str:
    """One line for each place in the conversation, in order; sentences of one place stand together."""
    return "\n".join(_lines(sorted(chosen, key=lambda one: (one.line, one.place))))


def _lines(ordered: Sequence[Candidate]) -> Iterator[str]:
    gathered: Candidate | None = None
    for one in ordered:
        if gathered is not None and gathered.line == one.line:
            gathered = gathered._replace(text=f"{gathered.text} {one.text}")
        else:
            if gathered is not None:
                yield join_line(gathered.speaker, gathered.text)
            gathered = one
    if gathered is not None:
        yield join_line(gathered.speaker, gathered.text)
