"""Names: which request headers say who somebody is, so that their values tell tenants apart (promise 8).

Asked by ``auth.py`` for each header that goes upstream; pure. The rule errs towards more tenants: a header too many
makes a stranger of a client, one too few shows a client's conversations to another. ``docs/operations.md`` states it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

WORDS = (
    "auth",
    "authentication",
    "authorization",
    "credential",
    "credentials",
    "jwt",
    "key",
    "keys",
    "password",
    "secret",
    "signature",
    "token",
)
"""A name that holds one of these words, or ends one of its own words in it (``apikey``), holds a credential. Not
``tokens``: that is a number, as in ``max-tokens``."""
GATEWAY_NAMES = frozenset(
    {
        "remote-email",
        "remote-user",
        "tailscale-user-login",
        "x-amzn-oidc-identity",
        "x-consumer-custom-id",
        "x-consumer-id",
        "x-consumer-username",
        "x-forwarded-email",
        "x-forwarded-preferred-username",
        "x-forwarded-user",
        "x-openwebui-user-email",
        "x-openwebui-user-id",
        "x-remote-email",
        "x-remote-user",
    }
)
"""What gateways say of who is signed in: oauth2-proxy, Authelia, Kong, AWS' balancer, Tailscale, Open WebUI."""
GATEWAY_BEGINNINGS = (
    "cf-access-",
    "x-auth-request-",
    "x-authenticated-",
    "x-authentik-",
    "x-goog-authenticated-user-",
    "x-ms-client-principal",
)
"""The same of Cloudflare Access, oauth2-proxy, Kong, authentik, Google's and Azure's: families of names."""
PASSING_NAMES = frozenset(
    {
        "session-id",
        "thread-id",
        "traceparent",
        "tracestate",
        "x-auth-request-redirect",  # the URL that was asked for
        "x-claude-code-session-id",
        "x-client-request-id",
        "x-request-id",
    }
)
"""What clients change by conversation or request: never a part of the tenant, whatever words are in the name."""
PASSING_BEGINNINGS = ("sec-", "x-codex-", "x-stainless-")
"""What browsers, Codex and OpenAI's SDKs say of themselves."""
PASSING_ENDS = ("cache-key", "idempotency-key", "idempotency-token", "requestverificationtoken")
"""Of one answer in a cache, of one request, of one page."""
_PASSING_PARTS = ("csrf", "xsrf")
"""A token against forged forms is made anew for each page; the cookie beside it tells who it is."""
_PRODUCTS = frozenset({"portkey"})
"""Words that end in one of ``WORDS`` and mean none: what Portkey's headers begin with, one for a trace among them."""
_SPLIT = re.compile("[^a-z0-9]+")
BROWSERS_SCHEMES = (b"basic ", b"digest ", b"negotiate ", b"ntlm ")
"""Of ``Authorization``: a browser sends them by itself, whichever page asks."""


def tells_callers(name: str) -> bool:
    """Whether the values of a header tell callers apart.

    :param name: in lower case
    """
    if _passes(name):
        return False
    return _is_gateways(name) or _holds_word(name)


def brings_credential(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether a request holds a credential that no browser adds by itself: no cookie, no password that it remembers.

    A gateway's word on who is signed in is none either: it stands for a cookie that the gateway took.

    :param headers: names in lower case
    """
    for raw, value in headers:
        name = raw.decode("latin-1")
        if name == "authorization":
            if value and not value.lower().startswith(BROWSERS_SCHEMES):
                return True
        elif value and _holds_word(name) and not (_passes(name) or _is_gateways(name) or name.startswith("proxy-")):
            return True
    return False


def _passes(name: str) -> bool:
    """Whether a header changes by conversation or request."""
    if name in PASSING_NAMES or name.startswith(PASSING_BEGINNINGS) or name.endswith(PASSING_ENDS):
        return True
    return any(part in name for part in _PASSING_PARTS)


def _is_gateways(name: str) -> bool:
    return name in GATEWAY_NAMES or name.startswith(GATEWAY_BEGINNINGS)


def _holds_word(name: str) -> bool:
    return any(part.endswith(WORDS) and part not in _PRODUCTS for part in _SPLIT.split(name))
