"""Reads the descriptions of keys from the docstrings beneath the fields of the settings' classes.

``schema.py`` uses them, so that a key is described in one place only.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Mapping
from functools import cache

_SOURCE = re.compile(r" \((?:FR-|S\d)[^()]*\)")
"""The requirement that a sentence comes from, which says nothing to somebody who writes a configuration."""


@cache
def field_descriptions(kind: type) -> Mapping[str, str]:
    """Return the descriptions of a class's fields by their names; fields without a docstring are left out."""
    [definition] = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    if not isinstance(definition, ast.ClassDef):
        return {}
    descriptions = {}
    for statement, following in zip(definition.body, definition.body[1:], strict=False):
        match statement, following:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                descriptions[name] = cleaned(text)
    return descriptions


def class_description(kind: type) -> str:
    """Return the first statement of a class's docstring."""
    return cleaned(inspect.getdoc(kind) or "").partition(";")[0].rstrip(".") + "."


def cleaned(text: str) -> str:
    """Return a docstring as one line of Markdown without references to requirements."""
    return _SOURCE.sub("", " ".join(text.split())).replace("``", "`")
