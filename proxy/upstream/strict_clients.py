"""Makes litellm's HTTP clients keep no cookies and follow no redirects, as the wire lane does neither.

``litellm.py`` applies it once, when litellm is imported. litellm shares a client between callers. httpx would send one
caller's cookies with the requests of all others. After a redirect it would send prompts, and keys of other headers than
``Authorization``, to an address that nobody configured.
"""

from __future__ import annotations

from functools import wraps
from http.cookiejar import DefaultCookiePolicy
from typing import Any

NO_COOKIES = DefaultCookiePolicy(allowed_domains=())


def make_strict(owner: type, factory: str) -> None:
    """Change a method of litellm that makes an asynchronous client of httpx.

    :raises KeyError: this version of litellm has no such method
    """
    defined = owner.__dict__[factory]  # fails at once where a newer litellm has renamed it
    make = getattr(owner, factory)

    @wraps(make)
    def make_client(*positional: Any, **named: Any) -> Any:
        client = make(*positional, **named)
        if client is not None:
            client.cookies.jar.set_policy(NO_COOKIES)
            client.follow_redirects = False
        return client

    setattr(owner, factory, staticmethod(make_client) if isinstance(defined, staticmethod) else make_client)
