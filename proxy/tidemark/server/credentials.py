"""Decides by its name whether a request header identifies a caller, so that its values separate tenants (promise 8).

``auth.py`` asks it for each header that goes upstream; it does no I/O. In doubt the rule makes more tenants: if it
takes a header too many, a client misses its own conversations; if it takes one too few, another client sees them.
``docs/operations.md`` states the rule.
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
"""A header holds a credential if a word of its name is one of these, or ends in one (``apikey``). ``tokens`` is not
among them: it is a number, as in ``max-tokens``."""
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
"""Headers in which gateways name the user: oauth2-proxy, Authelia, Kong, AWS' balancer, Tailscale, Open WebUI."""
GATEWAY_BEGINNINGS = (
    "cf-access-",
    "x-auth-request-",
    "x-authenticated-",
    "x-authentik-",
    "x-goog-authenticated-user-",
    "x-ms-client-principal",
)
"""Beginnings of such headers: Cloudflare Access, oauth2-proxy, Kong, authentik, Google's and Azure's gateways."""
CHANGING_NAMES = frozenset(
    {
        "session-id",
        "thread-id",
        "traceparent",
        "tracestate",
        "x-auth-request-redirect",  # the requested URL
        "x-claude-code-session-id",
        "x-client-request-id",
        "x-request-id",
    }
)
"""Headers that clients change by conversation or request. They never identify a caller, whatever their name."""
CHANGING_BEGINNINGS = ("sec-", "x-codex-", "x-stainless-")
"""Beginnings of headers in which browsers, Codex and OpenAI's SDKs describe themselves."""
CHANGING_ENDS = ("cache-key", "idempotency-key", "idempotency-token", "requestverificationtoken")
"""Ends of names of headers that belong to one cached answer, one request or one page."""
_CHANGING_PARTS = ("csrf", "xsrf")
"""Parts of names of tokens against forged forms. Each page has a new one; the cookie beside it identifies the user."""
_PRODUCTS = frozenset({"portkey"})
"""Words that end in one of ``WORDS`` by chance: Portkey's headers begin with its name, also those for traces."""
_SPLIT = re.compile("[^a-z0-9]+")
BROWSER_SCHEMES = (b"basic ", b"digest ", b"negotiate ", b"ntlm ")
"""Schemes of ``Authorization`` that a browser sends by itself, whichever page makes the request."""


def identifies_caller(name: str) -> bool:
    """Tell whether the values of a header identify callers.

    :param name: in lower case
    """
    if _is_changing(name):
        return False
    return _is_from_gateway(name) or _has_credential_word(name)


def has_own_credential(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Tell whether a request has a credential that no browser adds by itself.

    A cookie and a password that the browser stores do not count. A gateway's header with the user does not count
    either, because it stands for a cookie that the gateway read.

    :param headers: names in lower case
    """
    for raw, value in headers:
        name = raw.decode("latin-1")
        if name == "authorization":
            if value and not value.lower().startswith(BROWSER_SCHEMES):
                return True
        elif (
            value
            and _has_credential_word(name)
            and not (_is_changing(name) or _is_from_gateway(name) or name.startswith("proxy-"))
        ):
            return True
    return False


def _is_changing(name: str) -> bool:
    """Tell whether a header changes by conversation or request."""
    if name in CHANGING_NAMES or name.startswith(CHANGING_BEGINNINGS) or name.endswith(CHANGING_ENDS):
        return True
    return any(part in name for part in _CHANGING_PARTS)


def _is_from_gateway(name: str) -> bool:
    """Tell whether a gateway names the user in a header."""
    return name in GATEWAY_NAMES or name.startswith(GATEWAY_BEGINNINGS)


def _has_credential_word(name: str) -> bool:
    """Tell whether a header's name says that it holds a credential."""
    return any(part.endswith(WORDS) and part not in _PRODUCTS for part in _SPLIT.split(name))
