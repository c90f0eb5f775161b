"""Writes a summary without a model: the most informative sentences, in order, in the speakers' own words.

It is the strategy ``extractive``, and the fallback of the compactor. It is deterministic and uses no network. Each
sentence is weighed by its rare words, numbers, names and wording against its length; rules of the user come
first. The lines of the previous summary are split and weighed again with the new ones (cascade).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import cached_property

from proxy.core.conversation.summary import SummaryRecipe
from proxy.core.ports import Clock, SummaryTask, TokenCounter
from proxy.summarizers.deadline import READING_SECONDS, UNBOUNDED, Deadline, in_thread
from proxy.summarizers.fitting import cut_to_bound, estimated_tokens, is_large
from proxy.summarizers.salience import FIXED_TOKENS, Candidate, candidates_of
from proxy.summarizers.shortening import shorten
from proxy.summarizers.signals import is_decision, is_fact, words_of
from proxy.summarizers.transcript import join_line

_EARLIER_SHARE = 0.6
"""Share of the bound for lines of the previous summary while new ones wait; rules do not count."""
_RULES_SHARE = 0.7
"""Share of the bound that rules may take before everything but the open request."""
_TRIES, _ENOUGH_TRIES = 12, 3
"""Tries to fill the bound: the most, and those after which any text that fits is good enough."""
_GOOD_FILL = 0.93
_TOP_UP_TRIES = 8
"""Tries to add one more sentence to a text that fits, each with a count of the text."""
_LEAST_FREE_TOKENS = 4
_TOP_UP_TOKENS = 8192
"""The largest bound that is topped up; a larger one loses less to its remainder than the counts would cost."""
_LINE_TOKENS = 3.0
"""Tokens of a speaker and a line end."""
_SHORTENED_RATIO = 1.4
"""Tokens of the sentences that are shortened, as a multiple of the bound."""
_NOTHING = "Nothing was said."


class ExtractiveSummarizer:
    """Keeps whole sentences. Holds no state."""

    def __init__(
        self,
        counter: TokenCounter,
        *,
        clock: Clock = time.thread_time,
        reading_seconds: float = READING_SECONDS,
    ) -> None:
        """:param clock: measures ``reading_seconds``, the most time that a large task may take"""
        self._counter = counter
        self._clock = clock
        self._reading_seconds = reading_seconds

    @cached_property
    def recipe(self) -> SummaryRecipe:
        """Return what its summaries depend on: these rules only."""
        return SummaryRecipe("extractive", "", version=5)

    async def summarize(self, task: SummaryTask) -> str:
        """Return the best sentences within the bound; a large task is weighed in a thread.

        :raises SummaryOverdue: the weighing took too long
        """
        if is_large(task):
            deadline = Deadline(self._reading_seconds, self._clock)
            return await in_thread(deadline, self._summarize, task, deadline)
        return self._summarize(task)

    def _summarize(self, task: SummaryTask, deadline: Deadline = UNBOUNDED) -> str:
        candidates = candidates_of(task.messages, task.previous, task.max_tokens, deadline=deadline)
        if not candidates:
            return cut_to_bound(_NOTHING, task, self._counter)
        ranked = _ranked(candidates)
        if task.shorten_sentences and _needed_tokens(candidates) > task.max_tokens:
            ranked = _shortened(ranked, _SHORTENED_RATIO * task.max_tokens, deadline)
        text = self._filled(ranked, task, deadline)
        if text and self._counter.count_text(text, task.model) < _GOOD_FILL * task.max_tokens:
            # All informative sentences are in and tokens are free: add the bulk of what tools returned.
            everything = candidates_of(task.messages, task.previous, task.max_tokens, with_bulk=True, deadline=deadline)
            if len(everything) > len(candidates):
                text = max(text, self._filled(_ranked(everything), task, deadline), key=len)
        # Where no sentence fits a bound of a few words, the beginning of the most important one does.
        return text or cut_to_bound(_assembled([ranked[0]]), task, self._counter)

    def _filled(self, ranked: Sequence[Candidate], task: SummaryTask, deadline: Deadline) -> str:
        """Return as many of the best as fit. Their tokens are estimates, which a count of the text corrects."""
        best, budget = "", float(task.max_tokens)
        best_choice: list[Candidate] = []
        everything = _needed_tokens(ranked)
        for attempt in range(_TRIES):
            deadline.check()
            chosen = _chosen(ranked, budget)
            text = _assembled(chosen)
            tokens = self._counter.count_text(text, task.model)
            fits = tokens <= task.max_tokens
            if fits and len(text) > len(best):
                best, best_choice = text, chosen
            if not text or (fits and (tokens >= _GOOD_FILL * task.max_tokens or budget >= everything)):
                break
            if best and attempt >= _ENOUGH_TRIES:
                break
            # Scale the budget by the error, and a little below it where that failed before.
            budget *= task.max_tokens / tokens * (0.98 if fits else 0.98 - 0.04 * attempt)
        return self._topped_up(best, best_choice, ranked, task, deadline)

    def _topped_up(
        self, text: str, chosen: list[Candidate], ranked: Sequence[Candidate], task: SummaryTask, deadline: Deadline
    ) -> str:
        """Return the text with further sentences, one by one, as long as they fit."""
        if not text or task.max_tokens > _TOP_UP_TOKENS:
            return text
        free = task.max_tokens - self._counter.count_text(text, task.model)
        places = {candidate.place for candidate in chosen}
        tries = 0
        for candidate in deadline.over(ranked):
            if free < _LEAST_FREE_TOKENS or tries >= _TOP_UP_TRIES:
                break
            if candidate.place in places or candidate.tokens > free:
                continue
            tries += 1
            longer = _assembled([*chosen, candidate])
            tokens = self._counter.count_text(longer, task.model)
            if tokens <= task.max_tokens:
                text, free = longer, task.max_tokens - tokens
                chosen = [*chosen, candidate]
        return text


def _needed_tokens(candidates: Sequence[Candidate]) -> float:
    """Return an estimate of the tokens of all candidates, each on a line of its own."""
    return sum(candidate.tokens + _LINE_TOKENS for candidate in candidates)


def _shortened(ranked: Sequence[Candidate], tokens: float, deadline: Deadline) -> list[Candidate]:
    """Return the candidates ranked again, the best of them shortened.

    :param tokens: the most tokens of those that are shortened; no other one has a chance to stay
    """
    best: list[Candidate] = []
    for candidate in deadline.over(ranked):
        if tokens <= 0:
            break
        tokens -= candidate.tokens
        best.append(_shorter(candidate))
    return [*_ranked(best), *ranked[len(best) :]]


def _is_ledgers(text: str) -> bool:
    """Return whether a sentence is a fact or a decision."""
    words = words_of(text)
    return is_fact(text, words) or is_decision(text, words)


def _shorter(candidate: Candidate) -> Candidate:
    """Return an ordinary sentence without its empty words.

    Rules, facts, decisions, the request and bulk stay as they are: what the ledger carries is the speaker's own words.
    """
    if candidate.tier != 1 or _is_ledgers(candidate.text):
        return candidate
    text = shorten(candidate.text)
    if text == candidate.text:
        return candidate
    tokens = estimated_tokens(text)
    density = candidate.density * (candidate.tokens + FIXED_TOKENS) / (tokens + FIXED_TOKENS)
    return candidate._replace(text=text, tokens=tokens, density=density)


def _ranked(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates, most important first."""
    return sorted(candidates, key=lambda candidate: (candidate.tier, -candidate.density, candidate.place))


def _chosen(ranked: Sequence[Candidate], budget: float) -> list[Candidate]:
    """Return the best candidates that fit into ``budget`` estimated tokens.

    :param ranked: candidates, most important first
    """
    chosen: list[Candidate] = []
    waiting: list[Candidate] = []
    lines: set[int] = set()
    free, earlier, rules = budget, budget * _EARLIER_SHARE, budget * _RULES_SHARE
    for candidate in ranked:
        cost = candidate.tokens + (0.0 if candidate.line in lines else _LINE_TOKENS)
        is_rule = candidate.tier == 0
        is_earlier = candidate.tier > 0 and candidate.earlier
        if (is_rule and cost > rules) or (is_earlier and cost > earlier):
            waiting.append(candidate)
        elif cost <= free:
            chosen.append(candidate)
            lines.add(candidate.line)
            free -= cost
            rules -= 0.0 if candidate.tier else cost
            earlier -= cost if is_earlier else 0.0
    for candidate in waiting:
        cost = candidate.tokens + (0.0 if candidate.line in lines else _LINE_TOKENS)
        if cost <= free:
            chosen.append(candidate)
            lines.add(candidate.line)
            free -= cost
    return chosen


def _assembled(chosen: Sequence[Candidate]) -> str:
    """Return one line for each place in the conversation, in order; sentences of one place share a line."""
    return "\n".join(_lines(sorted(chosen, key=lambda candidate: (candidate.line, candidate.place))))


def _lines(ordered: Sequence[Candidate]) -> Iterator[str]:
    current: Candidate | None = None
    for candidate in ordered:
        if current is not None and current.line == candidate.line:
            current = current._replace(text=f"{current.text} {candidate.text}")
        else:
            if current is not None:
                yield join_line(current.speaker, current.text)
            current = candidate
    if current is not None:
        yield join_line(current.speaker, current.text)
