"""Defines the sections on access and trust: TLS, quotas, the logs of requests and of the audit, OpenID, keys, privacy.

``sections.py`` lists them with all others.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from tidemark.config.addresses import url
from tidemark.config.kinds import Auto, File, Megabytes, Seconds, Text, Tokens, whole
from tidemark.config.masking import Address

KeysUrl = Annotated[Address, url("redis", "rediss", "unix", words=(Address("folder"),))]


class RequestLogSettings(Struct, frozen=True, kw_only=True):
    """The log of requests that the console shows."""

    entries: Annotated[int, whole("requests", least=0)] = 10_000
    """The newest requests that are stored, 170 to 230 bytes each; 0: none."""


class QuotaSettings(Struct, frozen=True, kw_only=True):
    """What each tenant may use, counted by all workers and replicas of one store. null: no bound."""

    requests_per_minute: Annotated[int, whole("requests", least=1)] | None = None
    """Within any 60 seconds."""
    concurrent: Annotated[int, whole("requests", least=1)] | None = None
    """Requests in progress, streams among them."""
    tokens_per_day: Tokens | None = None
    """Of requests and answers, as providers count them, from midnight to midnight of UTC."""
    stored_mb: Megabytes | None = None
    """In place of ``store.max_tenant_mb``."""


class TlsSettings(Struct, frozen=True, kw_only=True):
    """The server's certificate, in files of PEM; a path is relative to the configuration's folder."""

    cert: File | None = None
    """The certificate, followed by those that lead to its authority. null: plain HTTP."""
    key: File | None = None
    """Its private key, without a passphrase."""
    client_ca: File | None = None
    """Authorities of clients' certificates. null: clients need none."""


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


class EncryptionSettings(Struct, frozen=True, kw_only=True):
    """The keys by which the store is encrypted, beside ``TIDEMARK_ENCRYPTION_KEY``."""

    key_command: tuple[Text, ...] = ()
    """A program and its arguments that print the master keys, for a vault. None: the environment has them."""
    keys_url: KeysUrl | Auto = None
    """Where the tenants' own keys are kept, apart from every backup of the store. ``auto``: in ``data_dir`` for an
    embedded store; ``folder``: there for any store; otherwise a Redis or Valkey of its own."""
    required: bool = False
    """Refuse what stands in the store unsealed. Off, because a store from before is read until it is sealed."""
    keyed_digests: bool = False
    """Key the digests of messages and names by ``TIDEMARK_SECRET``. Then no copy of the store tells whether a short
    text was said. Off, because the ids of conversations depend on it: only a new store can begin with it."""


class PrivacySettings(Struct, frozen=True, kw_only=True):
    """What changes texts before they are stored or summarized, beside the patterns of ``privacy.redact``."""

    hook: Text | None = None
    """A function from a text to a text, as ``module:function``; null: none."""
    timeout_seconds: Seconds = 5.0
    """The longest that the texts of one turn or summary may take. Patterns read some 50 MB a second."""
