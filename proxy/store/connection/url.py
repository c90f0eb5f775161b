"""Reads the store's address as it stands in the configuration: ``store.url`` or ``TIDEMARK_STORE_URL``."""

from __future__ import annotations

from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

_YES = frozenset({"1", "true", "yes"})
_PORT = 6379

Place = tuple[str, int]
"""Host and port of a server."""


def read_address(url: str) -> tuple[str, bool]:
    """Return a URL as redis-py reads it, and whether it names a cluster.

    A cluster is named by the scheme (``redis+cluster://``, ``rediss+cluster://``) or by ``?cluster=true``.
    """
    parts = urlsplit(url)
    query = parse_qsl(parts.query, keep_blank_values=True)
    has_option = any(name == "cluster" and value.lower() in _YES for name, value in query)
    scheme = parts.scheme.removesuffix("+cluster")
    options = urlencode([(name, value) for name, value in query if name != "cluster"])
    plain = f"{scheme}://{parts.netloc}{parts.path}" + (f"?{options}" if options else "")
    return plain, has_option or scheme != parts.scheme


def read_places(url: str, port: int = _PORT) -> list[Place]:
    """Return every server that a URL names: ``redis+cluster://me:pw@a:7000,b:7000,[::1]`` names three.

    :param port: of those that have none
    :raises ValueError: a port is none
    """
    _, _, places = urlsplit(url).netloc.rpartition("@")
    split = [urlsplit(f"//{place}") for place in places.split(",")]
    return [(parts.hostname or "localhost", parts.port or port) for parts in split]


def at_place(url: str, place: Place) -> str:
    """Return a URL with one server in place of those that it names; login, path and options stay."""
    parts = urlsplit(url)
    login, at, _ = parts.netloc.rpartition("@")
    host, port = place
    return parts._replace(netloc=f"{login}{at}{f'[{host}]' if ':' in host else host}:{port}").geturl()


def read_login(url: str) -> tuple[str, str] | None:
    """Return the user and the password of a URL; None where it has neither."""
    login, _, _ = urlsplit(url).netloc.rpartition("@")
    user, _, password = login.partition(":")
    return (unquote(user) or "default", unquote(password)) if login else None
