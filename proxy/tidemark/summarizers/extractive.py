"""Writes a summary without a model: the most informative sentences, in order, in the speakers' own words.

It is the strategy ``extractive``, and the fallback of the compactor. It is deterministic and uses no network. Each
sentence is weighed by its rare words, numbers, names and wording against its length; rules of the user come
first. The lines of the previous summary are split and weighed again with the new ones (cascade).
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from itertools import groupby, pairwise
from operator import attrgetter

from tidemark.core.conversation.summary import NARRATIVE, SummaryRecipe, SummaryText
from tidemark.core.phrases import Reading
from tidemark.core.ports import Clock, SummaryTask, TokenCounter
from tidemark.summarizers.candidates import Candidate
from tidemark.summarizers.deadline import READING_SECONDS, UNBOUNDED, Deadline, in_thread
from tidemark.summarizers.fitting import cut_to_bound, estimated_tokens, is_large
from tidemark.summarizers.rules import is_rule
from tidemark.summarizers.salience import FIXED_TOKENS, candidates_of
from tidemark.summarizers.sentences import words_of
from tidemark.summarizers.signals import is_decision, is_fact
from tidemark.summarizers.transcript import join_lines

_EARLIER_SHARE = 0.8
"""Share of the bound for lines of the previous summary while new ones wait; rules do not count."""
_RULES_SHARE = 0.7
"""Share of the bound that rules may take before everything but the open request."""
_LISTED_SHARE = 0.2
"""Share of the bound for rules of texts that have many, such as an agent's instructions, before everything else."""
_TRIES, _ENOUGH_TRIES = 12, 3
"""Tries to fill the bound: the most, and those after which any text that fits is good enough."""
_GOOD_FILL, _AIM = 0.95, 0.985
"""Shares of the bound: what is good enough, and what the next try aims at."""
_TOP_UP_TRIES = 8
"""Tries to add one more sentence to a text that fits, each with a count of the text."""
_LEAST_FREE_TOKENS = 4
_TOP_UP_TOKENS = 8192
"""The largest bound that is topped up; a larger one loses less to its remainder than the counts would cost."""
_FULL_TOKENS = 1.0
"""With fewer free tokens nothing fits any more."""
_LINE_TOKENS = 3.0
"""Tokens of a speaker and a line end."""
_DAY_TOKENS = 2.0
"""Tokens of the brackets of a day."""
_SHORTENED_RATIO = 1.4
"""Tokens of the sentences that are shortened, as a multiple of the bound."""
_NOTHING = "Nothing was said."
_ARTICLES = frozenset({"a", "an", "the"})
_WITH_ARTICLE_TEXT = "few little lot bit couple while dozen hundred thousand million way other whole"
_WITH_ARTICLE = frozenset(_WITH_ARTICLE_TEXT.split())
"""Words that mean something else without their article, such as "a few", or need it, such as "by the way"."""
_ENGLISH = frozenset(
    {"the", "and", "you", "with", "that", "have", "this", "for", "my", "i", "it", "to", "we", "was", "at"}
)
_MARKS = ",.;:!?"
_UNTOUCHED = re.compile(r"[`\"“”«»<>{}=_|\\;*#]|\(\)|://|\b[A-Z]{3,}\b.{0,20}:|^\s*(?:@|//)")
"""Signs of code, of a quotation, or of a label."""


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
        return SummaryRecipe("extractive", "", version=17)

    async def summarize(self, task: SummaryTask) -> SummaryText:
        """Return the best sentences within the bound; a large task is weighed in a thread.

        :raises SummaryOverdue: the weighing took too long
        """
        if is_large(task):
            deadline = Deadline(self._reading_seconds, self._clock)
            return SummaryText(await in_thread(deadline, self._summarize, task, deadline), "extractive")
        return SummaryText(self._summarize(task), "extractive")

    def _candidates(self, task: SummaryTask, deadline: Deadline, *, with_bulk: bool = False) -> list[Candidate]:
        return candidates_of(
            task.messages,
            task.previous,
            task.max_tokens,
            with_bulk=with_bulk,
            rank_of=lambda word: self._counter.rank_of(word, task.model),
            reading=task.reading,
            deadline=deadline,
        )

    def _summarize(self, task: SummaryTask, deadline: Deadline = UNBOUNDED) -> str:
        task = task if task.reading else replace(task, reading=Reading())
        earlier_lines = (task.previous or "").split("\n")
        if task.earlier and NARRATIVE not in earlier_lines:  # what a model wrote is in no message, and goes on
            task = replace(task, messages=[*task.earlier, *task.messages], previous=None, earlier=())
        candidates = self._candidates(task, deadline)
        if not candidates:
            return cut_to_bound(_NOTHING, task, self._counter)
        ranked = _ranked(candidates)
        if task.shorten_sentences and _needed_tokens(candidates) > task.max_tokens:
            ranked = _shortened(ranked, _SHORTENED_RATIO * task.max_tokens, deadline)
        text = self._filled(ranked, task, deadline)
        if text and self._counter.count_text(text, task.model) < _GOOD_FILL * task.max_tokens:
            # All informative sentences are in and tokens are free: add the bulk of what tools returned.
            everything = self._candidates(task, deadline, with_bulk=True)
            if len(everything) > len(candidates):
                text = max(text, self._filled(_ranked(everything), task, deadline), key=len)
        # If no sentence fits a bound of a few words, the beginning of the most important one does.
        return text or cut_to_bound(_assembled([ranked[0]]), task, self._counter)

    def _filled(self, ranked: Sequence[Candidate], task: SummaryTask, deadline: Deadline) -> str:
        """Return as many of the best as fit. Their tokens are estimates, which a count of the text corrects."""
        best, bound, budget = "", task.max_tokens, float(task.max_tokens)
        best_choice: list[Candidate] = []
        everything = _needed_tokens(ranked)
        below, above = (0.0, 0.0), (0.0, 0.0)  # a budget with the tokens of its text: within the bound, and beyond it
        for attempt in range(_TRIES):
            deadline.check()
            chosen = _chosen(ranked, budget)
            text = _assembled(chosen)
            tokens = self._counter.count_text(text, task.model)
            fits = tokens <= bound
            if fits and len(text) > len(best):
                best, best_choice = text, chosen
            if not text or (fits and (tokens >= _GOOD_FILL * bound or budget >= everything)):
                break
            if best and attempt >= _ENOUGH_TRIES:
                break
            below, above = ((budget, tokens), above) if fits else (below, (budget, tokens))
            if above[0] and below[0]:
                share = (_AIM * bound - below[1]) / (above[1] - below[1])
                budget = below[0] + (above[0] - below[0]) * min(max(share, 0.05), 0.95)
            else:  # scale by the error, and a little below it if that failed before
                budget *= bound / tokens * (_AIM if fits else 0.98 - 0.04 * attempt)
        return self._topped_up(best, best_choice, ranked, task, deadline)

    def _topped_up(
        self, text: str, chosen: list[Candidate], ranked: Sequence[Candidate], task: SummaryTask, deadline: Deadline
    ) -> str:
        """Return the text with further sentences, one by one, as long as they fit."""
        if not text or task.max_tokens > _TOP_UP_TOKENS:
            return text
        tokens = self._counter.count_text(text, task.model)
        free, error = task.max_tokens - tokens, tokens / sum(candidate.tokens for candidate in chosen)
        places, lines = {candidate.place for candidate in chosen}, {candidate.line for candidate in chosen}
        tries = 0
        for candidate in deadline.over(ranked):
            if free < _LEAST_FREE_TOKENS or tries >= _TOP_UP_TRIES:
                break
            if candidate.tokens * error > free or candidate.place in places:
                continue
            if candidate.rides and candidate.line not in lines:
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
    return sum([candidate.tokens + _LINE_TOKENS for candidate in candidates])


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
    """Return an ordinary sentence without its articles.

    Rules, facts, decisions, the request and bulk stay as they are: what the ledger carries is the speaker's own words.
    """
    is_rule_too = candidate.label and is_rule(candidate.text, words_of(candidate.text))  # a newer one outranks it
    if candidate.tier != 1 or is_rule_too:
        return candidate
    text = shorten(candidate.text)
    if text == candidate.text or _is_ledgers(candidate.text):
        return candidate
    tokens = candidate.tokens - estimated_tokens(candidate.text) + estimated_tokens(text)
    density = candidate.density * (candidate.tokens + FIXED_TOKENS) / (tokens + FIXED_TOKENS)
    return candidate.with_text(text, tokens, density)


def _ranked(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates, most important first: by class, then the densest, then in the order of the conversation."""
    return sorted(_by_density(candidates), key=attrgetter("tier"))


def _by_density(candidates: Sequence[Candidate]) -> list[Candidate]:
    """Return candidates, the densest first, those that are equally dense in the order of the conversation."""
    # Stable sorts by one field each are twice as fast as one by a tuple of all.
    return sorted(sorted(candidates, key=attrgetter("place")), key=attrgetter("density"), reverse=True)


class _Choice:
    """The candidates that were chosen, and the estimated tokens that are free."""

    def __init__(self, budget: float) -> None:
        self.candidates: list[Candidate] = []
        self.free = budget
        self._earlier = budget * _EARLIER_SHARE
        self._rules, self._listed = budget * _RULES_SHARE, budget * _LISTED_SHARE
        self._lines: set[int] = set()
        self._days: set[str] = set()
        self._labels: set[tuple[str, str]] = set()
        self._subjects: set[tuple[int, str]] = set()

    def add(self, candidate: Candidate, *, has_share: bool = True) -> bool:
        """Add a candidate if it fits; return False if its share is used up or its line is missing.

        :param has_share: whether it takes from the share of its kind, which bounds it
        """
        cost = candidate.tokens
        if candidate.line not in self._lines:
            if candidate.rides:
                return False
            cost += _LINE_TOKENS
        if candidate.subject and (candidate.line, candidate.subject) not in self._subjects:
            cost += estimated_tokens(candidate.subject)
        if candidate.day and candidate.day not in self._days:
            cost += estimated_tokens(candidate.day) + _DAY_TOKENS
        if candidate.label and (candidate.speaker, candidate.label) in self._labels:
            cost -= candidate.label_tokens
        is_rule = has_share and candidate.tier == 0
        is_earlier = has_share and candidate.tier > 0 and candidate.earlier
        is_listed = is_rule and candidate.listed
        if (
            (is_listed and cost > self._listed)
            or (is_rule and cost > self._rules)
            or (is_earlier and cost > self._earlier)
        ):
            return False
        if cost <= self.free:
            self.candidates.append(candidate)
            self._lines.add(candidate.line)
            self._days.add(candidate.day)
            self._labels.add((candidate.speaker, candidate.label))
            self._subjects.add((candidate.line, candidate.subject))
            self.free -= cost
            self._rules -= cost if is_rule else 0.0
            self._listed -= cost if is_listed else 0.0
            self._earlier -= cost if is_earlier else 0.0
        return True


def _chosen(ranked: Sequence[Candidate], budget: float) -> list[Candidate]:
    """Return the best candidates that fit into ``budget`` estimated tokens.

    Rules beyond their share compete with all other sentences, and lines of an earlier summary beyond theirs come last.

    :param ranked: candidates, most important first
    """
    choice = _Choice(budget)
    start = next((place for place, candidate in enumerate(ranked) if candidate.tier > 0), len(ranked))
    rules = [rule for rule in ranked[:start] if not choice.add(rule)]
    others = ranked[start:]
    if rules:
        others = sorted(_by_density([*rules, *others]), key=lambda candidate: candidate.tier > 1)
    late: list[Candidate] = []
    for candidate in others:
        if choice.free < _FULL_TOKENS:
            break
        if candidate.tokens > choice.free and not candidate.label:
            continue  # most do not fit any more when the best are in
        if not choice.add(candidate, has_share=candidate.tier > 0):
            late.append(candidate)
    for candidate in late:
        choice.add(candidate, has_share=False)
    return choice.candidates


def _assembled(chosen: Sequence[Candidate]) -> str:
    """Return one line for each place in the conversation, in order; sentences of one place share a line."""
    ordered = sorted(chosen, key=attrgetter("line", "place"))
    places = [list(group) for _, group in groupby(ordered, key=attrgetter("line"))]
    days = [place[0].day for place in places]
    return join_lines([(place[0].speaker, _line_of(place)) for place in places], days if any(days) else ())


def _line_of(place: Sequence[Candidate]) -> str:
    """Return sentences of one place as one text, with their marks, and once what they belong to."""
    text = ""
    for each in place:
        if each.subject and each.subject not in text:
            text += f" [{each.subject}]"
        text += f" {each.text} {each.mark}" if each.mark else f" {each.text}"
    return text[1:]


def shorten(sentence: str) -> str:
    """Return the sentence without its articles; the same text if it may not be shortened.

    English only. The opening word stays, since without it a sentence reads as an error, and so does the last one
    ("vitamin a"). Interjections and intensifiers stay: without them no more facts fit. Nothing that may be a rule, a
    quotation or code is touched.

    :returns: a subsequence of the words of ``sentence``, never empty for a sentence that is not
    """
    words = sentence.split()
    if len(words) < 4 or _UNTOUCHED.search(sentence) or sentence.endswith("?") or not _is_english(words):
        return sentence
    remaining = [
        word for word, after in pairwise(words[1:]) if word not in _ARTICLES or after.rstrip(_MARKS) in _WITH_ARTICLE
    ]
    return " ".join([words[0], *remaining, words[-1]])


def _is_english(words: list[str]) -> bool:
    """Return whether a sentence is English; "a" and "an" are other words elsewhere."""
    return "the" in words or len(_ENGLISH.intersection([word.lower() for word in words])) >= 2
