"""Holds a model's narrative against the conversation that it tells of, and repairs what the conversation contradicts.

``compaction/writer.py`` asks for it through its comparison port, after a strategy has written. A statement with a value
that stands nowhere, with a negation turned round, or with a rule that no person gave is replaced by the source's own
words, or dropped. The work grows linearly with the text: each sentence of the source is read once.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from heapq import nlargest

from proxy.core.conversation.messages import Message
from proxy.core.grounding.polarity import agree, content_terms, hard_clauses
from proxy.core.grounding.values import Value, ValueSource, number_forms, values_of
from proxy.core.narrative import CheckedNarrative, Repair, RepairKind
from proxy.core.recall.terms import terms_of
from proxy.summarizers.deadline import UNBOUNDED, Deadline
from proxy.summarizers.rules import is_rule
from proxy.summarizers.sentences import sentences, words_of
from proxy.summarizers.transcript import NARRATIVE, read_back, utterances

_MARKUP = re.compile(r"^\s*(?:[-*•]\s+|\d+[.)]\s+)?(?:\*\*[^*\n]{1,60}:?\*\*:?\s+)?")
_FENCE = "```"
_LEAST_TERMS = 2
_SIMILAR, _SAME_MATTER = 0.75, 0.6
"""The shares of common terms of a clause and of a source's sentence about the same matter."""
_SUPPORT = 0.5
"""The share of a rule's terms that one sentence of a person must have, or else nobody gave that rule."""
_MOST_PLACES = 200
"""Sentences that are looked at for one term, the newest; a word that stands in more of them tells nothing."""
_MOST_COMPARED = 16
"""Sentences that a statement is compared with, those that are most like it."""
_COUNTED = re.compile(r"(?<![\w.,/:-])(\d[\d.,]*\d|\d)\s+([^\W\d_]{3,30})")
_NUMBERED = re.compile(
    r"\b(port|page|line|section|chapter|step|phase|room|floor|gate|level|build|release|version|order|invoice|ticket"
    r"|limit|timeout|budget|deadline)\s+(?:is\s+|was\s+|of\s+|to\s+|number\s+|no\.\s+)?(\d[\d.,]*\d|\d)",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Sentence:
    """A sentence of the source."""

    text: str
    terms: frozenset[str]
    by_tool: bool


class NarrativeSource:
    """What was said: its values, and the sentences that speak of what a narrative speaks of.

    :param terms: terms of the narrative; sentences without any of them are not kept
    """

    def __init__(
        self, messages: Sequence[Message], previous: str, terms: AbstractSet[str], deadline: Deadline = UNBOUNDED
    ) -> None:
        lines = [(line.text, line.speaker.startswith("Tool")) for line in read_back(previous)]
        lines += [(line.text, line.speaker.startswith("Tool")) for line in utterances(messages)]
        calls = [f"{call.name} {call.arguments}" for message in messages for call in message.calls]
        self._values = ValueSource("\n".join([*(text for text, _ in lines), *calls]))
        self._sentences: list[_Sentence] = []
        self._places: dict[str, list[int]] = defaultdict(list)
        self._numbers: dict[str, frozenset[str]] = {}
        """The numbers beside each term that was asked for."""
        for text, by_tool in lines:
            for sentence in deadline.over(sentences(text)):
                shared = content_terms(sentence)
                if shared.isdisjoint(terms):
                    continue
                for term in shared & terms:
                    self._places[term].append(len(self._sentences))
                self._sentences.append(_Sentence(sentence, shared, by_tool))

    def has(self, value: Value) -> bool:
        """Return whether a value was stated."""
        return self._values.has(value)

    def nearest(self, terms: AbstractSet[str]) -> list[_Sentence]:
        """Return the sentences with at least half of the terms, the one with the most of them first, newest first."""
        counts: Counter[int] = Counter()
        for term in terms:
            counts.update(self._places.get(term, ())[-_MOST_PLACES:])
        near = [(count, place) for place, count in counts.items() if count >= _SUPPORT * len(terms)]
        return [self._sentences[place] for _, place in nlargest(_MOST_COMPARED, near)]

    def numbers_beside(self, term: str) -> frozenset[str]:
        """Return all numbers of the sentences with a term; none where no sentence counts or numbers it."""
        if term not in self._numbers:
            places = self._places.get(term, ())[-_MOST_PLACES:]
            texts = [self._sentences[place].text for place in places]
            is_counted = any(term in terms_of(word) for text in texts for word, _ in _numbered(text))
            forms = frozenset[str]().union(*map(number_forms, texts)) if is_counted else frozenset[str]()
            self._numbers[term] = forms
        return self._numbers[term]


def check_summary(
    text: str, messages: Sequence[Message], previous: str, deadline: Deadline = UNBOUNDED
) -> CheckedNarrative:
    """Return a summary with its narrative repaired; what stands before the narrative is the ledger, which is copied.

    :raises SummaryOverdue: the deadline has passed
    """
    ledger, mark, narrative = f"\n{text}".partition(f"\n{NARRATIVE}\n")
    if not mark:
        return CheckedNarrative(text, text)
    checked = check_narrative(narrative, messages, previous, deadline)
    if not checked.repairs:
        return CheckedNarrative(text, text, statements=checked.statements)
    frame = f"{ledger}{mark}".removeprefix("\n")
    whole, shorter = (f"{frame}{prose}" if prose else "" for prose in (checked.text, checked.shorter))
    return CheckedNarrative(whole, shorter, checked.repairs, checked.statements)


def check_narrative(
    narrative: str, messages: Sequence[Message], previous: str, deadline: Deadline = UNBOUNDED
) -> CheckedNarrative:
    """Return a narrative without statements that its source contradicts, and without values that it does not have.

    :param previous: the earlier summary that the narrative continues
    :raises SummaryOverdue: the deadline has passed
    """
    source = NarrativeSource(messages, previous, content_terms(narrative) | set(terms_of(narrative)), deadline)
    counts: Counter[tuple[RepairKind, bool]] = Counter()
    texts, shorter, count, fenced = [], [], 0, False
    for line in narrative.split("\n"):
        fenced ^= line.lstrip().startswith(_FENCE)
        if fenced or line.lstrip().startswith(("#", _FENCE)):
            texts.append(line)
            shorter.append(line)
            continue
        checked = [(sentence, *_repaired(sentence, source)) for sentence in deadline.over(_statements(line))]
        count += len(checked)
        wrong = [kind for _, kind, _ in checked if kind]
        if not wrong:
            texts.append(line)
            shorter.append(line)
            continue
        for _, kind, words in checked:
            if kind:
                counts[kind, bool(words)] += 1
        mark = (_MARKUP.match(line) or [""])[0]
        texts += _line(mark, (words if kind else sentence for sentence, kind, words in checked))
        shorter += _line(mark, ("" if kind else sentence for sentence, kind, _ in checked))
    repairs = tuple(
        Repair(kind, "replaced" if is_replaced else "dropped", number)
        for (kind, is_replaced), number in sorted(counts.items())
    )
    return CheckedNarrative(_without_empty_sections(texts), _without_empty_sections(shorter), repairs, count)


def _statements(line: str) -> Iterator[str]:
    mark = _MARKUP.match(line)
    yield from sentences(line[mark.end() :] if mark else line)


def _line(mark: str, parts: Iterable[str]) -> list[str]:
    text = " ".join(part for part in parts if part)
    return [mark + text] if text else []


def _without_empty_sections(lines: Sequence[str]) -> str:
    """Return the lines as a text, without headings that have nothing under them any more."""
    remaining: list[str] = []
    for line in reversed(lines):
        following = next((candidate for candidate in reversed(remaining) if candidate.strip()), "#")
        if not (line.startswith("#") and following.startswith("#")):
            remaining.append(line)
    return "\n".join(reversed(remaining)).strip()


def _repaired(sentence: str, source: NarrativeSource) -> tuple[RepairKind | None, str]:
    """Return what is wrong with a statement, and the source's own words for it; empty where it has none."""
    terms = content_terms(sentence)
    near = source.nearest(terms) if len(terms) >= _LEAST_TERMS else []
    if (turned := _turned(sentence, source)) is not None:
        return "negation", turned
    if (
        is_rule(sentence, words_of(sentence))
        and all(candidate.by_tool for candidate in near)
        and len(terms) >= _LEAST_TERMS
    ):
        return "rule", ""
    kind = _wrong_value(sentence, source)
    if kind is None:
        return None, ""
    own = next((candidate for candidate in near if not candidate.by_tool), None) or next(iter(near), None)
    return kind, own.text if own else ""


def _turned(sentence: str, source: NarrativeSource) -> str | None:
    """Return the source's words for a statement whose contrary was said, and which nobody said."""
    for clause in hard_clauses(sentence):
        terms = content_terms(clause)
        if len(terms) < _LEAST_TERMS:
            continue
        contrary, is_supported = None, False
        for candidate in source.nearest(terms):
            common = terms & candidate.terms
            if candidate.text.endswith("?") or not _is_same_matter(common, terms, candidate.terms):
                continue
            if agree(clause, candidate.text, common):
                is_supported = True
                break
            contrary = contrary or candidate
        if contrary and not is_supported:
            return contrary.text
    return None


def _is_same_matter(common: AbstractSet[str], terms: AbstractSet[str], others: AbstractSet[str]) -> bool:
    """Return whether a sentence of the source is about what a clause is about."""
    if len(common) < _LEAST_TERMS:
        return False
    return len(common) >= _SIMILAR * len(others) or (
        len(common) >= _SIMILAR * len(terms) and len(common) >= _SAME_MATTER * len(others)
    )


def _wrong_value(sentence: str, source: NarrativeSource) -> RepairKind | None:
    """Return the kind of a value that stands nowhere in the source, or beside another word only."""
    for word, number in _numbered(sentence):
        beside = [source.numbers_beside(term) for term in content_terms(word)]
        if any(beside) and all(numbers.isdisjoint(number_forms(number)) for numbers in beside):
            return "number"
    for value in values_of(sentence):
        if not source.has(value) and not value.is_count:
            return value.kind
    return None


def _numbered(sentence: str) -> list[tuple[str, str]]:
    """Return each noun that a sentence counts or numbers, with its number: "3 retries", "port 8080"."""
    pairs = [(match[1], match[2]) for match in _NUMBERED.finditer(sentence)]
    return pairs + [(match[2], match[1]) for match in _COUNTED.finditer(sentence)]
