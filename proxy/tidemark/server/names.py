"""Finds conversations by names that have a slash, which a client writes as ``%2F`` in a path.

Starlette's routes see a path after it was decoded, and would take such a name for two pieces. The dispatcher writes
another character for the slash, and a ``NamedRoute`` gives the endpoint the name as it is.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

from starlette.routing import Match, Route
from starlette.types import Scope

BEGINNING = "/tidemark/conversations/"
_SLASH = re.compile(rb"%2f", re.IGNORECASE)
_STAND_IN = "\0"
"""No name has it."""


def with_whole_names(scope: Scope) -> Scope:
    """Return a request in whose path a slash within a name ends no piece."""
    raw: bytes = scope["raw_path"]
    if not scope["path"].startswith(BEGINNING) or not _SLASH.search(raw):
        return scope
    return {**scope, "path": unquote(_SLASH.sub(b"%00", raw).decode("latin-1"))}


class NamedRoute(Route):
    """A route whose path has a name."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, child = super().matches(scope)
        if match is not Match.NONE and _STAND_IN in scope["path"]:
            child["path"] = _restored(scope["path"])
            child["path_params"] = {name: _restored(value) for name, value in child["path_params"].items()}
        return match, child


def _restored(text: str) -> str:
    return text.replace(_STAND_IN, "/")
