"""The store's address as it stands in the configuration: ``store.url`` or ``TIDEMARK_STORE_URL``."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

_YES = frozenset({"1", "true", "yes"})


def read_address(url: str) -> tuple[str, bool]:
    """A URL as redis-py reads it, and whether it names a cluster.

    A cluster is named by the scheme (``redis+cluster://``, ``rediss+cluster://``) or by ``?cluster=true``.
    """
    parts = urlsplit(url)
    query = dict(parse_qsl(parts.query))
    asked = query.pop("cluster", "").lower() in _YES
    scheme = parts.scheme.removesuffix("+cluster")
    plain = urlunsplit(parts._replace(scheme=scheme, query=urlencode(query)))
    return plain, asked or scheme != parts.scheme
