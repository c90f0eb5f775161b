"""Joins base URLs and paths of endpoints; it does no I/O.

A gateway's base URL may end with a query that every request needs (``https://host/v1?sig=...``). The query then stays
behind the path.
"""

from __future__ import annotations


def trimmed(base_url: str) -> str:
    """Return a base URL without the slashes that end its path, and without a fragment, which is never sent."""
    path, mark, query = base_url.partition("#")[0].partition("?")
    return path.rstrip("/") + mark + query


def endpoint(base_url: str, path: str, *, without: str = "") -> str:
    """Return the URL of an endpoint: the base's path, then ``path``, then the base's query.

    :param path: begins with a slash, and may have a query of its own
    :param without: an end of the base's path, such as ``/v1``, that is removed first
    """
    base_path, mark, query = trimmed(base_url).partition("?")
    if mark and "?" in path:
        mark = "&"
    return base_path.removesuffix(without) + path + mark + query
