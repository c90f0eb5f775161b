"""What two texts do not share, by sentences and then by words, for pages that show both side by side.

The time is bounded: of long texts only sentences are compared, and of very long ones nothing is marked.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher

Piece = tuple[str, bool]
"""A part of a text, and whether only this text has it."""
MAX_SENTENCES = 1000
"""Sentences, and the spaces between them, of both texts together that are compared."""
MAX_WORDS = 1000
"""Words, signs and spaces of two runs of sentences together that are compared; of longer ones, the whole is marked."""
_ALIKE = 0.3
"""How much two sentences share at least, so that their words are compared."""
_SENTENCE = re.compile(r"\s+|\S[^\n]*?(?:[.!?:;\u3002\uff01\uff1f\u061f](?=\s|$)|(?=\n)|$)")
_WORD = re.compile(r"\w+|[^\w\s]|\s+")


def differences(left: str, right: str) -> tuple[Sequence[Piece], Sequence[Piece]]:
    """Return both texts in pieces that make up the whole."""
    sentences = [_SENTENCE.findall(text) for text in (left, right)]
    if sum(map(len, sentences)) > MAX_SENTENCES:
        return ((left, False),), ((right, False),)
    pieces: tuple[list[Piece], list[Piece]] = ([], [])
    for _, here, there in _runs(*sentences):
        words = [_WORD.findall("".join(run)) for run in (here, there)]
        is_near = here != there and here and there and sum(map(len, words)) <= MAX_WORDS
        runs = _runs(*words) if is_near else [(here == there, here, there)]
        shared = sum(len("".join(one)) for is_shared, one, _ in runs if is_shared)
        if is_near and shared < _ALIKE * min(len("".join(here)), len("".join(there))):
            runs = [(False, here, there)]
        for is_shared, one, other in runs:
            pieces[0].append(("".join(one), not is_shared))
            pieces[1].append(("".join(other), not is_shared))
    first, second = ([piece for piece in side if piece[0]] for side in pieces)
    return first, second


def _runs(left: Sequence[str], right: Sequence[str]) -> list[tuple[bool, Sequence[str], Sequence[str]]]:
    """Return runs of both sequences, in order, each with whether both have it."""
    matcher = SequenceMatcher(None, left, right, autojunk=False)
    return [
        (name == "equal", left[from_left:to_left], right[from_right:to_right])
        for name, from_left, to_left, from_right, to_right in matcher.get_opcodes()
    ]
