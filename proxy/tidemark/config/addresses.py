"""Defines the types of settings that name a place on the network: URLs, origins of web pages, headers of requests.

``sections.py`` gives them to its fields, as it does with those of ``kinds.py``.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

from msgspec import Meta

from tidemark.config.kinds import Unfit, made_by
from tidemark.config.masking import Address
from tidemark.core.http_headers import NOT_SENT

USUAL_PORTS = {"http": 80, "https": 443}
"""Default ports, which a browser omits from an origin."""
_HEADER_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
"""A token (RFC 9110, section 5.6.2), in lower case."""
_HOST_NAME = re.compile(r"[a-z0-9_-]+(\.[a-z0-9_-]+)*")
"""A host's name or IPv4 address, in lower case."""
_SCHEME = "[A-Za-z][A-Za-z0-9+.-]*"
_HOST = r"(\[[^\]/?#@]+\]|[^/?#@:\[\]\s]+)"
"""A URL's host, as a pattern of JSON Schema."""
_USABLE_PORT = "(:(?!0+([/?#]|$))[0-9]*)?"


def _any_case(word: str) -> str:
    """Return a pattern for a word in any case, because JSON Schema's patterns have no such flag."""
    return "".join(f"[{char}{char.upper()}]" if char.isalpha() else char.replace("+", r"\+") for char in word)


def _origin(text: str) -> str:
    """Return a web page's origin as browsers write it (RFC 6454): in lower case, without a default port."""
    value = text.strip().lower().rstrip("/")
    try:
        parts = urlsplit(value)
        port = parts.port
    except ValueError:
        raise Unfit from None
    if not parts.scheme or not parts.hostname or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        raise Unfit
    if "*" in value:
        raise Unfit("there are no wildcards: name each origin")
    usual = USUAL_PORTS.get(parts.scheme)
    return value.rpartition(":")[0] if port is not None and port == usual else value


def _host_name(text: str) -> str:
    """Return a host's name in lower case."""
    value = text.strip().lower()
    if "*" in value:
        raise Unfit("there are no wildcards: name each host")
    if _HOST_NAME.fullmatch(value) is None:
        raise Unfit
    return value


def _ip(text: str) -> str:
    try:
        return str(ip_address(text.strip()))
    except ValueError:
        raise Unfit from None


def _header_name(text: str) -> str:
    """Return the name of a request header that goes upstream, in lower case."""
    value = text.strip().lower()
    if _HEADER_NAME.fullmatch(value) is None:
        raise Unfit
    if value.encode() in NOT_SENT or value.startswith("x-tidemark-"):
        raise Unfit("it is for one connection only, or Tidemark's own")
    return value


Origin = Annotated[
    str,
    made_by(
        _origin,
        "an origin: scheme://host, or scheme://host:port (https://chat.example.com)",
        rf"^(?!.*\*)\s*{_SCHEME}://{_HOST}(:[0-9]*)?/*\s*$",
    ),
]
HostName = Annotated[
    str,
    made_by(
        _host_name,
        "a host's name without a port (tidemark.internal)",
        rf"^\s*{_HOST_NAME.pattern.replace('a-z', 'A-Za-z')}\s*$",
    ),
]
Ip = Annotated[str, made_by(_ip, "an IP address (127.0.0.1)", r"^\s*[0-9A-Fa-f:.]+\s*$")]
_UNFIT_HEADERS = (
    rf"^\s*({'|'.join(_any_case(name.decode()) for name in sorted(NOT_SENT))})\s*$",
    rf"^\s*{_any_case('x-tidemark-')}",
)
HeaderName = Annotated[
    str,
    made_by(
        _header_name,
        "the name of a request header",
        rf"^\s*{_HEADER_NAME.pattern.replace('a-z', 'A-Za-z')}\s*$",
        **{"not": {"anyOf": [{"pattern": pattern} for pattern in _UNFIT_HEADERS]}},
    ),
]


def url(*schemes: str, words: tuple[str, ...] = (), base: bool = False, several: tuple[str, ...] = ()) -> Meta:
    """Bound a URL to some schemes, or one of ``words``.

    :param several: schemes whose URLs may name several hosts: ``redis+cluster://a:7000,b:7000``
    :param base: whether paths are appended, so that a slash at the end is removed; elsewhere it may name another
        resource
    """

    def make(text: str) -> Address:
        if text in words:
            return Address(text)
        try:
            parts = urlsplit(text)
            places = parts.netloc.rpartition("@")[2].split(",") if parts.scheme in several else [parts.netloc]
            hosts = [urlsplit(f"//{place}") for place in places]
            fits = all(host.port != 0 and (host.hostname or parts.scheme == "unix") for host in hosts)
        except ValueError:
            raise Unfit from None
        if parts.scheme not in schemes or not fits or (parts.scheme == "unix" and not parts.path):
            raise Unfit
        return Address(text.rstrip("/") if base and not parts.query else text)

    urls = " or ".join(f"{scheme}://" for scheme in schemes)
    wanted = "".join(f"{word} or " for word in words) + f"a URL that starts with {urls} and names a host"
    networked = "|".join(_any_case(scheme) for scheme in schemes if scheme != "unix" and scheme not in several)
    patterns = [rf"^\s*({networked})://([^/?#]*@)?{_HOST}{_USABLE_PORT}([/?#]|$)"]
    if several:
        place = f"{_HOST}{_USABLE_PORT}".replace("[/?#]|$", "[,/?#]|$").replace("\\s]", ",\\s]")
        patterns.append(rf"^\s*({'|'.join(map(_any_case, several))})://([^/?#]*@)?{place}(,{place})*([/?#]|$)")
    if "unix" in schemes:
        patterns.append(rf"^\s*{_any_case('unix')}:(//[^/?#]*/|/?[^/?#]|/$)")
    return made_by(make, wanted, *patterns, words=[*map(str, words)])
