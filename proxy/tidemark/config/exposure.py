"""Warns of credentials that other machines could use, before ``serve`` opens a port to them."""

from __future__ import annotations

from tidemark.config.settings import Settings
from tidemark.core.hosts import is_loopback

CREDENTIAL_ENDS = ("key", "token", "secret", "password", "credential", "credentials")
"""Endings of names in ``litellm_params`` that hold a credential: ``api_key``, ``aws_secret_access_key`` and others."""


def exposure_warnings(settings: Settings) -> tuple[str, ...]:
    """Return the warnings about a configured credential that other machines can use."""
    host = settings.server.host
    names = [
        entry.name
        for entry in settings.model_list
        if any(value and name.endswith(CREDENTIAL_ENDS) for name, value in entry.litellm_params.items())
    ]
    is_closed = settings.auth.mode == "keys" or settings.secrets.admin_token is not None
    if is_loopback(host) or not names or is_closed:
        return ()
    warning = (
        f"every client that reaches {host} can use {names[0]} at your expense, and read messages of callers without "
        "a key: the configuration has its credential, and Tidemark asks for none. Listen on 127.0.0.1, or put a "
        "gateway in front that authenticates clients, and set TIDEMARK_ADMIN_TOKEN"
    )
    return (warning,)
