"""Reads the store's address as it stands in the configuration: ``store.url`` or ``TIDEMARK_STORE_URL``."""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from tidemark.core.frozen import frozen

_YES = frozenset({"1", "true", "yes"})
_PORT = 6379
SENTINEL_PORT = 26_379
_SENTINELS = frozenset({"redis+sentinel", "rediss+sentinel"})

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


@frozen
class SentinelAddress:
    """What an address of Sentinels says: ``redis+sentinel://me:pw@a:26379,b:26379/SERVICE/0``."""

    places: Sequence[Place]
    service: str
    """The name under which the Sentinels watch the primary."""
    primary: str
    """The URL of the primary with any host in its place: login, database and options."""
    sentinel: str
    """The same of the Sentinels; their login is ``sentinel_username`` and ``sentinel_password`` of the options."""


def names_sentinels(url: str) -> bool:
    """Whether a URL names Sentinels, by its scheme."""
    return urlsplit(url).scheme in _SENTINELS


def read_sentinels(url: str) -> SentinelAddress:
    """Return what an address of Sentinels says.

    :raises ValueError: it names no service, or a port is none
    """
    parts = urlsplit(url)
    service, _, database = parts.path.strip("/").partition("/")
    if not service or not (database or "0").isdigit():
        raise ValueError("no service, or a database that is no number")
    query = parse_qsl(parts.query, keep_blank_values=True)
    prefix = "sentinel_"
    login = {name.removeprefix(prefix): value for name, value in query if name.startswith(prefix)}
    if login.keys() - {"username", "password"}:
        raise ValueError("an option of the Sentinels that is none")
    options = urlencode([(name, value) for name, value in query if not name.startswith(prefix)])
    user, at, _ = parts.netloc.rpartition("@")
    scheme = parts.scheme.removesuffix("+sentinel")
    options = f"?{options}" if options else ""
    primary = f"{scheme}://{user}{at}localhost/{database or 0}{options}"
    name, password = (quote(login.get(part, ""), safe="") for part in ("username", "password"))
    sentinel = f"{scheme}://{f'{name}:{password}@' if login else ''}localhost{options}"
    return SentinelAddress(read_places(url, SENTINEL_PORT), unquote(service), primary, sentinel)


def read_login(url: str) -> tuple[str, str] | None:
    """Return the user and the password of a URL; None if it has neither."""
    login, _, _ = urlsplit(url).netloc.rpartition("@")
    user, _, password = login.partition(":")
    return (unquote(user) or "default", unquote(password)) if login else None
