"""Splits messages and an earlier summary into sentences, each with its speaker, and marks the user's rules.

``salience`` weighs them for ``extractive``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from proxy.core.reading import Phrase, Reading
from proxy.summarizers.deadline import Deadline
from proxy.summarizers.labels import is_labelled
from proxy.summarizers.passages import read_phrases, whole_phrase
from proxy.summarizers.request import REQUEST
from proxy.summarizers.rules import is_document
from proxy.summarizers.sentences import tails
from proxy.summarizers.transcript import CALLED, EARLIER, Utterance

_LEDGER_TEXT = "Rule Fact Error Decision Files Commands Links Identifiers Numbers"
_LEDGER = frozenset({REQUEST, EARLIER, *_LEDGER_TEXT.split()})
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")  # also of Chinese and Arabic
_ENCODED_CHARS = 60
"""Characters from which a run of letters and digits may be encoded data; a line of PEM has 64."""
_ENCODED = re.compile(r"(?<![\w+/=-])([\w+/=-]{24})[\w+/=-]{36,}", re.ASCII)
ENCODED_MARK = "…"
_ENCODED_LINES = re.compile(rf"([\w+/=-]{{24}}{ENCODED_MARK})(?: [\w+/=-]{{24}}{ENCODED_MARK})+", re.ASCII)
_RESULT_CHARS = 1500
"""Characters of a tool result that are weighed, beside the lines that report an error."""
_MARKER_CHARS = 4
_MARKER = re.compile(r"\d{1,3}[.)]")
"""The number of an item of a list, which a split left alone; it is no statement."""


class Piece(NamedTuple):
    """A sentence at its place."""

    speaker: str
    phrase: Phrase
    """The sentence as a summary keeps it: its ``plain`` text."""
    line: int
    earlier: bool
    bulk: bool
    rule: bool
    """Whether it is a rule of the user."""
    is_reply: bool = False
    """Whether the utterance before asks a question."""


def pieces_of(
    old: Sequence[Utterance], new: Sequence[Utterance], *, with_bulk: bool, reading: Reading, deadline: Deadline
) -> list[Piece]:
    """Return the sentences of an earlier summary's lines and of new utterances, in their order."""
    pieces: list[Piece] = []
    is_asked = False
    for line, utterance in enumerate(deadline.over((*old, *new))):
        speaker, earlier = utterance.speaker, line < len(old)
        # Sentences with the same words are the same, whatever their punctuation.
        parts = _parts(utterance, reading, deadline, earlier=earlier, with_bulk=with_bulk)
        is_carried = speaker in ("Rule", REQUEST)
        is_pasted = is_document(len(utterance.text), sum(phrase.rule == "demand" for phrase, _ in parts))
        for phrase, bulk in parts:
            if len(phrase.plain) <= _MARKER_CHARS and _MARKER.fullmatch(phrase.plain):
                continue
            kind = phrase.rule
            rule = is_carried or (kind is not None and (kind == "directive" or not is_pasted))
            pieces.append(Piece(speaker, phrase, line, earlier, bulk, rule, is_asked))
        is_asked = utterance.text.endswith(_QUESTION_MARKS)
    return pieces


def without_encoded_ends(text: str) -> str:
    """Return a text in which encoded data, such as base64, has its beginning only."""
    clipped = _ENCODED.sub(lambda match: match[1] + ENCODED_MARK if _is_mixed(match[0]) else match[0], text)
    return text if clipped == text else _ENCODED_LINES.sub(r"\1", clipped)


def _is_mixed(run: str) -> bool:
    """Return whether characters are encoded data: a digest in hexadecimal digits or a name in one case is none."""
    return len(run) >= 2 * _ENCODED_CHARS or (run.lower() != run != run.upper() and any(map(str.isdigit, run)))


def _parts(
    utterance: Utterance, reading: Reading, deadline: Deadline, *, earlier: bool, with_bulk: bool
) -> list[tuple[Phrase, bool]]:
    """Return the parts of an utterance that a summary keeps or drops as a whole, and whether each is bulk."""
    by_user = utterance.speaker.startswith("User")
    if utterance.text.startswith(CALLED) or (earlier and utterance.speaker in _LEDGER):
        return [(whole_phrase(utterance.text, by_user=by_user), False)]
    phrases = read_phrases(utterance, reading, deadline)
    if phrases and is_labelled(first := phrases[0].sentence) and len(utterance.text) < 2 * len(first) + 120:
        return [(whole_phrase(" ".join(phrase.sentence for phrase in phrases), by_user=by_user), False)]
    if utterance.speaker.startswith("Tool") and not earlier:
        parts = list(_parts_of_result(phrases, with_bulk=with_bulk))
    else:
        parts = [(_clipped(phrase, by_user=by_user), False) for phrase in phrases]
    if with_bulk:
        parts += [(whole_phrase(part, by_user=by_user), True) for part in tails(utterance.text)]
    return parts


def _parts_of_result(phrases: Sequence[Phrase], *, with_bulk: bool) -> Iterator[tuple[Phrase, bool]]:
    """Yield the beginning of a tool's result and the lines that report an error; the rest is bulk."""
    weighed = 0
    for phrase in phrases:
        weighed += len(phrase.sentence)
        if weighed > _RESULT_CHARS:
            whole = phrase if phrase.plain == phrase.sentence else whole_phrase(phrase.sentence, by_user=False)
            if not whole.is_error:
                if with_bulk:
                    yield whole, True
                continue
        yield _clipped(phrase, by_user=False), False


def _clipped(phrase: Phrase, *, by_user: bool) -> Phrase:
    """Return a phrase in which encoded data has its beginning only."""
    if len(phrase.plain) < _ENCODED_CHARS:
        return phrase
    text = without_encoded_ends(phrase.plain)
    return phrase if text == phrase.plain else whole_phrase(text, by_user=by_user)
