"""Recognizes the names and addresses of this machine."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Return whether a host or address is this machine's own.

    :param host: without a port, an IPv6 address without brackets
    """
    try:
        return host.lower() == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
