"""Decides which way a request takes: in its own dialect, or over a bridge in chat completions.

``upstream.py`` asks it before it sends a request in any dialect but chat completions, which every route takes. It does
no I/O. What an upstream speaks is configured, known of its provider, or learned from its first answer (ADR 0018).
"""

from __future__ import annotations

import re
from dataclasses import replace
from http import HTTPStatus

from tidemark.core.lessons import Lessons
from tidemark.core.ports import Caller, Clock, Route
from tidemark.upstream.providers import ANTHROPIC_BASE, OPENAI_BASE, endpoint

ANTHROPIC = "anthropic"
OPENAI_DIALECTS = frozenset({"chat", "responses"})
NO_ENDPOINT = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED})
_OBJECT = re.compile(rb'model|resp_|msg_|previous_response|(?:item|conversation) with|"param": ?"', re.IGNORECASE)
"""What a 404 names that is about something in the request, and not about the endpoint."""


class SpokenDialects:
    """Knows which dialects upstreams speak. Its state is which they took and refused.

    :param clock: seconds, of any origin
    """

    def __init__(self, clock: Clock) -> None:
        self._lessons: Lessons[tuple[str, str, str]] = Lessons(clock)
        """By address, model and dialect: an address may be that of several servers."""

    def native_route(self, route: Route, dialect: str, caller: Caller) -> Route | None:
        """Return the route on which a request goes out in its own dialect; None where it needs a bridge."""
        if route.dialects and dialect not in route.dialects:
            return None
        if route.provider == ANTHROPIC:
            return _anthropic_route(route) if dialect == "messages" else None
        if route.lane != "wire":
            return None
        if not route.dialects and route.base_url == OPENAI_BASE and dialect not in OPENAI_DIALECTS:
            return None
        if route.dialects or not self._lessons.refuses(caller.fingerprint, _subject(route, dialect)):
            return route
        return None

    def may_learn(self, route: Route, status: int) -> bool:
        """Return whether an answer may say that the upstream has no such endpoint, so that its body must be read."""
        return status in NO_ENDPOINT and not route.dialects and route.provider != ANTHROPIC

    def note_taken(self, route: Route, dialect: str, caller: Caller) -> None:
        """Remember that an upstream speaks a dialect."""
        self._lessons.note_taken(caller.fingerprint, _subject(route, dialect))

    def learn(self, route: Route, dialect: str, caller: Caller, status: int, body: bytes) -> bool:
        """Remember that an upstream does not speak a dialect, and return whether the answer says so.

        A model or a response that does not exist is a 404, too; such an answer is the client's. So is every answer of
        an upstream that spoke the dialect before: a firewall refuses texts with 405.
        """
        is_page = body.lstrip().startswith(b"<")  # a web server's page, whose words mean nothing
        if status == HTTPStatus.NOT_FOUND and not is_page and _OBJECT.search(body):
            return False
        return self._lessons.note_refused(caller.fingerprint, _subject(route, dialect))


def _subject(route: Route, dialect: str) -> tuple[str, str, str]:
    return route.base_url, route.upstream_model, dialect


def _anthropic_route(route: Route) -> Route:
    """Return the route to Anthropic's own endpoints. litellm's ``api_base`` of this provider has no ``/v1``."""
    base = route.base_url or ANTHROPIC_BASE
    if not base.partition("?")[0].endswith("/v1"):
        base = endpoint(base, "/v1")
    return replace(route, lane="wire", base_url=base)
