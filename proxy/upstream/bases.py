"""Base URLs: how one is written, and where its endpoints are. Beside resolving and the lanes; pure.

A gateway's base may end with a query that every request needs (``https://host/v1?sig=...``): it stays behind the path.
"""

from __future__ import annotations


def trimmed(base_url: str) -> str:
    """Return a base without the slashes that end its path, and without a fragment, which is never sent."""
    place, mark, query = base_url.partition("#")[0].partition("?")
    return place.rstrip("/") + mark + query


def endpoint(base_url: str, path: str, *, beside: str = "") -> str:
    """Return the URL of an endpoint: the base's path, this one, then the base's query.

    :param path: begins with a slash
    :param beside: the end of the base's path that does not stand before it, such as ``/v1``
    """
    place, mark, query = trimmed(base_url).partition("?")
    return place.removesuffix(beside) + path + mark + query
