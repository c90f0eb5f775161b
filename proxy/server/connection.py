"""The clients' connections: uvicorn's protocol over httptools, with three things done otherwise.

Around the road of a request, before its edge: the server makes one for each connection. An offer of another protocol is
passed over, an answer that is whole goes out in one write, and one timer looks how long a connection has been idle.
Whatever is not plain goes uvicorn's own way.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from functools import lru_cache
from operator import itemgetter
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HEADER_RE, STATUS_LINE, HttpToolsProtocol, RequestResponseCycle

from proxy.core.http_headers import CONTROLS

OFFERS = (b"upgrade", b"http2-settings")
JOINED_BYTES = 65_536
"""Up to here a body goes out in one write with its head; copying more costs more than a second write."""
KEPT_HEADS = 64
"""Whose names of header lines are remembered; upstreams choose some of them."""
FRAMING = frozenset({b"connection", b"transfer-encoding"})
"""What uvicorn must see: it ends the connection, or says otherwise where the body ends."""

NAME, VALUE = itemgetter(0), itemgetter(1)
"""Of a header line."""

Message = MutableMapping[str, Any]
App = Callable[[Any, Any, Callable[[Message], Awaitable[None]]], Awaitable[None]]


class Connection(HttpToolsProtocol):
    """One client's connection. Mutable beside what uvicorn keeps: what is read now, and since when nothing is asked."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._data = b""
        self._idle_since: float | None = None
        """By the loop's clock; None from a request's first byte to its answer's last, or after stray bytes."""
        self._done = self.loop.create_future()
        self._done.set_result(None)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop."""
        self._data = data
        super().data_received(data)
        self._data = b""  # as long as a body, while the connection may be idle for minutes

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by the event loop. The timer would keep the connection in memory."""
        super().connection_lost(exc)
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None

    # An offer to go on in another protocol (``Upgrade: h2c``) is passed over, as RFC 9110, section 7.8, allows. Every
    # Java HttpClient makes that offer with each request, and uvicorn then drops the body (Kludex/uvicorn#2722). So
    # the request is read once more, by a fresh parser and without the offer.

    def on_headers_complete(self) -> None:
        """Called by the parser."""
        if not self.parser.should_upgrade():
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Called by the parser."""
        if not self.parser.should_upgrade():
            super().on_message_complete()

    def _unsupported_upgrade_warning(self) -> None:
        """Called by uvicorn where the parser has stopped at the end of such a request's headers."""
        stopped = sys.exc_info()[1]
        read = stopped.args[0] if isinstance(stopped, httptools.HttpParserUpgrade) else len(self._data)
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":  # no offer: without it the parser would stop again
            self.send_400_response("This is no proxy for connections.")
            return
        lines = [b"%b: %b\r\n" % line for line in _without_offers(self.headers)]
        head = b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, b"".join(lines))
        self.parser = httptools.HttpRequestParser(self)
        self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn sets its own
        self.data_received(head + self._data[read:])

    # uvicorn sets a timer after every answer and takes it back at the next request. This one is left to run: it looks
    # when it was first set to, and is set anew if the connection has been idle for less than its time.

    def _unset_keepalive_if_required(self) -> None:
        """Called by uvicorn when a piece of a request has come."""
        self._idle_since = None

    def on_response_complete(self) -> None:
        """Called by uvicorn; its own sets the first timer, and begins what else has been asked meanwhile."""
        more = bool(self.pipeline)
        if more or self.timeout_keep_alive_task is None or self.transport.is_closing():
            super().on_response_complete()
        else:
            self.server_state.total_requests += 1
            self.flow.resume_reading()
        if not more:
            self._idle_since = self.loop.time()

    def timeout_keep_alive_handler(self) -> None:
        """Called by the timer. A connection that is not idle gets another one when it is."""
        self.timeout_keep_alive_task = None
        if self._idle_since is None:
            return
        due = self._idle_since + self.timeout_keep_alive
        if due <= self.loop.time():
            super().timeout_keep_alive_handler()
        else:
            self.timeout_keep_alive_task = self.loop.call_at(due, self.timeout_keep_alive_handler)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Called by uvicorn when a request's turn has come."""
        super()._start_asgi_task(cycle, _Exchange(app, cycle, self._done))


class _Exchange:
    """One request to the application. Its answer's head is held back until the first of the body is there.

    So ASGI has it, and so a whole answer is one write.
    """

    __slots__ = ("_app", "_cycle", "_done", "_head")

    def __init__(self, app: App, cycle: RequestResponseCycle, done: asyncio.Future[None]) -> None:
        self._app = app
        self._cycle = cycle
        self._done = done
        self._head: Message | None = None

    def __call__(self, scope: Any, receive: Any, _: Any) -> Awaitable[None]:
        """Called by uvicorn."""
        return self._app(scope, receive, self._send)

    def _send(self, message: Any) -> Awaitable[None]:
        """Called by the application."""
        cycle, head = self._cycle, self._head
        if cycle.response_started or (head is None and message["type"] != "http.response.start"):
            return cycle.send(message)
        if head is None:
            self._head = message
            return self._done
        self._head = None
        return self._done if sent_at_once(cycle, head, message) else self._sent(head, message)

    async def _sent(self, *messages: Any) -> None:
        for message in messages:
            await self._cycle.send(message)


def sent_at_once(cycle: RequestResponseCycle, head: Message, message: Message) -> bool:
    """Write an answer, if it is whole and all about it is plain; else nothing has been done."""
    body, headers, begun = message.get("body", b""), head.get("headers"), STATUS_LINE.get(head["status"])
    if (
        begun is None
        or not isinstance(headers, list)  # ASGI takes none, and whatever can be gone through once
        or message["type"] != "http.response.body"
        or message.get("more_body", False)
        or len(body) > JOINED_BYTES
        or cycle.scope["method"] == "HEAD"
        or cycle.disconnected
        or not cycle.keep_alive
        or cycle.flow.write_paused
        or cycle.access_log
        or cycle.default_headers
    ):
        return False
    try:
        answer = b"".join((begun, _lines(headers, len(body)), b"\r\n\r\n", body))
    except ValueError:
        return False
    cycle.response_started = cycle.response_complete = True
    cycle.waiting_for_100_continue = False
    cycle.transport.write(answer)
    cycle.message_event.set()
    cycle.on_response()
    return True


def _lines(headers: list[tuple[bytes, bytes]], length: int) -> bytes:
    """The header lines as they go out.

    :raises ValueError: they do not say the body's length, say more of it, or cannot go out
    """
    names = tuple(map(NAME, headers))
    if headers[names.index(b"content-length")][1] != b"%d" % length or not _are_plain(names):
        raise ValueError("for uvicorn to look at")
    text = b"".join(map(VALUE, headers))
    if text.translate(None, CONTROLS) != text:
        raise ValueError("a control character")
    return b"\r\n".join(map(b": ".join, headers))


@lru_cache(maxsize=KEPT_HEADS)
def _are_plain(names: tuple[bytes, ...]) -> bool:
    """Whether header lines of these names go out as they are, and say nothing of framing but the length."""
    return not any(name in FRAMING or name != name.lower() or HEADER_RE.search(name) for name in names)


def _without_offers(headers: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    for name, value in headers:
        if name == b"connection":
            yield name, b",".join(one for one in value.split(b",") if one.strip().lower() not in OFFERS)
        elif name not in OFFERS:
            yield name, value
