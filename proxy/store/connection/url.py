"""Reads the store's address as it stands in the configuration: ``store.url`` or ``TIDEMARK_STORE_URL``."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode, urlsplit

_YES = frozenset({"1", "true", "yes"})


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
