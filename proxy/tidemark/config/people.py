"""Defines the sections of people: the audit log, and who signs in to the console by OpenID Connect.

``sections.py`` lists them with all others.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from tidemark.config.addresses import url
from tidemark.config.kinds import Text, whole
from tidemark.config.masking import Address


class AuditSettings(Struct, frozen=True, kw_only=True):
    """The audit log of what people read, change and delete."""

    keep_days: Annotated[int, whole("days", least=1)] | None = None
    """The days until entries are deleted; null: never. Null, because the log is what shows a misuse years later."""


class OpenIdSettings(Struct, frozen=True, kw_only=True):
    """Who signs in to the console by OpenID Connect."""

    issuer: Annotated[Address, url("http", "https")] | None = None
    """The provider, as its metadata names itself. Null: none."""
    client_id: Text | None = None
    """What the provider calls this server."""
    role_claim: Text = "groups"
    """The claim of the ID token that gives roles; ``groups`` is what most providers call it."""
    operators: tuple[Text, ...] = ()
    """Values of the claim that make a person an operator."""
    auditors: tuple[Text, ...] = ()
    """Values of the claim that make a person an auditor."""
