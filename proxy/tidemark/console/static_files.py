"""Serves the files of ``static/``: styles, scripts and icons, which are all ours and need no network.

They hold nothing secret, so they need no session; a browser caches them until the program's version changes.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from starlette.responses import Response

_TYPES = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_CACHED = {"cache-control": "no-cache"}


@cache
def _contents() -> dict[str, bytes]:
    folder = files("tidemark.console") / "static"
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.name.rpartition(".")[2] in _TYPES}


def static_file(name: str) -> Response:
    """Return a file; 404 if there is none of this name."""
    content = _contents().get(name)
    if content is None:
        return Response("There is no such file.", 404)
    return Response(content, 200, dict(_CACHED), media_type=_TYPES[name.rpartition(".")[2]])
