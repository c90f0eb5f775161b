"""Splits a text into sentences and a sentence into words.

All strategies use it. No sentence is longer than ``SENTENCE_CHARS``, so that no text makes a pattern slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

SENTENCE_CHARS = 320
"""The most characters of a sentence, about 80 tokens."""
_CLIPPED_CHARS = SENTENCE_CHARS // 2
"""Characters that stay of a longer word if a sentence is cut."""
_MONTH = "Jan|Feb|M[aä]r|Apr|Ma[ij]|Jun|Jul|Aug|Sep|O[ck]t|Nov|De[cz]"
_ARTICLE = "[Dd](?:e[rmns]|as|ie)|[Vv]om|[Zz]u[mr]"
_NO_ORDINAL = (
    # Neither "am 16. Juli" and "16. července" nor "der 2. Weltkrieg" and "im 10. Stock".
    rf"(?!{_MONTH}|[^\W\dA-ZÀ-Þ])(?<!\b(?:{_ARTICLE})\s\d\.[ \t])(?<!\b(?:{_ARTICLE})\s\d\d\.[ \t])"
    r"(?<!\b[Ii]m\s\d\.[ \t])(?<!\b[Ii]m\s\d\d\.[ \t])"
)
"""A place after a number and a full stop at which the number is no ordinal one."""
_ENDS = (
    # It starts with a simple class, so that the search skips from white space to white space.
    # Most white space is a blank after no stop, which one look tells.
    r"[ \t\n](?<![^.!?…؟۔][ \t])(?:"
    r"(?<=[.!?…؟۔][ \t])(?<!\b[A-Z]\.[ \t])(?<!\b(?:Mr|Ms|Dr|vs|St)\.[ \t])(?<!\bMrs\.[ \t])(?<!(?:e\.g|i\.e)\.[ \t])"
    r"(?<!^\d\.[ \t])(?<!\n\d\.[ \t])(?<!\n\d\d\.[ \t])[ \t]*"
    rf"(?:(?<![ \t]\d\.[ \t])(?<![ \t]\d\d\.[ \t])|{_NO_ORDINAL})"
    # A line end ends a sentence, except in hard-wrapped prose: a word, the line end, a lower-case letter.
    r"|(?<=\n)\s*+(?![a-z])|(?<=[^a-z,]\n)\s*"
)
_SENTENCE_END = re.compile(_ENDS + ")")
_WRAPPED_CHARS = 50
"""The least characters of a line of hard-wrapped prose in what a program wrote; a shorter line is whole."""
_OUTPUT_END = re.compile(rf"{_ENDS}|(?<![^\n]{{{_WRAPPED_CHARS}}}\n)(?<=\n)\s*)")
_WIDE_STOP = re.compile("[。！？]")
_THAI_GOES_ON = "แต่|ยกเว้น|ถ้า|หาก|เมื่อ|จน|เพราะ|ก็|และ|หรือ|เวลา|วัน|ที่|ใน|กับ|จาก|โดย|ของ|เพื่อ|ให้|ว่า|ซึ่ง|แล้ว|ถึง|ตั้งแต่|นะ|ครับ|ค่ะ"
_THAI_STOP = re.compile(rf" (?<=[ก-๙] )(?!(?:{_THAI_GOES_ON}))(?=[ก-๙])")
"""Thai ends a sentence with a blank; a conjunction, a preposition or a particle goes on with it."""
_THAI_CONDITION = re.compile("ถ้า|หาก|เมื่อ|ก่อน|หลัง|ตอน")
_CLAUSE_END = re.compile(r"\s+")
_LEADS = (
    "hey|hi|hello|wow|yeah|yep|oh|ah|haha|thanks|thank you|great|sure|okay|ok|well|cool|awesome|nice"
    "|absolutely|definitely|of course|certainly"
)
_LEAD = re.compile(rf"^(?:(?:{_LEADS})[,!.]*\s+)+(?=\S)", re.IGNORECASE)
_LEAD_WORDS = frozenset(lead.split()[0] for lead in _LEADS.split("|"))
WORD = re.compile(r"[^\W_]+")
_ASCII_WORDS = "".join(chr(code).lower() if chr(code).isalnum() else " " for code in range(256)).encode("latin-1")
"""Translates ASCII text, as bytes, into the words that ``WORD`` finds, six times as fast."""
_ASCII_LINES = _ASCII_WORDS[:10] + b"\n" + _ASCII_WORDS[11:]
"""The same, with the line ends as they are."""


def sentences(text: str, *, is_output: bool = False) -> list[str]:
    """Return the text's sentences and lines, none longer than ``SENTENCE_CHARS``; a very long word is shortened.

    Each is one line, so that none can imitate a line of a summary: every kind of line end splits the text.

    :param is_output: whether a program wrote it, in which short lines are no wrapped prose
    """
    text = "\n".join(text.splitlines())
    if not text.isascii():
        text = _WIDE_STOP.sub("\\g<0>\n", text)  # Chinese and Japanese put no space after a sentence
        if not _THAI_CONDITION.search(text):
            text = _THAI_STOP.sub("\n", text)
    parts: list[str] = []
    for sentence in (_OUTPUT_END if is_output else _SENTENCE_END).split(text):
        if len(sentence) > SENTENCE_CHARS:
            parts += _clauses(sentence)
        elif line := " ".join(sentence.split()) if "\n" in sentence else sentence.strip():
            parts.append(line)
    return parts


def tails(text: str) -> Iterator[str]:
    """Yield what ``sentences`` cuts off from very long words, such as encoded data and minified code."""
    if not text.isascii():
        text = _WIDE_STOP.sub("\\g<0>\n", text)
    for word in text.split():
        if len(word) > SENTENCE_CHARS:
            for start in range(_CLIPPED_CHARS, len(word), SENTENCE_CHARS):
                yield word[start : start + SENTENCE_CHARS]


def words_of(sentence: str) -> tuple[str, ...]:
    """Return the words of a sentence in lower case, without punctuation."""
    if sentence.isascii():
        return tuple(sentence.encode().translate(_ASCII_WORDS).decode().split())
    return tuple(WORD.findall(sentence.lower()))


def words_of_each(lines: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the words of each line, as ``words_of`` does, in half of the time.

    :param lines: without line ends
    """
    text = "\n".join(lines)
    if not text.isascii():
        return [words_of(line) for line in lines]
    return [tuple(line.split()) for line in text.encode().translate(_ASCII_LINES).decode().split("\n")] if lines else []


def has_lead(sentence: str, words: Sequence[str]) -> bool:
    """Return whether a sentence may open with an interjection, by its first word.

    :param words: the words of the sentence
    """
    return bool(words) and (words[0] in _LEAD_WORDS or not sentence.isascii())


def without_lead(sentence: str) -> str:
    """Return the sentence without its opening interjections."""
    match = _LEAD.match(sentence)
    return sentence[match.end() :] if match else sentence


def _clauses(sentence: str) -> Iterator[str]:
    """Yield a long sentence in pieces, split at white space; a piece without any is cut short."""
    clause = ""
    for word in _CLAUSE_END.split(sentence):
        clipped = word if len(word) <= _CLIPPED_CHARS else word[:_CLIPPED_CHARS] + "…"
        if len(clause) + 1 + len(clipped) > SENTENCE_CHARS:
            yield clause
            clause = clipped
        else:
            clause = f"{clause} {clipped}" if clause else clipped
    if clause.strip():
        yield clause
