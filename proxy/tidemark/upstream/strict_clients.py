"""Makes litellm's HTTP clients keep no cookies, follow no redirects and send no organization but the caller's.

``litellm.py`` applies it once, when litellm is imported. litellm shares a client between callers. httpx would send one
caller's cookies with the requests of all others. After a redirect it would send prompts, and keys of other headers than
``Authorization``, to an address that nobody configured. OpenAI's SDK would send the organization of the environment
with a caller's own key.
"""

from __future__ import annotations

from functools import wraps
from http.cookiejar import DefaultCookiePolicy
from typing import Any

NO_COOKIES = DefaultCookiePolicy(allowed_domains=())


NAMED = ("openai-organization", "openai-project")


async def _without_empty(request: Any) -> None:
    """Leave out an organization and a project that ``headers.py`` has made empty."""
    for name in NAMED:
        if request.headers.get(name) == "":
            del request.headers[name]


def make_strict(owner: type, factory: str) -> None:
    """Change a method of litellm that makes an asynchronous client of httpx.

    :raises KeyError: this version of litellm has no such method
    """
    defined = owner.__dict__[factory]  # fails at once where a newer litellm has renamed it
    make = getattr(owner, factory)

    @wraps(make)
    def make_client(*places: Any, **options: Any) -> Any:
        client = make(*places, **options)
        if client is not None:
            client.cookies.jar.set_policy(NO_COOKIES)
            client.follow_redirects = False
            client.event_hooks["request"].append(_without_empty)
        return client

    setattr(owner, factory, staticmethod(make_client) if isinstance(defined, staticmethod) else make_client)
