"""Finds the days that a talk states: "[8 May 2024, 13:56] Hey Tom!", "## Session 3 - 12 June".

``transcript`` and ``salience`` use it. A summary's line carries its day if it is another than that of the line before
it, in the talk's own words. Nothing is computed: "yesterday" is no day, and a talk that states none has none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from tidemark.core.recall.asking import asking

_HEAD_CHARS = 120
"""The most characters of a heading with a day."""
_LEAST, _LEAST_BARE = 2, 3
"""With how many days messages begin before they are headings. A single one may be an answer, a log or a citation."""
_LATER = 3
"""How many of the next headings say whether one is of a day that is still to come."""
_MONTH_TEXT = """
january jan januar janvier enero janeiro gennaio يناير
february feb februar février febrero fevereiro febbraio فبراير
march mar märz mars marzo março مارس
april apr avril abril aprile أبريل
may mai mayo maio maggio مايو
june jun juni juin junio junho giugno يونيو
july jul juli juillet julio julho luglio يوليو
august aug août agosto أغسطس
september sep sept septembre septiembre setembro settembre سبتمبر
october oct oktober octobre octubre outubro ottobre أكتوبر
november nov novembre noviembre novembro نوفمبر
december dec dezember décembre diciembre dezembro dicembre ديسمبر
"""
"""The names of a month in each line."""
_WEEKDAY_TEXT = """
monday tuesday wednesday thursday friday saturday sunday mon tue tues wed thu thurs fri sat sun
montag dienstag mittwoch donnerstag freitag samstag sonntag
lundi mardi mercredi jeudi vendredi samedi dimanche lunes martes miércoles jueves viernes sábado domingo
"""
_LEAD_TEXT = "session conversation chat sitzung séance sesión sessão"
_WEEKDAYS, _LEADS = _WEEKDAY_TEXT.split(), _LEAD_TEXT.split()
_MONTHS = {name: month for month, names in enumerate(_MONTH_TEXT.strip().split("\n"), 1) for name in names.split()}
_STARTS = frozenset(word[:3] for word in (*_MONTHS, *_WEEKDAYS, *_LEADS))
_SIGNS = frozenset("[(#*=-\u2013\u2014")
"""With which a heading begins; most messages begin with none of them."""


def _longest_first(words: Iterable[str]) -> str:
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
_GAP = r"[\s,;:(\u2013\u2014-]{1,3}"
_RULE = r"[\s:#=*\u2013\u2014-]"
_HEADING = (
    rf"(?:(?:{_SESSION_WORD}|date|{_WEEKDAY}|(?P<early>{_TIME})(?: on\b)?){_GAP}){{0,3}}(?:le )?(?P<day>{_DAY})"
    rf"(?:(?:{_GAP}|T)(?:(?:at )?(?P<late>{_TIME})|{_WEEKDAY}|UTC|GMT|[CE]E?S?T)){{0,3}}"
)
_LOGGED = r"(?!\W{0,4}(?:error|warn|info|debug|trace|fatal|critical|notice)\b)"
_BRACKETED = re.compile(rf"[\[(]{_HEADING}[\])](?!\(){_LOGGED}", re.IGNORECASE)
_SESSION = re.compile(rf"{_RULE}{{0,12}}(?={_SESSION_WORD}){_HEADING}\)?{_RULE}*$", re.IGNORECASE)
_RULED = re.compile(rf"(?:#|[=*\u2013\u2014-]{{2}}){_RULE}{{0,12}}{_HEADING}{_RULE}*$", re.IGNORECASE)
_BARE = re.compile(
    rf"{_RULE}{{0,12}}{_HEADING}(?:{_RULE}*$|(?P<text>\s?[:|]|\s[\u2013\u2014-])\s(?=\S)){_LOGGED}", re.IGNORECASE
)
_MARK = re.compile(rf"\[(?P<day>{_DAY}):\] (?=\S)", re.IGNORECASE)
_Day = tuple[int, int, int]
"""A year, a month and a day of it; the year is 0 if it is not stated."""


def with_mark(text: str, day: str) -> str:
    """Return a summary's line that says its day, in place of the bracket that did.

    The colon of a mark tells it from a bracket of the talk.
    """
    match = _BRACKETED.match(_head(text))
    own = text[match.end() :].lstrip() if match and match["day"] == day else ""
    return f"[{day}:] {own or text}"


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
    headed: dict[int, str] = {}
    bare: dict[int, str] = {}
    for place, text in enumerate(texts):
        if text and (text[0] in _SIGNS or text[0].isdigit() or text[:3].lower() in _STARTS):
            if day := _headed(text):
                headed[place] = day
            elif (day := _bare(text)) and not (place and _asks(texts[place - 1])):
                bare[place] = day
    for headings, least in ((headed, _LEAST), (bare, _LEAST_BARE)):
        ordered = _in_order(headings, stated)
        if len(set(ordered.values())) >= (1 if stated else least):
            stated |= ordered
            break
    if not stated:
        return []
    days, day = [], ""
    for place in range(len(texts)):
        day = stated.get(place, day)
        days.append(day)
    return days


def _headed(text: str) -> str:
    """Return the day of a heading with signs or a word for a session; empty if there is none."""
    head = _head(text)
    match = _BRACKETED.match(head) or _SESSION.match(head) or (_RULED.match(head) if head == text else None)
    return _day_of(match) if match else ""


def _bare(text: str) -> str:
    """Return the day with which a text begins; empty for a plan such as "8 May: dentist"."""
    match = _BARE.match(_head(text))
    return _day_of(match) if match and (not match["text"] or match["early"] or match["late"]) else ""


def _day_of(match: re.Match[str]) -> str:
    """Return the day of a heading; empty for a version, such as 1.2.24, and for 99/99/99."""
    day = match["day"]
    if not (match["early"] or match["late"]) and (
        re.fullmatch(r"\d\d?[./]\d\d?[./]\d\d", day) or (match.string[0] in "#=" and re.fullmatch(r"[\d.]+", day))
    ):
        return ""
    return day if _date(day) or _date(day, month_first=True) else ""


def _in_order(headings: Mapping[int, str], marks: Mapping[int, str]) -> dict[int, str]:
    """Return the headings of a talk that goes on, without the days that it quotes.

    Those are before the day on which they stand, or behind most of the next headings.
    """
    return max((_going_on(headings, marks, month_first=month_first) for month_first in (False, True)), key=len)


def _going_on(headings: Mapping[int, str], marks: Mapping[int, str], *, month_first: bool) -> dict[int, str]:
    dates = {place: _date(day, month_first=month_first) for place, day in {**headings, **marks}.items()}
    places, stated, today = sorted(dates), dict[int, str](), None
    for number, place in enumerate(places, 1):
        date = dates[place]
        if date and place in marks:
            today = date
        elif date and not (today and _is_before(date, today)):
            later = [dates[next_one] for next_one in places[number : number + _LATER]]
            if sum(_is_before(other, date) for other in later if other) < _LATER - 1:
                stated[place], today = headings[place], date
    return stated


def _date(day: str, *, month_first: bool = False) -> _Day | None:
    """Return the date of a day; None for one that no calendar has."""
    first, second, *rest = *(int(number) for number in re.findall(r"\d+", day)), 0
    name = re.search(r"[^\W\d]{3,}", day.lower())
    if name:
        year, month, number = second, _MONTHS.get(name[0], 0), first
    elif first <= 12 and "\u6708" in day:
        year, month, number = 0, first, second
    elif first > 99:
        year, month, number = first, second, rest[0]
    else:
        year, month, number = rest[0] + 2000 * (rest[0] < 100), second, first
        if month_first and "/" in day:
            month, number = number, month
    return (year, month, number) if 1 <= month <= 12 and 1 <= number <= 31 else None


def _is_before(day: _Day, other: _Day) -> bool:
    """Return whether a day is before another; without a year, by the shorter way around it."""
    if day[0] and other[0]:
        return day < other
    return ((day[1] - other[1]) * 31 + day[2] - other[2]) % 372 >= 186


def _head(text: str) -> str:
    return text[:_HEAD_CHARS].partition("\n")[0]


def _asks(text: str) -> bool:
    return bool(text) and bool(asking(text))
