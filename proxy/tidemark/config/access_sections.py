"""Defines how clients reach the server, how much each tenant may use, and what is noted of each request."""

from __future__ import annotations

from typing import Annotated

from msgspec import Struct

from tidemark.config.kinds import File, Megabytes, Tokens, whole


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
