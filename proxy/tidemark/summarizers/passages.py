"""Reads utterances once for all that need their sentences: strategies, the ledger and the loss receipt.

What is read is kept in the ``Reading`` of the compaction, so that its next reader finds it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemark.core.frozen import frozen
from tidemark.core.phrases import Phrase, Reading
from tidemark.summarizers.deadline import Deadline
from tidemark.summarizers.records import records
from tidemark.summarizers.rules import rule_kind
from tidemark.summarizers.sentences import has_lead, sentences, without_lead, words_of, words_of_each
from tidemark.summarizers.signals import has_signs, is_decision, is_error, is_fact
from tidemark.summarizers.transcript import Utterance

_MANY_PARTS = 200
"""Within a text of more sentences the deadline is checked, too."""


@frozen
class Passage:
    """A text of one speaker at one place, with its phrases."""

    speaker: str
    text: str
    phrases: Sequence[Phrase]


def passages(utterances: Iterable[Utterance], reading: Reading, deadline: Deadline) -> list[Passage]:
    """Return utterances with their phrases.

    :raises SummaryOverdue: the deadline has passed
    """
    return [
        Passage(utterance.speaker, utterance.text, read_phrases(utterance, reading, deadline))
        for utterance in deadline.over(utterances)
    ]


def read_phrases(utterance: Utterance, reading: Reading, deadline: Deadline) -> Sequence[Phrase]:
    """Return the phrases of an utterance, and keep them in the reading.

    :raises SummaryOverdue: the deadline has passed
    """
    text, by_user = utterance.text, utterance.speaker.startswith("User")
    phrases = reading.phrases(text, by_user=by_user)
    if phrases is None:
        by_tool = utterance.speaker.startswith("Tool")
        parts = (records(text) if by_tool else None) or sentences(text, is_output=by_tool)
        phrases = _phrases_of(parts, deadline, by_user=by_user, by_tool=by_tool)
        reading.keep(text, phrases, by_user=by_user)
    return phrases


def _phrases_of(parts: Sequence[str], deadline: Deadline, *, by_user: bool, by_tool: bool) -> list[Phrase]:
    pairs = zip(parts, words_of_each(parts), strict=True)
    phrases: list[Phrase] = []
    for sentence, words in deadline.over(pairs) if len(parts) > _MANY_PARTS else pairs:
        if not by_tool and has_lead(sentence, words) and (plain := without_lead(sentence)) != sentence:
            phrases.append(_phrase(sentence, plain, words_of(plain), by_user=by_user))
        else:
            phrases.append(_phrase(sentence, sentence, words, by_user=by_user))
    return phrases


def whole_phrase(text: str, *, by_user: bool) -> Phrase:
    """Return a text that is kept or dropped as a whole, with its opening words."""
    return _phrase(text, text, words_of(text), by_user=by_user)


def _phrase(sentence: str, plain: str, words: tuple[str, ...], *, by_user: bool) -> Phrase:
    rule = rule_kind(plain, words) if by_user else None
    fact = by_user and is_fact(plain, words)
    if has_signs(plain, words):
        return Phrase(sentence, plain, words, rule, fact, is_decision(plain, words), is_error(plain, words))
    return Phrase(sentence, plain, words, rule, fact)
