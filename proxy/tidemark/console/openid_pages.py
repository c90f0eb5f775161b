"""``/console/login/openid`` and ``/console/login/callback``: the way to the provider of OpenID, and back.

The session's cookie is not sent with a request that another site began, so the answer of the callback is a page of ours
that leads on, not a redirection.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Awaitable, Callable

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route

from tidemark.console.openid import NOT_VALID, OpenIdProvider, SignInAttempt
from tidemark.console.pages import SIGN_IN, ConsolePages, console_target, is_encrypted
from tidemark.console.rendering import render
from tidemark.console.sessions import Sessions
from tidemark.core.errors import Forbidden, NotAuthenticated, TidemarkError
from tidemark.core.frozen import frozen
from tidemark.server.guarding import Visitor

BEGIN, CALLBACK = f"{SIGN_IN}/openid", f"{SIGN_IN}/callback"
ATTEMPT_COOKIE = "tidemark_openid"
ATTEMPT_SECONDS = 600
"""The longest that a person may take at the provider."""
NO_ROLE = "You have signed in at your organization, but it gives you no role here. Ask whoever runs this server."
_ID_BYTES = 16


@frozen
class OpenIdPages:
    """Serves the sign-in by OpenID; it has no state of its own."""

    provider: OpenIdProvider | None
    """None if none is configured; then both addresses refuse everybody."""
    pages: ConsolePages

    @property
    def _sessions(self) -> Sessions:
        return self.pages.sessions

    def routes(self) -> list[BaseRoute]:
        return [
            Route(BEGIN, self._ended(self._begin), methods=["GET"]),
            Route(CALLBACK, self._ended(self._end), methods=["GET"]),
        ]

    def _ended(self, handle: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Return a handler whose errors are shown on the sign-in, which has the token's field too."""

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except TidemarkError as error:
                return self.pages.sign_in_error(error)

        return self.pages.secured(answer)

    async def _begin(self, request: Request) -> Response:
        """Lead to the provider; a cookie remembers which attempt this is, and which page was asked for."""
        identifier, begun_at = os.urandom(_ID_BYTES).hex(), int(self._sessions.clock())
        attempt = self._attempt(identifier, request)
        response = RedirectResponse(await self._configured().address(attempt), 303)
        plain = json.dumps([identifier, begun_at, request.query_params.get("next", "")[:1000]]).encode()
        response.set_cookie(
            ATTEMPT_COOKIE,
            self._sessions.sealed("openid", plain),
            max_age=ATTEMPT_SECONDS,
            path=SIGN_IN,
            secure=is_encrypted(request),
            httponly=True,
            samesite="lax",  # the provider leads back, from another site
        )
        return response

    async def _end(self, request: Request) -> Response:
        """Begin a session for whom the provider names.

        The attempt's cookie ends with the answer, so an address of the callback works once, and in one browser.
        """
        response = await self._signed_in(request)
        response.delete_cookie(ATTEMPT_COOKIE, path=SIGN_IN, httponly=True, samesite="lax")
        return response

    async def _signed_in(self, request: Request) -> Response:
        try:
            visitor, target = await self._visitor(request)
        except (NotAuthenticated, Forbidden):
            self.pages.guard.note_refusal("sign-in.refused", Visitor("tenant"), request)
            raise
        page = Response(render("signed_in.html", path=SIGN_IN, target=console_target(target)), media_type="text/html")
        return await self.pages.signed_in(request, visitor, page)

    async def _visitor(self, request: Request) -> tuple[Visitor, str]:
        """Return whom the provider names, and the page that was asked for.

        :raises NotAuthenticated: the request does not end an attempt of this browser
        :raises Forbidden: the person has no role
        """
        plain = self._sessions.unsealed("openid", request.cookies.get(ATTEMPT_COOKIE, ""))
        identifier, begun_at, target = ("", 0, "") if plain is None else json.loads(plain)
        attempt = self._attempt(identifier, request)
        is_fresh = 0 <= self._sessions.clock() - begun_at + 1 <= ATTEMPT_SECONDS
        codes, states = request.query_params.getlist("code"), request.query_params.getlist("state")
        if plain is None or not is_fresh or states != [attempt.state] or len(codes) != 1:
            raise NotAuthenticated(NOT_VALID)
        visitor = await self._configured().visitor(attempt, codes[0])
        if visitor is None:
            raise Forbidden(NO_ROLE)
        return visitor, target

    def _configured(self) -> OpenIdProvider:
        if self.provider is None:
            raise Forbidden("This server has no provider of OpenID: set openid.issuer. Sign in with the token.")
        return self.provider

    def _attempt(self, identifier: str, request: Request) -> SignInAttempt:
        """Return what belongs to an attempt; only this server can compute it."""

        def derived(purpose: str) -> str:
            digest = self._sessions.digest(f"openid-{purpose}", identifier.encode())
            return base64.urlsafe_b64encode(digest).decode().rstrip("=")

        scheme = "https" if is_encrypted(request) else "http"
        redirect_uri = f"{scheme}://{request.headers.get('host', '')}{CALLBACK}"
        return SignInAttempt(derived("state"), derived("nonce"), derived("verifier"), redirect_uri)
