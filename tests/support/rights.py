"""A user of a store with the rights that ``docs/operations.md`` names, and what such a user was refused."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

import redis

from tests.docs.pages import ROOT

USER, PASSWORD = "tidemark", "secret"
LOGIN = f"{USER}:{PASSWORD}@"
"""Stands before the host of an address."""


def documented_rights(more: Literal["", "cluster", "sentinel"] = "") -> list[str]:
    """Return the rights that the page names for one server, with what it names beside them."""
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    (rights,) = re.findall(r"^ACL SETUSER tidemark on >PASSWORD (.*)$", page, re.MULTILINE)
    cluster, sentinel = re.findall(r"^ *ACL SETUSER tidemark (\+.*)$", page, re.MULTILINE)
    return [*rights.split(), *{"": "", "cluster": cluster, "sentinel": sentinel}[more].split()]


def sentinel_rights() -> list[str]:
    """Return the rights that the page names for the user of the Sentinels."""
    page = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
    (line,) = re.findall(r"^ *ACL SETUSER tidemark on >SENTINEL-PASSWORD (.*)$", page, re.MULTILINE)
    rights: str = line
    return rights.split()


def make_user(admin: redis.Redis, rights: Sequence[str]) -> None:
    """Make the user with exactly these rights."""
    command: Any = admin.execute_command
    command("ACL", "SETUSER", USER, "reset", "on", f">{PASSWORD}", *rights)


def refusals(admin: redis.Redis) -> list[str]:
    """Return what the user was refused.

    The client names itself on each connection with CLIENT SETINFO, and goes on without. Redis has that from 7.2 on, and
    Redis 6 writes the refusal of a subcommand that it does not have into its log.
    """
    facts: Any = admin.info("server")
    expected = {"client"} if facts["redis_version"].startswith("6.") else set()
    log: Any = admin.acl_log()
    refused = [entry for entry in log if entry["username"] == USER and entry["object"] not in expected]
    return [f"{entry['object']} ({entry['reason']})" for entry in refused]
