"""Decides whether a model's name that a client chose may lead to a provider.

``upstream.py`` asks it before it makes a route; it does no I/O. A client must not reach services on the server's own
machine or network by choosing a name: some of litellm's providers default to such addresses (``llamafile/x`` to
``http://127.0.0.1:8080``), and some read an address out of the name. The configuration may name all of them.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from tidemark.core.ports import Lane
from tidemark.upstream.providers import LOCAL, LOGINS

LOCAL_ENDS = (".internal", ".intranet", ".lan", ".local", ".localhost", ".home.arpa")
"""Ends of host names in private networks: RFC 6761, 6762 and 8375, ICANN's ``.internal``, and routers' names."""


def why_closed(name: str, provider: str, lane: Lane, base_url: str | None) -> str | None:
    """Return the reason why a client's name may not lead to a provider; None where it may.

    :param name: the whole name, as the client wrote it
    :param base_url: where requests would go; None where litellm chooses it
    """
    if provider in LOGINS:
        return f"{provider} logs in on the server and needs an entry in model_list"
    if is_local(base_url) if base_url else provider in LOCAL:
        return f"{provider} needs an entry in model_list: a name alone leads to no address of the server's own network"
    if lane == "translate" and "://" in name:
        return "a model's name may not hold an address"
    return None


def is_local(base_url: str) -> bool:
    """Tell whether a URL leads to this machine or a private network.

    The host is judged as it is written; no name is looked up.
    """
    try:
        host = (urlsplit(base_url).hostname or "").rstrip(".")
    except ValueError:
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        # A name without a dot belongs to the own network; a last label of digits is a short address (127.1).
        return "." not in host or host.endswith(LOCAL_ENDS) or host.rpartition(".")[2].isdigit()
    mapped = getattr(address, "ipv4_mapped", None)
    return not (mapped or address).is_global
