"""Finds the days that a talk states: "[8 May 2024, 13:56] Hey Tom!", "## Session 3 - 12 June".

``transcript`` and ``salience`` use it. A summary's line carries its day if it is another than that of the line before
it, in the talk's own words. Nothing is computed: "yesterday" is no day, and a talk that states none has none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tidemark.core.recall.asking import asking

_HEAD_CHARS = 120
"""The most characters of a heading with a day."""
_LEAST_BARE = 3
"""How many messages begin with a day alone before it is a heading. A single one may be an answer."""
_MONTH_TEXT = """
january february march april may june july august september october november december
jan feb mar apr jun jul aug sep sept oct nov dec
januar februar märz mai juni juli oktober dezember
janvier février mars avril juin juillet août septembre octobre novembre décembre
enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre
janeiro fevereiro março maio junho julho setembro outubro novembro dezembro
gennaio febbraio aprile maggio giugno luglio settembre ottobre dicembre
يناير فبراير مارس أبريل مايو يونيو يوليو أغسطس سبتمبر أكتوبر نوفمبر ديسمبر
"""
_WEEKDAY_TEXT = """
monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thurs fri sat sun
montag dienstag mittwoch donnerstag freitag samstag sonntag
lundi mardi mercredi jeudi vendredi samedi dimanche lunes martes miércoles jueves viernes sábado domingo
"""
_LEAD_TEXT = "session conversation chat sitzung séance sesión sessão"
_MONTHS, _WEEKDAYS, _LEADS = _MONTH_TEXT.split(), _WEEKDAY_TEXT.split(), _LEAD_TEXT.split()
_STARTS = frozenset(word[:3] for word in (*_MONTHS, *_WEEKDAYS, *_LEADS))
_SIGNS = frozenset("[(#*=-\u2013\u2014")
"""With which a heading begins; most messages begin with none of them."""


def _longest_first(words: Sequence[str]) -> str:
    return "|".join(sorted(words, key=len, reverse=True))


_MONTH = rf"(?:{_longest_first(_MONTHS)})\b\.?"
_DAY = (
    r"(?:\d{4}-\d\d?-\d\d?|\d{4}/\d\d?/\d\d?|\d\d?(?:\.\d\d?\.|/\d\d?/)(?:\d{4}|\d\d)|(?:\d{4}年)?\d\d?月\d\d?日"
    rf"|\d\d?(?:st|nd|rd|th|\.|º)? (?:of |de )?{_MONTH}(?:,? (?:de )?\d{{4}})?"
    rf"|{_MONTH} \d\d?(?:st|nd|rd|th)?(?:,? \d{{4}})?)(?:(?!\w)|(?=T\d))"
)
_TIME = r"(?:\d\d?:\d\d(?::\d\d)?(?:\.\d{1,6})?(?:\s?[ap]\.?m\b\.?|\sUhr\b)?|\d\d?\s?[ap]m\b)(?:Z|[+-]\d\d:?\d\d)?"
_WEEKDAY = rf"(?:{_longest_first(_WEEKDAYS)})\b\.?"
_SESSION_WORD = rf"(?:{_longest_first(_LEADS)})\b(?:\s#?\d{{1,4}})?"
_GAP = r"[\s,;:\u2013\u2014-]{1,3}"
_RULE = r"[\s:#=*\u2013\u2014-]"
_HEADING = (
    rf"(?:(?:{_SESSION_WORD}|{_WEEKDAY}|{_TIME}(?: on\b)?){_GAP}){{0,3}}(?:le )?(?P<day>{_DAY})"
    rf"(?:(?:{_GAP}|T)(?:(?:at )?{_TIME}|{_WEEKDAY}|UTC|GMT|[CE]E?S?T)){{0,3}}"
)
_LOGGED = r"(?!\W{0,4}(?:error|warn|info|debug|trace|fatal|critical|notice)\b)"
_BRACKETED = re.compile(rf"[\[(]{_HEADING}[\])](?!\(){_LOGGED}", re.IGNORECASE)
_SESSION = re.compile(rf"{_RULE}{{0,12}}(?={_SESSION_WORD}){_HEADING}{_RULE}*$", re.IGNORECASE)
_RULED = re.compile(rf"(?:#|[=*\u2013\u2014-]{{2}}){_RULE}{{0,12}}{_HEADING}{_RULE}*$", re.IGNORECASE)
_BARE = re.compile(
    rf"{_RULE}{{0,12}}{_HEADING}(?:{_RULE}*$|(?:\s?[:|]|\s[\u2013\u2014-])\s(?=\S)){_LOGGED}", re.IGNORECASE
)
_MARK = re.compile(rf"\[(?P<day>{_DAY})\] (?=\S)", re.IGNORECASE)


def marked_day(text: str) -> tuple[str, str]:
    """Return the day with which a summary's line is marked, and the line without it.

    The day is empty if the line has none.
    """
    match = _MARK.match(text) if text.startswith("[") else None
    return (match["day"], text[match.end() :]) if match else ("", text)


def days_of(texts: Sequence[str], marks: Sequence[str] = ()) -> list[str]:
    """Return the day of each text, which it or one before it states.

    The list is empty if no text states a day, and so is a day before the first one.

    :param texts: what people and models said, in order; empty for all else
    :param marks: days of the first texts that an earlier summary has
    """
    stated = {place: mark for place, mark in enumerate(marks) if mark}
    bare: dict[int, str] = {}
    for place, text in enumerate(texts):
        if text and (text[0] in _SIGNS or text[0].isdigit() or text[:3].lower() in _STARTS):
            if day := _headed(text):
                stated[place] = day
            elif (match := _BARE.match(_head(text))) and not (place and _asks(texts[place - 1])):
                bare[place] = match["day"]
    if len(bare) >= _LEAST_BARE:
        stated |= bare
    if not stated:
        return []
    days, day = [], ""
    for place in range(len(texts)):
        day = stated.get(place, day)
        days.append(day)
    return days


def begins_with(text: str, day: str) -> bool:
    """Return whether a line begins with a heading that has the day."""
    match = _BARE.match(_head(text)) if day in text[:_HEAD_CHARS] else None
    return day == (match["day"] if match else _headed(text))


def _headed(text: str) -> str:
    """Return the day of a heading that needs no others of its kind; empty if the text begins with none."""
    head = _head(text)
    match = _BRACKETED.match(head) or _SESSION.match(head) or (_RULED.match(head) if head == text else None)
    return match["day"] if match else ""


def _head(text: str) -> str:
    return text[:_HEAD_CHARS].partition("\n")[0]


def _asks(text: str) -> bool:
    return bool(text) and bool(asking(text))
