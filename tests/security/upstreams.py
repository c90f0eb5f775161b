"""An upstream that takes whatever is sent to it, for requests that a test does not choose itself."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

from tests.support.answers import Answer, Received
from tests.support.chat_answers import error
from tests.support.other_answers import echo
from tests.support.scripted import DIALECTS, Turn

NOT_KEPT = re.compile(r"/v1/(?:conversations|responses)(?:/|$)")
"""What this upstream has none of: it keeps nothing."""
SAID = "The harbour opens at seven, and the ferry to the islands leaves when the tide allows it."
"""Long enough for a summary."""
UNREAD = (AttributeError, KeyError, IndexError, TypeError, ValueError, RecursionError)
"""What reading a request of any shape may raise."""


class PatientUpstream:
    """An ASGI application that answers what it cannot read with 400, and keeps nothing.

    :param write: the text of each answer, for a request
    """

    def __init__(self, write: Callable[[Received], str] = lambda _: SAID) -> None:
        self._write = write

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            return
        body = b""
        while (event := await receive())["type"] == "http.request":
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        lines = [(name.decode(), value.decode("latin-1")) for name, value in scope["headers"]]
        query = scope["query_string"].decode("latin-1")
        received = Received(scope["path"], body, dict(lines), scope["method"], query, lines)
        try:
            answer = self._answer(received)
        except UNREAD:
            answer = error(400, "This request cannot be read.")
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        for piece in answer.pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
            await asyncio.sleep(0)
        await send({"type": "http.response.body", "body": b""})

    def _answer(self, received: Received) -> Answer:
        if received.method == "POST" and received.dialect:
            told: Answer = DIALECTS[received.dialect].tell(Turn(self._write(received)), received)
            return told
        if received.path == "/v1/models":
            return Answer([b'{"object": "list", "data": [{"id": "scripted", "object": "model"}]}'])
        if NOT_KEPT.match(received.path) or "models" in received.path:
            return error(404, "There is no such thing here.")
        return echo(received)
