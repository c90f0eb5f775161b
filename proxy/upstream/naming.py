"""Where a model's name may lead that merely a client sent: to public providers, with the client's own credential.

Within resolving, after the provider is known and before there is a route; pure. A client must not reach what listens on
the server's own machine or network by choosing a name: some of litellm's providers default to such addresses
(``llamafile/x`` to ``http://127.0.0.1:8080``), and some read an address out of the name. Whoever configures Tidemark
may name all of them.
"""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from proxy.core.ports import Lane
from proxy.upstream.providers import LOCAL, LOGINS

LOCAL_ENDS = (".internal", ".intranet", ".lan", ".local", ".localhost", ".home.arpa")
"""Names of private networks: RFC 6761, 6762 and 8375, ICANN's reserved ``.internal``, and what routers give out."""


def why_closed(name: str, provider: str, lane: Lane, base_url: str | None) -> str | None:
    """Say why a client's word alone may not lead there; None where it may.

    :param name: the whole name, as the client wrote it
    :param base_url: where requests would go; None where litellm chooses by itself
    """
    if provider in LOGINS:
        return f"{provider} logs in on the server and needs an entry in model_list"
    if is_local(base_url) if base_url else provider in LOCAL:
        return f"{provider} needs an entry in model_list: a name alone leads to no address of the server's own network"
    if lane == "translate" and "://" in name:
        return "a model's name may not hold an address"
    return None


def is_local(base_url: str) -> bool:
    """Tell whether a URL leads to this machine or a private network, by its host as written; no name is looked up."""
    try:
        host = (urlsplit(base_url).hostname or "").rstrip(".")
    except ValueError:
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        # Without a dot a name is of the own network, and a last label of digits is an address in short (127.1).
        return "." not in host or host.endswith(LOCAL_ENDS) or host.rpartition(".")[2].isdigit()
    mapped = getattr(address, "ipv4_mapped", None)
    return not (mapped or address).is_global
