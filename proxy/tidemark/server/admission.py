"""Admits model requests within the bounds of a worker, and refuses further ones with 503 before it reads their bodies.

``app/application.py`` passes every ``POST`` below ``/v1`` through it, and nothing else: no page of the operator, no
health check and no metrics. A request that is refused is not parsed, not counted and not logged by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from starlette.types import ASGIApp, Receive, Scope, Send

from tidemark.core.conversation.request import ErrorFormat
from tidemark.core.errors import ClientError, KeysUnread, Overloaded
from tidemark.core.events import Listener, RequestShed, ShedReason
from tidemark.core.ports import Authenticator, Headers
from tidemark.server.asgi import Response
from tidemark.server.permits import Permits
from tidemark.server.waiting import WaitingLine

WAIT_SECONDS = 20.0
"""The longest that a request waits for a place, as one of stored history waits for its turn."""
RETRY_SECONDS = 4
"""``Retry-After`` goes round from 1 to so many, so that refused clients do not all come back at once."""
_MESSAGES: dict[ShedReason, str] = {
    "streams": "This worker answers {streams} requests at once, as many as limits.max_streams allows.",
    "waiting": "As many requests wait as limits.max_waiting allows: {waiting}.",
    "waited": "No place became free within {seconds:g} s among the {streams} requests that limits.max_streams allows.",
}
_RETRY = " Send the request again in a moment."


class Admission:
    """Counts the model requests of one worker and bounds them. Mutable: how many are answered, and which wait.

    :param most_streams: the most requests that are answered at once; None for no bound
    :param most_waiting: the most that wait for a place, and the most that wait for a permit; None and 0: none for a
        place, and any number for a permit, which ends after milliseconds
    :param formats: gives the error format of a path
    """

    def __init__(
        self,
        most_streams: int | None,
        most_waiting: int | None,
        *,
        auth: Authenticator,
        formats: Callable[[str], ErrorFormat],
        emit: Listener,
        wait_seconds: float = WAIT_SECONDS,
    ) -> None:
        self.requests = 0
        """The requests that are being answered, as streams or whole."""
        self._most_streams: float = inf if most_streams is None else most_streams
        self._most_waiting = most_waiting or 0
        self._auth = auth
        self._formats = formats
        self._emit = emit
        self._wait_seconds = wait_seconds
        self._line = WaitingLine(self._most_waiting, self._refusal, self._leave)
        self._refusals = 0
        self.permits = Permits(most_waiting or inf, self._refusal)
        """The permits of large requests."""

    @property
    def waiting(self) -> int:
        """The requests that wait for a place or a permit."""
        return len(self._line) + self.permits.waiting

    @property
    def is_full(self) -> bool:
        """Whether a request that came now would be refused."""
        return self.requests >= self._most_streams and self._line.is_full

    async def serve(self, endpoint: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request within the bounds, or refuse it."""
        if self.requests < self._most_streams:
            self.requests += 1
        else:
            try:
                await self._wait(scope["headers"])
            except Overloaded as error:
                await Response(send, self._formats(scope["path"])).send_error(error)
                return
        try:
            await endpoint(scope, receive, send)
        finally:
            self._leave()

    def _leave(self) -> None:
        """Give the place of a request that has ended to the next one that waits."""
        if not self._line.call_next():
            self.requests -= 1

    async def _wait(self, headers: Headers) -> None:
        """Wait for a place, and take it.

        :raises Overloaded: too many wait, or none became free in time
        """
        if not self._most_waiting:
            raise self._refusal("streams")
        await self._line.wait(self._tenant(headers), seconds=self._wait_seconds)

    def _refusal(self, reason: ShedReason) -> Overloaded:
        self._emit(RequestShed(reason, self.requests, self.waiting))
        self._refusals += 1
        text = _MESSAGES[reason].format(streams=self.requests, waiting=self._most_waiting, seconds=self._wait_seconds)
        return Overloaded(text + _RETRY, retry_after=1 + self._refusals % RETRY_SECONDS)

    def _tenant(self, headers: Headers) -> bytes:
        """Return whose request it is; those with a credential that is refused later are one tenant."""
        try:
            return self._auth.caller(headers).fingerprint
        except (ClientError, KeysUnread):
            return b""
