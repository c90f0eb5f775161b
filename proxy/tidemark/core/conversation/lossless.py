"""Lossless forms of tool results: the same content without what carries nothing.

White space between the tokens of JSON goes, and so do escape codes of terminals, blanks at line ends, and all but the
first of equal lines. ``squeezed`` uses a form only if ``restored`` makes the very text of it again. A form follows from
the text alone, so every process makes the same one. Any change of a rule is a change of forwarded bytes (promise 5).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import accumulate, groupby
from operator import add, eq

from tidemark.core.frozen import frozen

LEAST_CHARS = 500
"""A shorter text saves too few tokens."""
LEAST_GAIN = 0.10
"""The least share of its characters that a text must lose; else it stays as it is."""
LEAST_RUN = 3
"""The fewest equal lines that become one and a count."""
MARK = "[... {count:,} more lines like this one, left out by Tidemark ...]"
_OWN_MARK = "left out by Tidemark ...]"
MOST_DEPTH = 100
"""Deeper JSON stays as it is: its indentation would grow with the square of its length."""

_CODE = re.compile(
    r"(\x1b(?:\[[0-?]*[ -/]*[@-~]"  # colours, cursor, modes
    r"|\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles
    r"|[()][0-9A-B]|[78=>]))"  # character sets, saved positions, keypads
)
_LINK = "\x1b]8;"
"""Begins a link, whose address a reader may need."""
_SPACE = " \t\n\r"
_NO_SPACE = dict.fromkeys(map(ord, _SPACE))
_STRUCTURE = re.compile(r"(?:[\0{}\[\],:0-9.+\-eE]++|true|false|null)*+")
"""JSON without white space, with a NUL for each string."""
_IN, _OUT = "\3", "\4"
"""Line ends in a structure: before the first member, and behind the last one."""
_STEPS = {_IN: 1, _OUT: -1, "\n": 0}
_AS_LINES = dict.fromkeys(map(ord, (_IN, _OUT)), "\n")
_NO_TOKENS = dict.fromkeys(map(ord, "\0{}[],:0123456789.+-eEtruefalsn "))
_COLON, _COMMA, _INDENT = re.compile(" ?: ?"), re.compile(", ?"), re.compile("\r?\n([ \t]*)")


@frozen
class JsonLayout:
    """The white space of a JSON text that is written by one rule."""

    before: str
    """White space before the value, and ``after`` that behind it."""
    after: str
    line_end: str
    """Empty if the value stands on one line."""
    indent: str
    """One step of indentation."""
    colon: str
    """A colon with its blanks, and ``comma`` a comma with those on the same line."""
    comma: str
    inside: str
    """The blank in an empty object or list."""


@frozen
class LineRecord:
    """What was removed from lines, and where."""

    codes: Sequence[tuple[int, str]]
    """Escape codes, each with its place in the text without them."""
    blanks: Sequence[tuple[int, str]]
    """Blanks at the end of lines, by the number of the line."""
    runs: Sequence[tuple[int, int]]
    """How many equal lines a line stands for, by its number in the result."""


@frozen
class Squeezed:
    """A text without what carries nothing, and what restores it."""

    text: str
    record: JsonLayout | LineRecord


def squeezed(text: str) -> Squeezed | None:
    """Return the lossless form of a text; None if there is none that is shorter by ``LEAST_GAIN``."""
    if len(text) < LEAST_CHARS:
        return None
    form = _json_form(text) if text.lstrip(_SPACE)[:1] in ("{", "[") else None
    form = form or _line_form(text)
    if form is None or not form.text.strip() or len(text) - len(form.text) < LEAST_GAIN * len(text):
        return None  # a result without a word may be refused
    return form if restored(form) == text else None


def restored(form: Squeezed) -> str:
    """Return the text that was squeezed."""
    if isinstance(form.record, JsonLayout):
        return _with_layout(form.text, form.record)
    return _with_removed(form.text, form.record)


def _json_form(text: str) -> Squeezed | None:
    """Return a JSON text without the white space outside of its strings; None if it has no regular layout."""
    body = text.strip(_SPACE)
    structure, strings = _apart(body)
    bare = structure.translate(_NO_SPACE)
    is_json = structure.count("\0") == len(strings) and _STRUCTURE.fullmatch(bare)
    if not is_json:
        return None
    start = text.index(body)
    first_line = _INDENT.search(structure)
    colon, comma = _COLON.search(structure), _COMMA.search(structure)
    layout = JsonLayout(
        before=text[:start],
        after=text[start + len(body) :],
        line_end="" if first_line is None else "\r\n" if "\r\n" in structure else "\n",
        indent="" if first_line is None else first_line[1],
        colon=colon[0] if colon else ":",
        comma=comma[0] if comma else ",",
        inside=" " if "{ }" in structure or "[ ]" in structure else "",
    )
    return Squeezed(_together(bare, strings), layout)


def _with_layout(text: str, layout: JsonLayout) -> str:
    structure, strings = _apart(text)
    structure = structure.replace(":", layout.colon)
    structure = _indented(structure, layout) if layout.line_end else structure.replace(",", layout.comma)
    if layout.inside:
        structure = structure.replace("{}", f"{{{layout.inside}}}").replace("[]", f"[{layout.inside}]")
    return layout.before + _together(structure, strings) + layout.after


def _indented(structure: str, layout: JsonLayout) -> str:
    """Return a structure with a line for each member and element; itself if it is too deep."""
    for mark in "{[":
        structure = structure.replace(mark, mark + _IN)
    for mark in "}]":
        structure = structure.replace(mark, _OUT + mark)
    structure = structure.replace(f"{{{_IN}{_OUT}}}", "{}").replace(f"[{_IN}{_OUT}]", "[]").replace(",", ",\n")
    depths = list(accumulate(map(_STEPS.__getitem__, structure.translate(_NO_TOKENS))))
    if not depths or min(depths) < 0 or max(depths) > MOST_DEPTH:
        return structure
    breaks = [layout.line_end + layout.indent * depth for depth in range(MOST_DEPTH + 1)]
    parts = structure.translate(_AS_LINES).split("\n")
    parts[1:] = map(add, map(breaks.__getitem__, depths), parts[1:])
    return "".join(parts)


def _apart(text: str) -> tuple[str, list[str]]:
    """Return a JSON text with a NUL in place of each string, and the strings without their quotes.

    Two control characters stand for an escaped backslash and an escaped quote; JSON has neither.
    """
    parts = text.replace("\\\\", "\1").replace('\\"', "\2").split('"')
    return "\0".join(parts[::2]), parts[1::2]


def _together(structure: str, strings: Sequence[str]) -> str:
    """Return the JSON text of what ``_apart`` returned."""
    pieces = structure.split("\0")
    parts = [""] * (len(pieces) + len(strings))
    parts[::2], parts[1::2] = pieces, strings
    return '"'.join(parts).replace("\2", '\\"').replace("\1", "\\\\")


def _line_form(text: str) -> Squeezed | None:
    """Return a text without escape codes, blanks at line ends and repeated lines."""
    if _OWN_MARK in text or _LINK in text:
        return None
    codes: list[tuple[int, str]] = []
    if "\x1b" in text:
        text, codes = _without_codes(text)
    blanks: list[tuple[int, str]] = []
    lines = text.split("\n")
    if " \n" in text or "\t\n" in text or text[-1:] in (" ", "\t"):
        for number, line in enumerate(lines):
            bare = line.rstrip(" \t")
            if len(bare) < len(line):
                blanks.append((number, line[len(bare) :]))
                lines[number] = bare
    lines, runs = _without_repeats(lines)
    return Squeezed("\n".join(lines), LineRecord(codes, blanks, runs))


def _without_codes(text: str) -> tuple[str, list[tuple[int, str]]]:
    """Return a text without escape codes, and these with their places."""
    parts = _CODE.split(text)
    places = accumulate(map(len, parts[::2]))
    return "".join(parts[::2]), list(zip(places, parts[1::2], strict=False))


def _without_repeats(lines: list[str]) -> tuple[list[str], list[tuple[int, int]]]:
    """Return lines with one line and a count for each run, and the runs."""
    if not any(map(eq, lines, lines[1:])):
        return lines, []
    fewer: list[str] = []
    runs: list[tuple[int, int]] = []
    for line, group in groupby(lines):
        count = len(list(group))
        mark = MARK.format(count=count - 1) if count >= LEAST_RUN else ""
        if mark and (count - 1) * (len(line) + 1) > len(mark) + 1:
            runs.append((len(fewer), count))
            fewer += (line, mark)
        else:
            fewer += [line] * count
    return fewer, runs


def _with_removed(text: str, record: LineRecord) -> str:
    fewer, lines = text.split("\n"), []
    done = 0
    for number, count in record.runs:
        lines += fewer[done:number] + [fewer[number]] * count
        done = number + 2  # behind the count
    lines += fewer[done:]
    for number, blanks in record.blanks:
        lines[number] += blanks
    text = "\n".join(lines)
    pieces: list[str] = []
    done = 0
    for place, code in record.codes:
        pieces += (text[done:place], code)
        done = place
    return "".join([*pieces, text[done:]])
