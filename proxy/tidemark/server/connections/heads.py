"""Checks the head of a request before anything is done with it (RFC 9112). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import urlsplit

from tidemark.core.errors import CodingUnknown, InvalidHttp, VersionUnknown

Lines = list[tuple[bytes, bytes]]
OFFERS = (b"upgrade", b"http2-settings")
VERSIONS = ("1.1", "1.0")
DEFAULT_PORTS = {"http": 80, "https": 443}
HOST = re.compile(rb"(?:\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._~!$&'()*+,;=%-]*)(?::[0-9]*)?")
"""``uri-host [":" port]`` of RFC 9110, section 7.2; empty for a target without an authority."""


def check_head(version: str, url: bytes, lines: Lines) -> None:
    """Refuse a head that other servers may read in another way.

    :param lines: names in lower case; a Host line is added if only the URL names the host
    :raises VersionUnknown: neither HTTP/1.1 nor HTTP/1.0
    :raises InvalidHttp: RFC 9112, sections 3.2 and 6.1, want status 400
    :raises CodingUnknown: the body has another coding than chunks (section 6.1)
    """
    if version not in VERSIONS:
        raise VersionUnknown
    _check_coding(version, [value for name, value in lines if name == b"transfer-encoding"])
    hosts = [value for name, value in lines if name == b"host"]
    if len(hosts) > 1:
        message = "A request may have one Host header line only."
        raise InvalidHttp(message)
    if not hosts and version != "1.0":
        message = "A request of HTTP/1.1 needs a Host header line."
        raise InvalidHttp(message)
    if hosts and not HOST.fullmatch(hosts[0]):
        message = "The Host header line names no host."
        raise InvalidHttp(message)
    if not url.startswith((b"/", b"*")):
        _check_authority(url, hosts, lines)


def without_offers(lines: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the lines without those that offer another protocol.

    An offer of WebSocket stays without its option in ``Connection``, so that the parser goes on and the application
    sees it: that client cannot go on as if it had not offered anything.
    """
    for name, value in lines:
        if name == b"connection":
            yield name, b",".join(option for option in value.split(b",") if option.strip().lower() not in OFFERS)
        elif name not in OFFERS or (name == b"upgrade" and b"websocket" in value.lower()):
            yield name, value


def _check_coding(version: str, codings: Sequence[bytes]) -> None:
    if not codings:
        return
    if version == "1.0":
        message = "HTTP/1.0 has no Transfer-Encoding."
        raise InvalidHttp(message)
    if [coding.strip().lower() for coding in codings] != [b"chunked"]:
        raise CodingUnknown


def _check_authority(url: bytes, hosts: Sequence[bytes], lines: Lines) -> None:
    """Compare an absolute URL with the Host line (RFC 9112, section 3.2.2)."""
    try:
        target = urlsplit(url.decode("ascii"))
        server = target.hostname, target.port or DEFAULT_PORTS[target.scheme]
        is_plain = "@" not in target.netloc and bool(target.netloc)
        host = urlsplit("//" + hosts[0].decode("ascii")) if hosts else None
        host_server = server if host is None else (host.hostname, host.port or DEFAULT_PORTS[target.scheme])
    except (ValueError, KeyError):
        message = "The request's URL is neither a path nor an http:// or https:// address."
        raise InvalidHttp(message) from None
    if not is_plain or host_server != server:
        message = "The Host header line names another host than the request's URL."
        raise InvalidHttp(message)
    if host is None:
        lines.append((b"host", target.netloc.encode("ascii")))
