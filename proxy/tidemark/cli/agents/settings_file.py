"""Adds settings to the text of a user's file, and takes them out again; it reads no file.

If the user has not changed a file since, its copy restores it. Otherwise only the added settings that still stand are
taken out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tidemark.core.errors import TidemarkError
from tidemark.core.frozen import frozen

Environ = Mapping[str, str]


class SettingsRefusal(TidemarkError):
    """The file is not as it must be for a change."""


def below(variable: str, default: str, *parts: str) -> Callable[[Environ], Path]:
    """Return what finds a file in the folder that a variable names, or in ``default`` below the user's home.

    :param variable: may be empty: the folder is always the default one
    """

    def path(environ: Environ) -> Path:
        folder = environ.get(variable)
        home = Path(environ.get("HOME", "~")).expanduser()
        return (Path(folder) if folder else home / default).joinpath(*parts)

    return path


@frozen
class JsonFile:
    """Settings in JSON. A key names its place with dots: ``env.ANTHROPIC_BASE_URL``."""

    path: Callable[[Environ], Path]

    def with_values(self, text: str, values: Mapping[str, str]) -> str:
        """Return the text with values set.

        :raises SettingsRefusal: the text is no JSON object, or a value's place is taken by something else
        """
        root = _read(text)
        for key, value in values.items():
            *folders, last = key.split(".")
            place = root
            for name in folders:
                place = place.setdefault(name, {})
                if not isinstance(place, dict):
                    raise SettingsRefusal(f"{name} is no object; set {key} by hand.")
            place[last] = value
        return _json_text(root)

    def without_values(self, text: str, before: str, values: Mapping[str, str]) -> str:
        """Return a changed text without the values that still stand, each as it was before.

        :raises SettingsRefusal: the text is no JSON object
        """
        root, old = _read(text), _read(before)
        for key, value in values.items():
            names = key.split(".")
            if _value_at(root, names) == value:
                _put_back(root, old, names)
        return before if root == old else _json_text(root)


@frozen
class TextFile:
    """Settings that are lines of text, such as TOML or YAML.

    ``line`` makes one of a key and a value. ``is_first`` says that they stand at the file's beginning, as a key of
    TOML outside all tables must.
    """

    path: Callable[[Environ], Path]
    line: Callable[[str, str], str]
    is_first: bool

    def with_values(self, text: str, values: Mapping[str, str]) -> str:
        """Return the text with values set.

        :raises SettingsRefusal: the text has a key already
        """
        for key in values:
            if re.search(rf"^{re.escape(key)}\s*[:=]", text, re.MULTILINE):
                raise SettingsRefusal(f"it sets {key} already; take that line out first.")
        lines = self._lines(values)
        if self.is_first:
            return lines + text
        return f"{text}\n{lines}" if text and not text.endswith("\n") else text + lines

    def without_values(self, text: str, before: str, values: Mapping[str, str]) -> str:
        """Return a changed text without the lines that still stand."""
        for key, value in values.items():
            text = text.replace(self.line(key, value), "", 1)
        return before if text.rstrip("\n") == before.rstrip("\n") else text

    def _lines(self, values: Mapping[str, str]) -> str:
        return "".join(self.line(key, value) for key, value in values.items())


def _read(text: str) -> dict[str, Any]:
    try:
        root = json.loads(text or "{}")
    except ValueError as error:
        raise SettingsRefusal(f"it is not valid JSON ({error}); correct it, or remove its comments.") from None
    if not isinstance(root, dict):
        raise SettingsRefusal("it is no JSON object.")
    return root


def _json_text(root: dict[str, Any]) -> str:
    return json.dumps(root, indent=2, ensure_ascii=False) + "\n"


def _value_at(root: Any, names: list[str]) -> Any:
    for name in names:
        root = root.get(name) if isinstance(root, dict) else None
    return root


def _put_back(root: dict[str, Any], old: dict[str, Any], names: list[str]) -> None:
    """Set one place as it was, and take out the objects that are empty now and were not there before."""
    parent = _value_at(root, names[:-1])
    former = _value_at(old, names)
    if former is not None:
        parent[names[-1]] = former
        return
    del parent[names[-1]]
    for end in range(len(names) - 1, 0, -1):
        if _value_at(root, names[:end]) == {} and _value_at(old, names[:end]) is None:
            del _value_at(root, names[: end - 1])[names[end - 1]]
