"""The reading half of a connection: it replaces the parser's callbacks of uvicorn's protocol.

It checks a head before it makes a request of it, drops trailers, and ignores offers of other protocols. ``connection``
adds the bounds in time.
"""

from __future__ import annotations

import asyncio
import urllib.parse
from typing import Any

import httptools
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from tidemark.core.errors import HeadTooLarge, InvalidHttp, ServerBusy, TidemarkError, VersionUnknown
from tidemark.server.connections.bounds import HEAD_BYTES, HEAD_LINES, REST_BYTES, Bounds
from tidemark.server.connections.exchange import ServerExchange
from tidemark.server.connections.heads import check_head, without_offers
from tidemark.server.connections.load import RETRY_SECONDS, Load

TOO_LARGE = f"The head of a request, and its trailers, may have {HEAD_BYTES // 1024} KB and {HEAD_LINES} lines."
BUSY = "Tidemark has as many connections as it takes, and all are in use. Try again in a moment."


class RequestReader(HttpToolsProtocol):
    """Reads the requests of one connection. Mutable beside uvicorn's state: how much of a request has come.

    :param load: of all connections of the worker; None if this is the only one
    :param surplus: whether it exceeds the bound on connections, so that its request is refused
    """

    def __init__(self, *args: Any, load: Load | None = None, surplus: bool = False, **options: Any) -> None:
        super().__init__(*args, **options)
        self._load = load or Load(Bounds())
        self._surplus = surplus
        self._done = self.loop.create_future()
        self._done.set_result(None)
        self._raw_root = self.root_path.encode("ascii")
        self._host: bytes | None = None
        """The last Host line that passed the check."""
        self._size = 0
        """The bytes of the piece that is being parsed."""
        self._in_head = False
        """Whether a request has begun whose head is not complete."""
        self._split = False
        """Whether that head comes in several pieces."""
        self._changes = 0
        """How many requests have begun or ended within the piece that is being parsed."""
        self._progress = False
        """Whether a request has begun, or a part of its body has come, since bytes were last counted."""
        self._since = 0.0
        """The time of the client's last bytes or last answer, by the loop's clock."""
        self._in_pieces = False
        """Whether a request since the last answer came in pieces. The timer may run for it, and a body is counted."""
        self._dropped_bytes = 0
        """The bytes of a body that came after its request was answered."""
        self._refused = False
        """Whether a request was refused: all further bytes are dropped."""

    def close_idle(self) -> None:
        """Close; no request is under way."""
        raise NotImplementedError

    def refuse(self, error: TidemarkError) -> None:
        """Answer the request that is being read with an error, after the requests before it, and close."""
        raise NotImplementedError

    def _end_answered(self) -> None:
        """Called if the body of a request that is answered goes on for too long."""
        raise NotImplementedError

    def _on_incomplete(self) -> None:
        """Called when a piece has come, and the request is not complete."""
        raise NotImplementedError

    def _cancel_timer(self) -> None:
        raise NotImplementedError

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._size = len(data)
        self._changes = 0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as stopped:
            self._ignore_offer(memoryview(data)[stopped.args[0] :])
        except httptools.HttpParserError as error:
            self.refuse(self._cause_of(error))
        cycle = self.cycle
        in_body = cycle is not None and cycle.more_body  # type: ignore[redundant-expr] # uvicorn begins with None
        if (in_body or self._in_head) and not self._refused:
            self._on_incomplete()

    # What the parser calls.

    def on_message_begin(self) -> None:
        """Called by the parser at a request's first byte."""
        self.url = b""
        self.headers = []
        self._in_head = self._progress = True
        self._changes += 1

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser for each line of head and trailers."""
        headers = self.headers
        headers.append((name.lower(), value))
        if len(headers) > HEAD_LINES:
            raise HeadTooLarge(TOO_LARGE)

    def on_headers_complete(self) -> None:
        """Called by the parser: check the head and make a request of it."""
        parser, url, lines = self.parser, self.url, self.headers
        if parser.should_upgrade():
            return
        if self._surplus:
            raise ServerBusy(BUSY, retry_after=RETRY_SECONDS)
        if (self._split or self._size > HEAD_BYTES) and _size_of(url, lines) > HEAD_BYTES:
            raise HeadTooLarge(TOO_LARGE)
        version, headers = parser.get_http_version(), dict(lines)
        host = headers.get(b"host")
        if (
            host is None
            or host != self._host
            or version != "1.1"
            or url[:1] != b"/"
            or len(headers) != len(lines)  # a name stands twice
            or b"transfer-encoding" in headers
        ):
            check_head(version, url, lines)
            self._host = host
        self.headers = []  # for trailers, which are dropped (RFC 9110, section 6.5.1)
        scope = self.scope = self._scope(version, parser.get_method(), url, lines)
        self._in_head = self._split = False
        self._begin(
            RequestResponseCycle(
                scope=scope,
                transport=self.transport,
                flow=self.flow,
                logger=self.logger,
                access_logger=self.access_logger,
                access_log=self.access_log,
                default_headers=self.server_state.default_headers,
                message_event=asyncio.Event(),
                expect_100_continue=b"expect" in headers and headers[b"expect"].lower() == b"100-continue",
                keep_alive=version != "1.0" and parser.should_keep_alive() and not self._load.ending,
                on_response=self.on_response_complete,
            )
        )

    def on_body(self, body: bytes) -> None:
        self._progress = True
        cycle = self.cycle
        if cycle.response_complete:
            self._dropped_bytes += len(body)
            if self._dropped_bytes > REST_BYTES:
                self._end_answered()
            return
        cycle.body += body
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def on_message_complete(self) -> None:
        if self._in_head:  # a head with an offer, which is read once more
            return
        self._changes += 1
        cycle = self.cycle
        if self._in_pieces:
            self._load.bodies.release(self)
        if cycle.response_complete:
            self._since = self.loop.time()
            self._dropped_bytes = 0
        cycle.more_body = False
        cycle.message_event.set()

    def _scope(self, version: str, method: bytes, url: bytes, lines: list[tuple[bytes, bytes]]) -> Any:
        path, query = url, b""
        if b"?" in url or b"#" in url or url[:1] != b"/":
            target = httptools.parse_url(url)
            path, query = target.path or b"/", target.query or b""
        text = path.decode("ascii")
        return {
            "type": "http",
            "asgi": {"version": self.asgi_version, "spec_version": "2.3"},
            "http_version": version,
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "root_path": self.root_path,
            "headers": lines,
            "state": self.app_state.copy(),
            "method": method.decode("ascii"),
            "path": self.root_path + (urllib.parse.unquote(text) if "%" in text else text),
            "raw_path": self._raw_root + path,
            "query_string": query,
        }

    def _begin(self, cycle: RequestResponseCycle) -> None:
        """Give a request to the application, or let it wait for the answers of the requests before it."""
        is_first = self.cycle is None
        waits = not is_first and not self.cycle.response_complete
        self.cycle = cycle
        if is_first:
            self._cancel_timer()
        if not waits:
            self._start_asgi_task(cycle, self.app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, self.app))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Start the application on a request whose predecessors have been answered."""
        task = self.loop.create_task(cycle.run_asgi(ServerExchange(app, cycle, self._done)))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    # An offer to continue in another protocol (``Upgrade: h2c``) is ignored, as RFC 9110, section 7.8, allows; the
    # application answers that of a WebSocket (``server/capabilities.py``). Every
    # Java HttpClient makes that offer with each request, and uvicorn then drops the body (Kludex/uvicorn#2722). So
    # the head is read once more, by a new parser and without the offer.

    def _ignore_offer(self, rest: memoryview) -> None:
        """Read the head again that stopped the parser, without its offer, and then the bytes after it."""
        while True:
            try:
                head = self._head_without_offer()
                self.parser = httptools.HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)  # as uvicorn sets its own
                self.parser.feed_data(head)
                self.parser.feed_data(rest)
            except httptools.HttpParserUpgrade as stopped:
                rest = rest[stopped.args[0] :]
            except httptools.HttpParserError as error:
                self.refuse(self._cause_of(error))
                return
            except InvalidHttp as error:
                self.refuse(error)
                return
            else:
                return

    def _head_without_offer(self) -> bytes:
        method, version = self.parser.get_method(), self.parser.get_http_version().encode()
        if method == b"CONNECT":  # it is no offer, so the parser would stop again
            message = "Tidemark is no proxy for connections: it takes no CONNECT."
            raise InvalidHttp(message)
        lines = [b"%b: %b\r\n" % line for line in without_offers(self.headers)]
        return b"%b %b HTTP/%b\r\n%b\r\n" % (method, self.url, version, b"".join(lines))

    def _cause_of(self, error: httptools.HttpParserError) -> TidemarkError:
        cause = error.__context__
        if isinstance(cause, TidemarkError):
            return cause
        if cause is None:
            reason = str(error)  # a sentence of the parser
            is_other_version = "HTTP version" in reason or "PRI" in reason
            return VersionUnknown() if is_other_version else InvalidHttp(f"This is no request of HTTP/1.1: {reason}.")
        if not isinstance(cause, httptools.HttpParserError | UnicodeError):
            self.logger.error("A request could not be read", exc_info=cause)
        return InvalidHttp("This is no request of HTTP/1.1: its URL cannot be read.")


def _size_of(url: bytes, lines: list[tuple[bytes, bytes]]) -> int:
    """Return the approximate bytes of a head, with colons and line ends, without the method."""
    return len(url) + sum(len(name) + len(value) + 4 for name, value in lines)
