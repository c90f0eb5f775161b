"""Recognizes the names and addresses of this machine."""

from __future__ import annotations

from ipaddress import ip_address


def is_loopback(host: str) -> bool:
    """Return whether a host or address is this machine's own; of names those below ``localhost`` (RFC 6761).

    :param host: without a port, an IPv6 address without brackets
    """
    name = host.lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def is_container_host(name: str) -> bool:
    """Return whether containers call their host by a name; nobody can lead it elsewhere.

    Docker and Podman give out names below ``internal``, which is reserved for private use (ICANN, 2024).

    :param name: without a port
    """
    return name.lower().endswith((".docker.internal", ".containers.internal"))


def is_address(host: str) -> bool:
    """Return whether a host is an IP address, which nobody can lead elsewhere, and no name.

    :param host: without a port, an IPv6 address without brackets
    """
    try:
        ip_address(host)
    except ValueError:
        return False
    return True
