"""Splits messages and an earlier summary into sentences, each with its speaker, and marks the user's rules.

``salience`` weighs them for ``extractive``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from proxy.summarizers.deadline import Deadline
from proxy.summarizers.request import REQUEST
from proxy.summarizers.signals import (
    is_document,
    is_error,
    is_labelled,
    rule_kind,
    sentences,
    tails,
    without_lead,
    words_of,
)
from proxy.summarizers.transcript import CALLED, EARLIER, Utterance

_LEDGER_TEXT = "Rule Fact Error Decision Files Commands Links Identifiers Numbers"
_LEDGER = frozenset({REQUEST, EARLIER, *_LEDGER_TEXT.split()})
_QUESTION_MARKS = ("?", "\uff1f", "\u061f")  # also of Chinese and Arabic
_LONG_CHARS = 20_000
"""Within a longer text the deadline is checked, too."""
_ENCODED_CHARS = 60
"""Characters from which a run of letters and digits may be encoded data; a line of PEM has 64."""
_ENCODED = re.compile(r"(?<![\w+/=-])([\w+/=-]{24})[\w+/=-]{36,}", re.ASCII)
ENCODED_MARK = "…"
_ENCODED_LINES = re.compile(rf"([\w+/=-]{{24}}{ENCODED_MARK})(?: [\w+/=-]{{24}}{ENCODED_MARK})+", re.ASCII)
_RESULT_CHARS = 1500
"""Characters of a tool result that are weighed, beside the lines that report an error."""
_MARKER = re.compile(r"\d{1,3}[.)]")
"""The number of an item of a list, which a split left alone; it is no statement."""


class Piece(NamedTuple):
    """A sentence at its place."""

    speaker: str
    text: str
    line: int
    earlier: bool
    bulk: bool
    words: tuple[str, ...]
    rule: bool
    """Whether it is a rule of the user."""
    is_reply: bool = False
    """Whether the utterance before asks a question."""


def pieces_of(
    old: Sequence[Utterance], new: Sequence[Utterance], *, with_bulk: bool, deadline: Deadline
) -> Iterator[Piece]:
    """Yield the sentences of an earlier summary's lines and of new utterances, in their order."""
    is_asked = False
    for line, utterance in enumerate(deadline.over((*old, *new))):
        texts = _texts(utterance, earlier=line < len(old), with_bulk=with_bulk)
        # Sentences with the same words are the same, whatever their punctuation.
        checked = deadline.over(texts) if len(utterance.text) > _LONG_CHARS else texts
        parts = [(text, bulk, words_of(text)) for text, bulk in checked]
        by_user = utterance.speaker.startswith("User")
        kinds = [rule_kind(text, words) if by_user else None for text, _, words in parts]
        is_pasted = is_document(len(utterance.text), kinds.count("demand"))
        is_carried = utterance.speaker in ("Rule", REQUEST)
        for (text, bulk, words), kind in zip(parts, kinds, strict=True):
            if _MARKER.fullmatch(text):
                continue
            rule = is_carried or kind == "directive" or (kind == "demand" and not is_pasted)
            yield Piece(utterance.speaker, text, line, line < len(old), bulk, words, rule, is_asked)
        is_asked = utterance.text.endswith(_QUESTION_MARKS)


def without_encoded_ends(text: str) -> str:
    """Return a text in which encoded data, such as base64, has its beginning only."""
    clipped = _ENCODED.sub(lambda match: match[1] + ENCODED_MARK if _is_mixed(match[0]) else match[0], text)
    return text if clipped == text else _ENCODED_LINES.sub(r"\1", clipped)


def _is_mixed(run: str) -> bool:
    """Return whether characters are encoded data: a digest in hexadecimal digits or a name in one case is none."""
    return len(run) >= 2 * _ENCODED_CHARS or (run.lower() != run != run.upper() and any(map(str.isdigit, run)))


def _texts(utterance: Utterance, *, earlier: bool, with_bulk: bool) -> Iterator[tuple[str, bool]]:
    """Yield the parts of an utterance that a summary keeps or drops as a whole, and whether each is bulk."""
    if utterance.text.startswith(CALLED) or (earlier and utterance.speaker in _LEDGER):
        yield utterance.text, False
        return
    parts = list(sentences(utterance.text))
    if parts and is_labelled(parts[0]) and len(utterance.text) < 2 * len(parts[0]) + 120:
        yield " ".join(parts), False
        return
    is_result = utterance.speaker.startswith("Tool") and not earlier
    weighed = 0
    for part in parts:
        weighed += len(part)
        if is_result and weighed > _RESULT_CHARS and not is_error(part, words_of(part)):
            if with_bulk:
                yield part, True
            continue
        plain = without_lead(part)
        if plain:
            yield plain if len(plain) < _ENCODED_CHARS else without_encoded_ends(plain), False
    if with_bulk:
        for part in tails(utterance.text):
            yield part, True
