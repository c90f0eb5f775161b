"""Renders the templates of the console. Every value is escaped, because conversations hold anything.

Every page passes it, through ``visit.py``. The templates are files of ours in ``templates/``.

The filter ``by_hits`` finds the words of a search in a text; the templates escape every piece.
"""

from __future__ import annotations

import datetime as dt
import re
import time
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from tidemark.console.texts import pieces_of, shortened, visible
from tidemark.core.receipt import render_receipt

NOTHING = "\N{EN DASH}"
"""Stands where there is no figure."""

_environment = Environment(
    loader=PackageLoader("tidemark.console"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,
)
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


def render(template: str, **values: Any) -> bytes:
    """Return a page as UTF-8; half of a character, which clients make when they cut an emoji in two, becomes U+FFFD."""
    return _environment.get_template(template).render(**values).encode("utf-8", "replace")


def _number(value: float | None) -> str:
    """Write a whole number in groups of three digits; a dash for none."""
    return NOTHING if value is None else f"{value:,.0f}"


def _seconds(value: float | None) -> str:
    """Write a short time."""
    if value is None:
        return NOTHING
    return f"{value * 1000:.1f} ms" if value < 1 else f"{value:.2f} s"


def _usd(value: float | None) -> str:
    """Write an amount of money, below $10 with four digits behind the point, as most requests cost cents."""
    if value is None:
        return NOTHING
    return f"{chr(0x2212) if value < 0 else ''}${abs(value):,.{4 if abs(value) < 10 else 2}f}"


def write_figure(value: float | None, unit: str) -> str:
    """Write a figure of a plot in its unit."""
    return {"seconds": _seconds, "usd": _usd}.get(unit, _number)(value)


def _moment(value: float | None) -> str:
    """Write a time in the form of ``<time datetime>`` (UTC); the page's script shows it in the visitor's own zone."""
    if value is None:
        return NOTHING
    return dt.datetime.fromtimestamp(value, dt.UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def ago(value: float, now: float) -> str:
    """Write how long ago a time was, in its largest unit; the page's script goes on with it."""
    seconds = max(now - value, 0)
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit} ago"
    return "just now"


def _edge(value: float, form: str) -> str:
    """Write a time below a plot, shortly: ``clock`` for an hour and minute, ``date`` for a day (UTC)."""
    return dt.datetime.fromtimestamp(value, dt.UTC).strftime("%H:%M UTC" if form == "clock" else "%-d %b")


def write_instant(value: float) -> str:
    """Write a time for a machine (RFC 3339)."""
    return dt.datetime.fromtimestamp(value, dt.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


_environment.filters |= {
    "by_hits": divide_by_hits,
    "number": _number,
    "seconds": _seconds,
    "usd": _usd,
    "figure": write_figure,
    "moment": _moment,
    "instant": write_instant,
    "ago": lambda value: ago(value, time.time()),
    "visible": visible,
    "shortened": shortened,
    "pieces": pieces_of,
    "edge": _edge,
}
_environment.filters["receipt"] = render_receipt
