"""Defines the kinds of values that keys accept, each with its words for messages and documentation.

``sections.py`` gives each field its kind, and ``reading.py`` reads values with it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, TypeVar, get_args

from tidemark.config.masking import quoted
from tidemark.config.templates import TemplateFile
from tidemark.config.tree import Scalar
from tidemark.core.conversation.messages import JsonValue

T = TypeVar("T")
Schema = Mapping[str, JsonValue]
"""A JSON Schema, or a part of one."""
_DRIVE = re.compile(r"[A-Za-z]:[/\x01-\x1f]")
"""A drive; in double quotes YAML makes a tab of the backslash in ``"C:\\temp"``."""
_TEXT_PATTERN = r"\S"


class Unfit(Exception):
    """The value is not of the kind; its text, if any, is more precise than the kind's own words."""


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """The values that a key accepts."""

    wanted: str
    """Completes the sentence "it takes ...", including the valid range."""
    read: Callable[[Scalar], T]
    """:raises Unfit: the value is of another kind, or out of range"""
    none: str | None = None
    """The YAML word that means None; None where the key does not accept None."""
    each: Kind[Any] | None = None
    """The kind of a list's entries; None where the key accepts no list."""
    schema: Schema = field(default_factory=dict)
    """The same as JSON Schema (2020-12), as far as that language can say it."""

    def word(self, value: object) -> str:
        """Return a value as YAML writes it."""
        if value is None:
            return self.none or "null"
        if isinstance(value, tuple):
            return f"[{', '.join(map(str, value))}]"
        if isinstance(value, bool):
            return "true" if value else "false"
        return f"{value:g}" if isinstance(value, float) else str(value)


def takes(kind: Kind[Any]) -> Mapping[str, Kind[Any]]:
    """Return the metadata of a field that a key of the file sets."""
    return {"kind": kind}


def with_reference(schema: Schema) -> JsonValue:
    """Return a schema that also accepts LiteLLM's ``os.environ/NAME`` in place of the value."""
    reference: JsonValue = {"$ref": "#/$defs/reference"}
    match schema:
        case {"anyOf": [*choices], **rest} if not rest:
            return {"anyOf": [*choices, reference]}
    return {"anyOf": [dict(schema), reference]}


def flag() -> Kind[bool]:
    """Accept ``true`` or ``false``."""

    def read(scalar: Scalar) -> bool:
        if not isinstance(scalar.value, bool):
            raise Unfit
        return scalar.value

    return Kind("true or false", read, schema={"type": "boolean"})


def text() -> Kind[str]:
    """Accept a text that is not empty."""

    def read(scalar: Scalar) -> str:
        if not scalar.variable and isinstance(scalar.value, bool | int | float):  # "off" is a boolean to YAML 1.1
            raise Unfit(f"put it in quotes if it is a text: {quoted(scalar.text)}")
        return read_text(scalar)

    return Kind("a text", read, schema={"type": "string", "pattern": _TEXT_PATTERN})


def choice(words: Any, refusals: Mapping[str, str] = MappingProxyType({})) -> Kind[Any]:
    """Accept one of a few words, which come from a ``Literal`` type, so that type and words cannot differ.

    :param refusals: words of earlier versions, each with what to write now
    """
    allowed = get_args(words)

    def read(scalar: Scalar) -> str:
        value = read_text(scalar)
        if value in refusals:
            raise Unfit(refusals[value])
        if value not in allowed:
            raise Unfit
        return value

    return Kind("one of " + ", ".join(allowed), read, schema={"enum": list(allowed)})


def whole(unit: str, *, least: int, most: int | None = None) -> Kind[int]:
    """Accept a whole number of ``unit``."""
    wanted = f"a whole number of {unit}" if unit else "a whole number"
    wanted += f", {least} or more" if most is None else f" from {least} to {most}"

    def read(scalar: Scalar) -> int:
        value: object = scalar.value  # bool is an int in Python, but not a number in a file
        if isinstance(value, bool) or not isinstance(value, int):
            raise Unfit
        if value < least or (most is not None and value > most):
            raise Unfit
        return value

    schema: Schema = {"type": "integer", "minimum": least} | ({} if most is None else {"maximum": most})
    return Kind(wanted, read, schema=schema)


def positive(unit: str) -> Kind[float]:
    """Accept a number of ``unit`` above 0."""

    def read(scalar: Scalar) -> float:
        value = _number(scalar)
        if value <= 0:
            raise Unfit
        return value

    return Kind(f"a number of {unit} above 0", read, schema={"type": "number", "exclusiveMinimum": 0})


def none_or_more(unit: str) -> Kind[float]:
    """Accept a number of ``unit``, 0 or more."""

    def read(scalar: Scalar) -> float:
        value = _number(scalar)
        if value < 0:
            raise Unfit
        return value

    return Kind(f"a number of {unit}, 0 or more", read, schema={"type": "number", "minimum": 0})


def share(of: str, *, zero_allowed: bool, one_allowed: bool) -> Kind[float]:
    """Accept a ratio between 0 and 1, with or without the ends."""
    ends = ", 0 allowed" * zero_allowed + ", 1 allowed" * one_allowed
    if not (zero_allowed or one_allowed):
        ends = ", both left out"

    def read(scalar: Scalar) -> float:
        value = _number(scalar)
        if value < 0 or value > 1 or (value == 0 and not zero_allowed) or (value == 1 and not one_allowed):
            raise Unfit
        return value

    schema: Schema = {
        "type": "number",
        "minimum" if zero_allowed else "exclusiveMinimum": 0,
        "maximum" if one_allowed else "exclusiveMaximum": 1,
    }
    return Kind(f"a share of {of} between 0 and 1{ends}", read, schema=schema)


SMALLEST_MARK_TOKENS = 100
"""A threshold above 1 counts tokens. A smaller one is refused, because "95" usually means 95 %."""


def share_or_tokens(of: str) -> Kind[float]:
    """Accept a ratio up to 1, or a number of tokens."""

    def read(scalar: Scalar) -> float:
        value = _number(scalar)
        if 1 < value <= SMALLEST_MARK_TOKENS:
            raise Unfit(f"above 1 it counts tokens; write {value / 100:g} for {value:g} %")
        if value <= 0:
            raise Unfit
        return value

    wanted = f"a share of {of} above 0 up to 1, or a number of tokens above {SMALLEST_MARK_TOKENS}"
    ratio: JsonValue = {"type": "number", "exclusiveMinimum": 0, "maximum": 1}
    tokens: JsonValue = {"type": "number", "exclusiveMinimum": SMALLEST_MARK_TOKENS}
    return Kind(wanted, read, schema={"anyOf": [ratio, tokens]})


def or_word(word: str, kind: Kind[T]) -> Kind[T | None]:
    """Accept ``word``, which means None, or else a value of ``kind``."""

    def read(scalar: Scalar) -> T | None:
        is_none = scalar.value is None if word == "null" else scalar.value == word
        return None if is_none else kind.read(scalar)

    none: JsonValue = {"const": None if word == "null" else word}
    choices: Any = kind.schema.get("anyOf", [dict(kind.schema)])
    return Kind(f"{word} or {kind.wanted}", read, none=word, schema={"anyOf": [none, *choices]})


def several(kind: Kind[T]) -> Kind[tuple[T, ...]]:
    """Accept a list of ``kind``; a key without a value is an empty list."""

    def read(scalar: Scalar) -> tuple[T, ...]:
        if scalar.value is None:
            return ()
        raise Unfit("write it as a list: [...]")

    schema: Schema = {"type": ["array", "null"], "items": with_reference(kind.schema)}
    return Kind(f"a list, each entry {kind.wanted}", read, each=kind, schema=schema)


def template(words: Any) -> Kind[str | TemplateFile]:
    """Accept one of a few names, or the path of a file, recognised by its slash or its ending."""
    allowed = get_args(words)

    def read(scalar: Scalar) -> str | TemplateFile:
        value = read_text(scalar)
        if value in allowed:
            return value
        if "/" not in value and not value.endswith((".md", ".txt")):
            raise Unfit
        return TemplateFile(Path(value))

    schema: Schema = {"anyOf": [{"enum": list(allowed)}, {"type": "string", "pattern": r"/|\.(md|txt)$"}]}
    wanted = "one of " + ", ".join(allowed) + ", or the path of a file of yours (./my-template.md)"
    return Kind(wanted, read, schema=schema)


def folder() -> Kind[Path]:
    """Accept a folder's path."""

    def read(scalar: Scalar) -> Path:
        value = read_text(scalar)
        if "\0" in value:
            raise Unfit
        if is_windows_path(value):
            raise Unfit("this is a path of Windows; write one of this machine, such as /home/me/tidemark")
        return Path(value)

    pattern = r"^(?![A-Za-z]:[/\u0001-\u001f])[^\u0000\\]*[^\s\u0000\\][^\u0000\\]*$"
    schema: Schema = {"type": "string", "pattern": pattern}
    return Kind("a folder's path", read, schema=schema)


def is_windows_path(text: str) -> bool:
    """Tell whether a path has a drive or backslashes, which would make a folder of that name here."""
    return "\\" in text or _DRIVE.match(text) is not None


def read_text(scalar: Scalar) -> str:
    """Return a text that is not empty.

    :raises Unfit: it is another value
    """
    # a variable's value is text, whatever it looks like
    value = scalar.text if scalar.variable else scalar.value
    if not isinstance(value, str) or not value.strip():
        raise Unfit
    return value


def _number(scalar: Scalar) -> float:
    value = scalar.value
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Unfit
    try:
        number = float(value)
    except OverflowError:
        raise Unfit from None
    if not math.isfinite(number):
        raise Unfit
    return number
