"""Findings: what an examination found out, and how to fix what is wrong.

Secrets are removed from them, because an upstream or a store may quote the credential that it refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Literal

from tidemark.config import Settings
from tidemark.config.credentials import CREDENTIAL_ENDS
from tidemark.core.frozen import frozen
from tidemark.store.connection.url import read_login

Status = Literal["ok", "warning", "error"]
_STARS = "***"
_LEAST_CHARACTERS = 4
"""A shorter value is no secret; taking it out would only spoil the words."""


@frozen
class Finding:
    """What one check found out. It holds no secret."""

    check: str
    """What was examined: ``store``, ``upstream gpt-4o``."""
    status: Status
    """``error``: something would not work; ``warning``: it works, and may surprise."""
    detail: str
    mend: str = ""
    """What to do about it; empty for ``ok``."""


Progress = Callable[[str], None]
"""Is told what is examined now."""


def is_usable(findings: Iterable[Finding]) -> bool:
    """Return whether everything would work."""
    return all(finding.status != "error" for finding in findings)


def secrets_of(settings: Settings, environ: Mapping[str, str]) -> list[str]:
    """Return every credential that a request, the store or the environment has, longest first."""
    values = {value for name, value in environ.items() if name.lower().endswith(CREDENTIAL_ENDS)}
    for entry in settings.model_list:
        values |= {str(value) for name, value in entry.litellm_params.items() if name.endswith(CREDENTIAL_ENDS)}
        headers = entry.litellm_params.get("extra_headers")
        values |= {str(value) for value in headers.values()} if isinstance(headers, Mapping) else set()
    login = read_login(str(settings.store.url))
    values |= {login[1]} if login else set()
    return sorted((value for value in values if len(value) >= _LEAST_CHARACTERS), key=len, reverse=True)


def without_secrets(finding: Finding, secrets: Collection[str]) -> Finding:
    """Return a finding with stars in the place of each secret."""
    detail = finding.detail
    for secret in secrets:
        detail = detail.replace(secret, _STARS)
    return replace(finding, detail=detail)
