"""Defines the types of settings, and the values that each type accepts.

``sections.py`` gives its fields these types. msgspec reads their bounds; messages and documentation use their
words. Each stands in a ``Meta``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import fields

from tidemark.config.masking import quoted
from tidemark.config.templates import TemplateFile
from tidemark.config.tree import Scalar
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.summary import Template, TemplateName
from tidemark.core.frozen import frozen

Schema = Mapping[str, JsonValue]
"""A JSON Schema, or a part of one."""
SMALLEST_MARK_TOKENS = 100
"""A threshold above 1 counts tokens. A smaller one is refused, because "95" usually means 95 %."""
_DRIVE = re.compile(r"[A-Za-z]:[/\x01-\x1f]")
"""A drive; in double quotes YAML makes a tab of the backslash in ``"C:\\temp"``."""


class Unfit(Exception):
    """The value is not of the kind; its text, if any, is more precise than the kind's own words."""


def whole(unit: str, *, least: int, most: int | None = None) -> Meta:
    """Bound a whole number of ``unit``."""
    span = f", {least} or more" if most is None else f" from {least} to {most}"
    return Meta(description=f"a whole number of {unit}{span}", ge=least, le=most)


def share(of: str, **ends: Any) -> Meta:
    """Bound a ratio between 0 and 1; ``ge`` and ``le`` allow the ends, ``gt`` and ``lt`` do not."""
    allowed = ", 0 allowed" * ("ge" in ends) + ", 1 allowed" * ("le" in ends)
    return Meta(description=f"a share of {of} between 0 and 1{allowed or ', both left out'}", **ends)


def made_by(make: Callable[[str], Any], wanted: str, *patterns: str, words: Sequence[str] = (), **more: Any) -> Meta:
    """State what makes a setting of a text, or raises ``Unfit``; the other arguments say the same in JSON Schema."""
    choices: list[Any] = [{"type": "string", "pattern": pattern, **more} for pattern in patterns]
    if words:
        choices.insert(0, {"enum": [*words]})
    return Meta(description=wanted, extra={"make": make}, extra_json_schema={"anyOf": choices})


def _mark(value: float) -> float:
    if 1 < value <= SMALLEST_MARK_TOKENS:
        raise Unfit(f"above 1 it counts tokens; write {value / 100:g} for {value:g} %")
    return value


def _template(text: str) -> str | TemplateFile:
    if text in _TEMPLATES:
        return text
    if "/" not in text and not text.endswith((".md", ".txt")):
        raise Unfit
    return TemplateFile(Path(text))


def _folder(text: str) -> Path:
    if "\0" in text:
        raise Unfit
    if is_windows_path(text):
        raise Unfit("this is a path of Windows; write one of this machine, such as /home/me/tidemark")
    return Path(text)


def is_windows_path(text: str) -> bool:
    """Tell whether a path has a drive or backslashes, which would make a folder of that name here."""
    return "\\" in text or _DRIVE.match(text) is not None


Auto = Annotated[None, Meta(description="auto")]
"""None, if a file says ``auto`` for it; otherwise it says ``null``."""
ByPrice = Annotated[None, Meta(description="price")]
"""None, if a file says ``price`` for it."""
Text = Annotated[str, Meta(description="a text", pattern=r"\S")]
Days = Annotated[float, Meta(description="a number of days above 0", gt=0)]
Seconds = Annotated[float, Meta(description="a number of seconds above 0", gt=0)]
Megabytes = Annotated[int, whole("megabytes", least=1)]
Tokens = Annotated[int, whole("tokens", least=1)]
Amount = Annotated[float, Meta(description="a number of 0 or more, such as 1.0e-6", ge=0)]
Mark = Annotated[
    float,
    Meta(
        description=f"a share of the window above 0 up to 1, or a number of tokens above {SMALLEST_MARK_TOKENS}",
        gt=0,
        extra={"make": _mark},
        extra_json_schema={
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
                {"type": "number", "exclusiveMinimum": SMALLEST_MARK_TOKENS},
            ]
        },
    ),
]
_TEMPLATES = get_args(TemplateName)
TemplateChoice = Annotated[
    str | Template,
    made_by(
        _template,
        f"one of {', '.join(_TEMPLATES)}, or the path of a file of yours (./my-template.md)",
        r"/|\.(md|txt)$",
        words=_TEMPLATES,
    ),
]
"""A path is recognised by its slash or its ending."""
_PATH_PATTERN = r"^(?![A-Za-z]:[/\u0001-\u001f])[^\u0000\\]*[^\s\u0000\\][^\u0000\\]*$"
Folder = Annotated[
    Path,
    made_by(_folder, "a folder's path", _PATH_PATTERN),
]
File = Annotated[Path, made_by(_folder, "a file's path", _PATH_PATTERN)]


@frozen
class Kind:
    """What a key accepts."""

    type: Any
    """What msgspec converts a value to."""
    wanted: str = ""
    """Completes the sentence "it takes ...", including the valid range."""
    words: tuple[str, ...] = ()
    """The only texts that the key accepts; none if it accepts others."""
    schema: Schema | None = None
    """The same as JSON Schema, if msgspec cannot derive it from the type."""
    none: tuple[str | None, ...] = ()
    """The value that means None, which is null or ``auto``; empty if the key does not accept None."""
    each: Kind | None = None
    """The kind of a list's entries; None if the key accepts no list."""
    make: Callable[[Any], Any] | None = None
    """Makes the setting of the converted value, or raises ``Unfit``."""
    refusals: Mapping[str, str] = field(default_factory=dict)
    """Words of earlier versions, each with what to write now."""
    is_section: bool = False
    """Whether the key holds the keys of a class, its type."""

    def read(self, scalar: Scalar) -> Any:
        """Return the setting that a value means.

        :raises Unfit: the value is of another kind, or out of range
        """
        if scalar.value in self.none:
            return None
        if self.each is not None:
            if scalar.value is None:
                return ()
            raise Unfit("write it as a list: [...]")
        # a variable's value is text, whatever it looks like; a word may look like a boolean to YAML 1.1
        is_text = bool(self.words) or (scalar.variable and self.type is Text)
        value = scalar.text if is_text else scalar.value
        if value in self.refusals:
            raise Unfit(self.refusals[str(value)])
        try:
            converted = convert(value, self.type)
        except ValidationError:
            if self.type is Text and not self.make and isinstance(value, bool | int | float):
                # "off" is a boolean to YAML 1.1
                raise Unfit(f"put it in quotes if it is a text: {quoted(scalar.text)}") from None
            raise Unfit from None
        if isinstance(converted, float) and not math.isfinite(converted):
            raise Unfit
        return self.make(converted) if self.make else converted

    def stated(self, setting: Any) -> Any:
        """Return the value that a file would state for a setting."""
        return self.none[0] if setting is None and self.none else setting


@cache
def kinds_of(section: type[Struct]) -> Mapping[str, Kind]:
    """Return what each key of a section accepts."""
    return {key.name: kind_of(key.type) for key in fields(section)}


def kind_of(stated: Any) -> Kind:
    """Return what a key accepts whose setting has the stated type.

    What msgspec does not know stands in ``Meta.extra``, by the names of the fields of ``Kind``.
    """
    origin, members = get_origin(stated), get_args(stated)
    if origin in (Union, UnionType):
        [kind] = [kind_of(member) for member in members if member not in (NoneType, Auto, ByPrice)]
        none = next((word for word, meaning in (("auto", Auto), ("price", ByPrice)) if meaning in members), None)
        return replace(kind, none=(none,), wanted=f"{yaml_word(none)} or {kind.wanted}")
    if origin is tuple:
        each = kind_of(members[0])
        return Kind(stated, f"a list, each entry {each.wanted}", each=each)
    plain, meta = members if origin is Annotated else (stated, Meta())
    extra = meta.extra or {}
    if words := get_args(plain) if get_origin(plain) is Literal else ():
        return Kind(stated, f"one of {', '.join(words)}", words, **extra)
    if plain is bool:
        return Kind(stated, "true or false")
    if isinstance(plain, type) and issubclass(plain, Struct):
        return Kind(plain, is_section=True)
    # everything that is no number is made of a text
    base = stated if plain in (int, float) else Text
    return Kind(base, meta.description or "", schema=meta.extra_json_schema, **extra)


def yaml_word(value: object) -> str:
    """Return a value as YAML writes it."""
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, tuple):
        return f"[{', '.join(map(str, value))}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
