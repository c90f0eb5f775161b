"""Defines the kinds of values that keys accept, each with its words for messages and documentation.

``sections.py`` gives each field its kind, and ``reading.py`` reads values with it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, get_args
from urllib.parse import urlsplit

from proxy.config.masking import Address
from proxy.config.templates import TemplateFile
from proxy.config.tree import Scalar
from proxy.core.http_headers import NOT_SENT

T = TypeVar("T")
USUAL_PORTS = {"http": 80, "https": 443}
"""Default ports, which a browser omits from an origin."""
_HEADER_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
"""A token (RFC 9110, section 5.6.2), in lower case."""


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

    def word(self, value: object) -> str:
        """Return a value as YAML writes it."""
        if value is None:
            return self.none or "null"
        if isinstance(value, tuple):
            return f"[{', '.join(map(str, value))}]"
        if isinstance(value, bool):
            return "true" if value else "false"
        return f"{value:g}" if isinstance(value, float) else str(value)


def flag() -> Kind[bool]:
    """Accept ``true`` or ``false``."""

    def read(scalar: Scalar) -> bool:
        if not isinstance(scalar.value, bool):
            raise Unfit
        return scalar.value

    return Kind("true or false", read)


def text() -> Kind[str]:
    """Accept a text that is not empty."""

    def read(scalar: Scalar) -> str:
        if not scalar.variable and isinstance(scalar.value, bool | int | float):  # "off" is a boolean to YAML 1.1
            raise Unfit(f'put it in quotes if it is a text: "{scalar.text}"')
        return _text(scalar)

    return Kind("a text", read)


def choice(words: Any) -> Kind[Any]:
    """Accept one of a few words, which come from a ``Literal`` type, so that type and words cannot differ."""
    allowed = get_args(words)

    def read(scalar: Scalar) -> str:
        value = _text(scalar)
        if value not in allowed:
            raise Unfit
        return value

    return Kind("one of " + ", ".join(allowed), read)


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

    return Kind(wanted, read)


def positive(unit: str) -> Kind[float]:
    """Accept a number of ``unit`` above 0."""

    def read(scalar: Scalar) -> float:
        value = _number(scalar)
        if value <= 0:
            raise Unfit
        return value

    return Kind(f"a number of {unit} above 0", read)


def none_or_more(unit: str) -> Kind[float]:
    """Accept a number of ``unit``, 0 or more."""

    def read(scalar: Scalar) -> float:
        value = _number(scalar)
        if value < 0:
            raise Unfit
        return value

    return Kind(f"a number of {unit}, 0 or more", read)


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

    return Kind(f"a share of {of} between 0 and 1{ends}", read)


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
    return Kind(wanted, read)


def or_word(word: str, kind: Kind[T]) -> Kind[T | None]:
    """Accept ``word``, which means None, or else a value of ``kind``."""

    def read(scalar: Scalar) -> T | None:
        is_none = scalar.value is None if word == "null" else scalar.value == word
        return None if is_none else kind.read(scalar)

    return Kind(f"{word} or {kind.wanted}", read, none=word)


def several(kind: Kind[T]) -> Kind[tuple[T, ...]]:
    """Accept a list of ``kind``; a key without a value is an empty list."""

    def read(scalar: Scalar) -> tuple[T, ...]:
        if scalar.value is None:
            return ()
        raise Unfit(f"write it as a list: [{scalar.text}]" if not scalar.variable else "write it as a list: [...]")

    return Kind(f"a list, each entry {kind.wanted}", read, each=kind)


def origin() -> Kind[str]:
    """Accept a web page's origin as browsers write it (RFC 6454): in lower case, without a default port."""

    def read(scalar: Scalar) -> str:
        value = _text(scalar).strip().lower().rstrip("/")
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError:
            raise Unfit from None
        if not parts.scheme or not parts.hostname or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
            raise Unfit
        if "*" in value:
            raise Unfit("there are no wildcards: name each origin")
        usual = USUAL_PORTS.get(parts.scheme)
        return value.rpartition(":")[0] if port is not None and port == usual else value

    return Kind("an origin: scheme://host, or scheme://host:port (https://chat.example.com)", read)


def header_name() -> Kind[str]:
    """Accept the name of a request header that goes upstream, in lower case."""

    def read(scalar: Scalar) -> str:
        value = _text(scalar).strip().lower()
        if _HEADER_NAME.fullmatch(value) is None:
            raise Unfit
        if value.encode() in NOT_SENT or value.startswith("x-tidemark-"):
            raise Unfit("it is for one connection only, or Tidemark's own")
        return value

    return Kind("the name of a request header", read)


def address(*schemes: str, words: tuple[str, ...] = (), base: bool = False) -> Kind[Address]:
    """Accept a URL of one of the schemes, or one of ``words``.

    :param base: whether paths are appended, so that a slash at the end is removed; elsewhere it may name another
        resource
    """

    def read(scalar: Scalar) -> Address:
        value = _text(scalar)
        if value in words:
            return Address(value)
        try:
            parts = urlsplit(value)
            port = parts.port
        except ValueError:
            raise Unfit from None
        if parts.scheme not in schemes or port == 0 or not (parts.path if parts.scheme == "unix" else parts.hostname):
            raise Unfit
        return Address(value.rstrip("/") if base and not parts.query else value)

    urls = " or ".join(f"{scheme}://" for scheme in schemes)
    return Kind("".join(f"{word} or " for word in words) + f"a URL that starts with {urls} and names a host", read)


def template(words: Any) -> Kind[str | TemplateFile]:
    """Accept one of a few names, or the path of a file, recognised by its slash or its ending."""
    allowed = get_args(words)

    def read(scalar: Scalar) -> str | TemplateFile:
        value = _text(scalar)
        if value in allowed:
            return value
        if "/" not in value and not value.endswith((".md", ".txt")):
            raise Unfit
        return TemplateFile(Path(value))

    return Kind("one of " + ", ".join(allowed) + ", or the path of a file of yours (./my-template.md)", read)


def folder() -> Kind[Path]:
    """Accept a folder's path."""

    def read(scalar: Scalar) -> Path:
        value = _text(scalar)
        if "\0" in value:
            raise Unfit
        return Path(value)

    return Kind("a folder's path", read)


def _text(scalar: Scalar) -> str:
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
