"""Lossless forms of texts: what goes, what comes back exactly, and what stays as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.examples import examples
from tidemark.core.conversation.lossless import (
    LEAST_CHARS,
    LEAST_GAIN,
    MARK,
    MOST_DEPTH,
    Squeezed,
    restored,
    squeezed,
)

ROW = {"id": 12345678901234567890123, "name": 'a "quoted" \\ name: {x, y}', "tags": ["a", "b"], "none": [], "n": None}
ROWS = [ROW] * 12
PAIRS: Any = {"separators": (",", " : ")}
LAYOUTS: tuple[dict[str, Any], ...] = (
    *({"indent": indent} for indent in (1, 2, 4, "\t")),
    *({"indent": indent, "ensure_ascii": False} for indent in (2, 8)),
    *({"indent": indent, "separators": (",", " : ")} for indent in (2, 4)),
    {},
    {"separators": (",", ": ")},
)
"""Ten ways in which programs write JSON."""
NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.integers(10**20, 10**60)
VALUES = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.text(max_size=30),
    lambda inner: st.lists(inner, max_size=6) | st.dictionaries(st.text(max_size=12), inner, max_size=6),
    max_leaves=40,
)
PIECES = st.sampled_from(
    [
        "",
        "\x1b[31m",
        "\x1b[0m",
        "\x1b[2K",
        "\x1b]0;title\x07",
        " ",
        "  ",
        "\t",
        "\n",
        "\r\n",
        "ok",
        "line",
        "\x1b",
        "é",
        "1 %",
    ]
)
JSON_EXAMPLES = 1_000 if examples(3) == 3 else 60
"""Each takes ten layouts, which is slow."""


def form_of(text: str) -> Squeezed:
    """The form of a text that has one."""
    form = squeezed(text)
    assert form is not None
    return form


def spelled(text: str) -> Any:
    """The value of a JSON text with the spelling of each number, and members in order, repeated ones too."""
    return json.loads(text, parse_int=str, parse_float=str, object_pairs_hook=lambda pairs: ("object", pairs))


@settings(max_examples=JSON_EXAMPLES, deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=4), st.sampled_from(["", "\n", "\r\n", "  "]))
def test_json_comes_back_exactly_and_means_the_same(values: list[Any], around: str) -> None:
    """In each of ten layouts: 10,000 results in all with ``make test-properties``."""
    values = values * (1 + LEAST_CHARS // len(json.dumps(values)))
    for layout in LAYOUTS:
        text = around + json.dumps({"items": values}, **layout) + around
        form = squeezed(text)
        if form is None:
            continue
        assert restored(form) == text
        assert spelled(form.text) == spelled(text)
        assert len(form.text) <= (1 - LEAST_GAIN) * len(text)
        escaped = layout.get("ensure_ascii", True)
        assert form.text == json.dumps({"items": values}, ensure_ascii=escaped, separators=(",", ":"))


@settings(max_examples=examples(1_000), deadline=None)
@given(st.lists(PIECES, min_size=1, max_size=60), st.integers(1, 40))
def test_lines_come_back_exactly(pieces: list[str], times: int) -> None:
    """With codes, blanks and repeats in any mixture; no line that a reader sees is lost."""
    text = "".join(pieces) * times
    text *= 1 + LEAST_CHARS // max(len(text), 1) if text else 1
    form = squeezed(text)
    if form is not None:
        assert restored(form) == text
        assert len(form.text) <= (1 - LEAST_GAIN) * len(text)


@settings(max_examples=examples(500), deadline=None)
@given(st.text(alphabet='{}[]:,"\\ \n\t\x00\x01\x02\x03\x04e1x', min_size=1, max_size=200), st.integers(1, 50))
def test_odd_texts_come_back_exactly_or_stay(piece: str, times: int) -> None:
    """Whatever is only like JSON, and has the characters that stand for strings within the rule."""
    for text in ((piece * times).ljust(LEAST_CHARS), "{" + piece * times + " " * LEAST_CHARS + "}"):
        form = squeezed(text)
        assert form is None or restored(form) == text


@pytest.mark.parametrize(
    "text",
    [
        '{\n  "n": 1e5,\n  "n": 1E+05,\n  "big": 123456789012345678901234567890.10,\n  "s": "\\u00e9\\/ : , {"\n}',
        '{\n  "z": -0.0,\n  "a": 1.0,\n  "empty": {},\n  "list": [],\n  "deep": {\n    "x": [\n      []\n    ]\n  }\n}',
        '{\n  "path": "C:\\\\\\\\share\\\\",\n  "quote": "\\\\\\"",\n  "last": "\\\\"\n}',
    ],
    ids=["numbers", "empties", "backslashes"],
)
def test_every_token_keeps_its_spelling(text: str) -> None:
    """Repeated members, big numbers, number spelling and escapes stay byte for byte."""
    whole = '{\n  "rows": [\n' + ",\n".join(["    " + text.replace("\n", "\n    ")] * 12) + "\n  ]\n}"
    form = form_of(whole)
    assert restored(form) == whole
    assert spelled(form.text) == spelled(whole)


@pytest.mark.parametrize("style", ["jackson", "crlf", "tabs"])
def test_layouts_of_other_programs_come_back_exactly(style: str) -> None:
    """Jackson's blanks before a colon and in empty lists, line ends of Windows, tabs."""
    text = json.dumps(ROWS, indent=2, separators=(",", " : ")).replace("[]", "[ ]")
    if style == "crlf":
        text = json.dumps(ROWS, indent=2).replace("\n", "\r\n")
    elif style == "tabs":
        text = json.dumps(ROWS, indent="\t")
    assert restored(form_of(text)) == text


@pytest.mark.parametrize(
    "text",
    [
        json.dumps(ROWS, separators=(",", ":")),
        json.dumps(ROWS, indent=2).replace('"tags": [\n      "a",', '"tags": ["a",', 1),
        json.dumps(ROWS, indent=2).replace('    "n"', '     "n"', 1),
        json.dumps(ROWS, indent=2).replace('"', "'"),
        json.dumps(ROWS, indent=2).replace("null", "undefined"),
        "// rows\n" + json.dumps(ROWS, indent=2),
        json.dumps(ROWS, indent=2).replace("[", "[ // first", 1),
        "[\n" * 40_000 + "]\n" * 40_000,
        json.dumps({"id": 1}, indent=2),
    ],
    ids=["bare", "inline list", "odd indent", "quotes", "no literal", "comment", "comment inside", "too deep", "short"],
)
def test_what_is_no_regular_json_stays(text: str) -> None:
    """A small record could not restore it, or nothing would be gained."""
    assert squeezed(text) is None
    assert MOST_DEPTH < 40_000


def test_codes_blanks_and_repeats_leave_a_log() -> None:
    """What remains is what a reader reads, with a count for the lines that were equal."""
    lines = [
        "\x1b]0;build\x07\x1b[1mStart\x1b[0m",
        *["\x1b[2K\x1b[32mwaiting for the database   \x1b[0m  "] * 30,
        "done",
    ]
    form = form_of("\n".join(lines))
    assert form.text == "\n".join(["Start", "waiting for the database", MARK.format(count=29), "done"])
    assert restored(form) == "\n".join(lines)


def test_a_text_with_the_mark_of_a_count_stays() -> None:
    """A reader could not tell whose count it is."""
    lines = ["waiting for the database"] * 40
    assert squeezed("\n".join(lines)) is not None
    assert squeezed("\n".join([*lines, MARK.format(count=7)])) is None


def test_links_of_terminals_stay() -> None:
    """Their code has the address."""
    assert squeezed("\x1b]8;;https://example.com\x07here\x1b]8;;\x07\n" * 40) is None


def test_lines_that_are_equal_twice_and_short_ones_stay() -> None:
    """A count would be longer than what it stands for."""
    text = "\n".join(f"{number}\nthe same line\nthe same line\n}}\n}}\n}}" for number in range(60))
    assert squeezed(text) is None


@pytest.mark.parametrize("text", ["\x1b[2K\x1b[1G" * 200, " " * 600, "\x1b[0m \n" * 2 + " " * 600])
def test_a_text_without_a_word_stays(text: str) -> None:
    """Nothing would be left of it, and some providers refuse a result without a text."""
    assert squeezed(text) is None
