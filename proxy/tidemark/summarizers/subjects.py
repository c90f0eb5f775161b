"""Carries what a value belongs to into its line: "[推荐您去松鹤园] 电话是010-66230917。".

``salience`` uses it. It knows Chinese and Japanese, whose services answer with bare values, and in which no capital
letter tells a name. What is carried are words of the talk: the question, if it takes up a name, or else the clause
with which the same speaker introduced something. ``tests/summarizers/test_subjects.py`` counts how many are right.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from tidemark.summarizers.asides import asked_before
from tidemark.summarizers.deadline import UNBOUNDED, Deadline
from tidemark.summarizers.pieces import ORDINARY, Piece

_LETTERS = "\u3040-\u30ff\u3400-\u9fff"
_RUN = re.compile(f"[{_LETTERS}]+")
_CLAUSE = re.compile(rf"[{_LETTERS}]{{5,24}}(?![{_LETTERS}\d])")
"""Letters without a break, which no number follows: "推荐您去松鹤园", and neither "您好" nor "电话是010"."""
_VALUE_START = re.compile(rf"(?:[{_LETTERS}]{{1,4}}[^{_LETTERS}\d])*[{_LETTERS}]*\d")
"""A message that begins with a value, perhaps after a word such as "好的"; it introduces nothing."""
_PART = 3
"""Letters in a row by which a name is known again."""
_MOST_CHARS = 60
"""The most characters of a message that introduces something or is a bare value. Longer ones explain themselves."""
_MOST_LINES = 12
"""How many messages before a value something may have been introduced."""
_DIGIT = re.compile(r"\d")


class _Talk:
    """Follows who introduced what, message by message. Holds that as state."""

    def __init__(self, texts: Mapping[int, tuple[str, str]]) -> None:
        """Begin before the first message.

        :param texts: the speaker and the text of each message, by its line
        """
        self._texts = texts
        self._first: dict[str, str] = {}  # who said letters in a row first
        self._introduced: dict[str, tuple[int, str]] = {}  # by each speaker: the line, and the clause

    def with_subject(self, piece: Piece) -> Piece:
        """Return a value with what it belongs to in words of the talk, in the line of those words."""
        asker = self._texts.get(piece.line - 1, ("", ""))[0]
        if piece.question and any(self._first.get(part, asker) != asker for part in _parts(piece.question)):
            return replace(piece, subject=asked_before(piece))
        line, clause = self._introduced.get(piece.speaker, (-_MOST_LINES, ""))
        is_named = any(part in piece.phrase.plain for part in _parts(clause))
        return piece if is_named or piece.line - line > _MOST_LINES else replace(piece, subject=clause, line=line)

    def read(self, line: int) -> None:
        """Note what a message introduces."""
        speaker, text = self._texts[line]
        for part in _parts(text):
            self._first.setdefault(part, speaker)
        if len(text) > _MOST_CHARS or _VALUE_START.match(text) or (match := _CLAUSE.search(text)) is None:
            return
        is_sure = _DIGIT.search(text) is None or self._is_taken_up(match[0], line, speaker)
        self._introduced[speaker] = (line, match[0] if is_sure else "")

    def _is_taken_up(self, clause: str, line: int, speaker: str) -> bool:
        """Return whether another speaker says some of a clause soon after."""
        others = [self._texts.get(place, (speaker, "")) for place in range(line + 1, line + 1 + _MOST_LINES)]
        return any(part in text for name, text in others if name != speaker for part in _parts(clause))


def with_subjects(pieces: list[Piece], deadline: Deadline = UNBOUNDED) -> list[Piece]:
    """Return the pieces; bare values have what they belong to as their context.

    :raises SummaryOverdue: the deadline has passed
    """
    sentences: dict[int, list[str]] = {}
    speakers: dict[int, str] = {}
    for piece in deadline.over(pieces):
        plain = piece.phrase.plain
        if not plain.isascii() and not piece.speaker.startswith("Tool") and _RUN.search(plain):
            speakers[piece.line] = piece.speaker
            message = sentences.setdefault(piece.line, [])
            if len(message) <= _MOST_CHARS:  # a longer message introduces nothing, and is no bare value
                message.append(plain)
    texts = {line: (speakers[line], "\n".join(message)) for line, message in sentences.items()}
    if not texts:
        return pieces
    talk, result, above = _Talk(texts), list(pieces), -1
    for place, piece in enumerate(deadline.over(pieces)):
        if piece.line != above and above in texts:
            talk.read(above)
        above = piece.line
        if piece.line not in texts or not _is_plain_value(piece):
            continue
        if piece.earlier:
            result[place] = _with_subject_of_line(piece, sentences[piece.line][0])
        elif piece.question and len(texts[piece.line][1]) <= _MOST_CHARS:
            result[place] = talk.with_subject(piece)
    return result


def _with_subject_of_line(piece: Piece, first: str) -> Piece:
    """Return a value of an earlier summary with what the first sentence of its line introduces.

    The summary had both, so that it said nothing in brackets; the next one may keep the value alone.
    """
    match = None if piece.subject or first == piece.phrase.plain or _DIGIT.search(first) else _CLAUSE.search(first)
    return piece if match is None else replace(piece, subject=match[0])


def _is_plain_value(piece: Piece) -> bool:
    """Return whether a sentence of the assistant has a number, and is no rule."""
    is_plain = piece.speaker == "Assistant" and not piece.context and not piece.rule and piece.kind is ORDINARY
    return is_plain and _DIGIT.search(piece.phrase.plain) is not None


def _parts(text: str) -> list[str]:
    return [run[place : place + _PART] for run in _RUN.findall(text) for place in range(len(run) - _PART + 1)]
