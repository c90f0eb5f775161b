"""Finds the words of a search in a text that a page shows.

``rendering.py`` offers it to the templates as the filter ``by_hits``; they escape every piece.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache

_TERM = re.compile(r'"([^"]+)"|(\S+)')
"""A phrase in quotation marks, or a word, as ``features/conversations/search_index.py`` reads a query."""


def divide_by_hits(text: str, query: str) -> Sequence[tuple[str, bool]]:
    """Return the pieces of a text in their order, each with whether it is a word of the query.

    As in the search, case and accents are alike, and a word matches by its beginning; if a text has it only inside
    other words, it is a hit there.
    """
    terms = [re.escape(_plain(phrase or word)) for phrase, word in _TERM.findall(query) if (phrase or word).strip()]
    if not terms:
        return [(text, False)]
    plain = _plain(text)
    longest_first = "|".join(sorted(terms, key=len, reverse=True))
    places = [*re.finditer(rf"\b(?:{longest_first})", plain)] or [*re.finditer(longest_first, plain)]
    pieces, end = list[tuple[str, bool]](), 0
    for place in places:
        pieces += [(text[end : place.start()], False), (text[place.start() : place.end()], True)]
        end = place.end()
    return [piece for piece in (*pieces, (text[end:], False)) if piece[0]]


def _plain(text: str) -> str:
    """Return a text of the same length, in small letters without accents."""
    return text.lower() if text.isascii() else "".join(map(_plain_letter, text))


@lru_cache(4096)
def _plain_letter(letter: str) -> str:
    small = unicodedata.normalize("NFD", letter.lower())
    return small[0] if small else letter
