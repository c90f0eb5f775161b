"""Decides which way a request takes: in its own dialect, or over a bridge in chat completions.

``upstream.py`` asks it before it sends a request in any dialect but chat completions, which every route takes. It does
no I/O. What an upstream speaks is configured, known of its provider, or learned from its first answer (ADR 0018).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from http import HTTPStatus

from proxy.core.bounded import BoundedCache
from proxy.core.ports import Route
from proxy.upstream.bases import endpoint
from proxy.upstream.providers import ANTHROPIC_BASE, OPENAI_BASE

ANTHROPIC = "anthropic"
OPENAI_DIALECTS = frozenset({"chat", "responses"})
REMEMBERED = 256
"""Pairs of an address and a dialect that are remembered."""
ASKED_AGAIN_SECONDS = 600.0
"""After so long an upstream is asked once more: a server may have been updated."""
NO_ENDPOINT = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED})
_OBJECT = re.compile(rb'model|resp_|msg_|previous_response|(?:item|conversation) with|"param": ?"', re.IGNORECASE)
"""What a 404 names that is about something in the request, and not about the endpoint."""


class SpokenDialects:
    """Knows which dialects upstreams speak. Its state is what they refused.

    :param clock: seconds, of any origin
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._refused: BoundedCache[tuple[str, str], float] = BoundedCache(REMEMBERED)
        """When an address refused a dialect."""

    def native_route(self, route: Route, dialect: str) -> Route | None:
        """Return the route on which a request goes out in its own dialect; None where it needs a bridge."""
        if route.dialects and dialect not in route.dialects:
            return None
        if route.provider == ANTHROPIC:
            return _anthropic_route(route) if dialect == "messages" else None
        if route.lane != "wire":
            return None
        if not route.dialects and route.base_url == OPENAI_BASE and dialect not in OPENAI_DIALECTS:
            return None
        refused_at = self._refused.get((route.base_url, dialect))
        if refused_at is None or route.dialects:
            return route
        return route if self._clock() - refused_at > ASKED_AGAIN_SECONDS else None

    def may_learn(self, route: Route, status: int) -> bool:
        """Return whether an answer may say that the upstream has no such endpoint, so that its body must be read."""
        return status in NO_ENDPOINT and not route.dialects and route.provider != ANTHROPIC

    def learn(self, route: Route, dialect: str, status: int, body: bytes) -> bool:
        """Remember that an upstream does not speak a dialect, and return whether the answer says so.

        A model or a response that does not exist is a 404, too; such an answer is the client's.
        """
        is_page = body.lstrip().startswith(b"<")  # a web server's page, whose words mean nothing
        if status == HTTPStatus.NOT_FOUND and not is_page and _OBJECT.search(body):
            return False
        self._refused.put((route.base_url, dialect), self._clock())
        return True


def _anthropic_route(route: Route) -> Route:
    """Return the route to Anthropic's own endpoints. litellm's ``api_base`` of this provider has no ``/v1``."""
    base = route.base_url or ANTHROPIC_BASE
    if not base.partition("?")[0].endswith("/v1"):
        base = endpoint(base, "/v1")
    return replace(route, lane="wire", base_url=base)
