"""Terms: what two texts must share to be about the same thing, in scripts with and without spaces.

The index of a conversation (``index.py``) and the question are cut into terms by the same rules.
"""

from __future__ import annotations

import re
import unicodedata

from tidemark.core.conversation.messages import Message

MOST_CHARS = 20_000
"""Characters of one message that are indexed: of a longer text, such as a log, the beginning and the end."""
LONGEST_TERM = 40
"""Longer runs are data (base64, hashes of files) that nobody repeats by heart; their beginning stands for them."""
STEM = 5
"""Letters of a long word that count: "allergic" and "allergies" are one term, in any language with endings."""
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Myanmar, Khmer
    "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # kana and Han
    "\uac00-\ud7af"  # Hangul has spaces, but its words end in particles
)
_TERM = re.compile(rf"[{_UNSPACED}]+|[^\W_{_UNSPACED}]+")
_ASCII_TERM = re.compile(r"[a-z0-9]+")
_ACCENTS = re.compile("[\u0300-\u036f]+")
_IS_UNSPACED = re.compile(rf"[{_UNSPACED}]")


def terms_of(text: str) -> list[str]:
    """Return the terms of a text in order: beginnings of words, or pairs of characters.

    Pairs are those of scripts without spaces between words. Case and accents do not count. Names such as
    ``snake_case`` and paths are the terms of their parts.
    """
    if text.isascii():
        return [_stem(word) for word in _ASCII_TERM.findall(text.lower())]
    terms: list[str] = []
    for run in _TERM.findall(plain_text(text)):
        if _IS_UNSPACED.match(run):
            terms += [run[at : at + 2] for at in range(len(run) - 1)] or [run]
        else:
            terms.append(_stem(run))
    return terms


def plain_text(text: str) -> str:
    """Return the text in small letters without accents; the vowel signs of Indic scripts stay."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    return unicodedata.normalize("NFC", _ACCENTS.sub("", decomposed))


def searched_text(message: Message) -> str:
    """Return what is indexed of a message: its text, and the names and arguments of its calls."""
    text = message.text
    if message.calls:
        text = "\n".join([text, *(f"{call.name} {call.arguments}" for call in message.calls)])
    if len(text) <= MOST_CHARS:
        return text
    return text[: MOST_CHARS // 2] + "\n" + text[-MOST_CHARS // 2 :]


def _stem(word: str) -> str:
    """Return the part of a word that counts: its beginning, or a whole name with digits."""
    if len(word) <= STEM:
        return word
    if word.isalpha():
        return word[:STEM]
    return word[:LONGEST_TERM]
