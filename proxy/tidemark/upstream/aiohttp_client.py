"""Sends requests over aiohttp: to upstreams behind an HTTP proxy, and to all with ``transport.upstream: library``.

The wire lane calls it in the same way as ``http1``. aiohttp supports CONNECT, proxy credentials and TLS within TLS. The
module is imported at the first request that needs it, because few do.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing, suppress
from contextvars import ContextVar
from typing import Any

import aiohttp
from yarl import URL

from tidemark.core.ports import Upload
from tidemark.upstream.http1.answer import LINE_BYTES, require_sendable
from tidemark.upstream.http1.connection import WHOLE_BYTES
from tidemark.upstream.http1.failures import AnswerBroken, ConnectionGone, ConnectTimedOut
from tidemark.upstream.http1.target import sendable_url
from tidemark.upstream.http1.uploading import pieces_of

_FRESH: ContextVar[bool] = ContextVar("fresh", default=True)
"""Whether the current task's request was sent over a connection that was opened for it."""
_GONE = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionResetError, BrokenPipeError)


class AiohttpAnswer:
    """An answer whose status and headers are there and whose body is still arriving."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        # Some servers put a space before a header's colon; it is no part of the name (RFC 9112, section 5.1).
        self.headers = [(name.rstrip(b" \t"), value) for name, value in response.raw_headers]
        self._response = response

    async def read(self, silence_seconds: float) -> bytes:
        try:
            async with asyncio.timeout(silence_seconds):
                return await self._response.content.readany()
        except aiohttp.ClientError as error:
            raise AnswerBroken(repr(error)) from error

    def close(self) -> None:
        """Abort the connection, unless the body was read to its end and the connection is back in the pool."""
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._response.close()


class AiohttpClient:
    """A pooled client that belongs to one event loop.

    :param keepalive_seconds: how long it keeps an idle connection
    :param connect_seconds: the limit for name lookup, TCP and TLS together
    :param proxy_for: returns the HTTP proxy for a URL, or None
    """

    def __init__(
        self, *, keepalive_seconds: float, connect_seconds: float, proxy_for: Callable[[str], str | None]
    ) -> None:
        self._connect_seconds = connect_seconds
        self._proxy_for = proxy_for
        self._pooled = self._open_session(_Connector(limit=0, keepalive_timeout=keepalive_seconds))
        self._unpooled: aiohttp.ClientSession | None = None
        """A session with a new connection for each request; the first second attempt opens it."""

    async def ask(
        self,
        method: str,
        url: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes | Upload | None,
        due: float,
        *,
        fresh: bool = False,
    ) -> AiohttpAnswer:
        _FRESH.set(False)
        lines = [(name.decode("latin-1"), _text(value)) for name, value in headers]
        if isinstance(body, Upload) and body.length is not None:
            lines.append(("Content-Length", str(body.length)))
        try:
            async with asyncio.timeout_at(due) as limit:
                response = await self._session(fresh=fresh).request(
                    method,
                    URL(sendable_url(url), encoded=True),  # or yarl decodes and encodes anew
                    data=_body_of(body, limit, due - asyncio.get_running_loop().time()),
                    headers=lines,
                    allow_redirects=False,
                    proxy=self._proxy_for(url),
                )
        except _GONE as error:
            raise ConnectionGone(repr(error), reused=not _FRESH.get()) from error
        except aiohttp.ConnectionTimeoutError as error:
            raise ConnectTimedOut(repr(error)) from error
        except aiohttp.ClientError as error:
            raise AnswerBroken(repr(error)) from error
        answer = AiohttpAnswer(response)
        try:
            require_sendable(answer.status, answer.headers)
        except AnswerBroken:
            answer.close()
            raise
        return answer

    async def aclose(self) -> None:
        await self._pooled.close()
        if self._unpooled is not None:
            await self._unpooled.close()

    def _session(self, *, fresh: bool) -> aiohttp.ClientSession:
        if not fresh:
            return self._pooled
        if self._unpooled is None:
            self._unpooled = self._open_session(_Connector(limit=0, force_close=True))
        return self._unpooled

    def _open_session(self, connector: aiohttp.BaseConnector) -> aiohttp.ClientSession:
        session = aiohttp.ClientSession(
            connector=connector,
            timeout=aiohttp.ClientTimeout(total=None, connect=self._connect_seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("accept", "accept-encoding", "content-type", "user-agent"),
            max_line_size=LINE_BYTES,
            max_field_size=LINE_BYTES,
        )
        # aiohttp would send a GET again by itself. The wire lane counts the attempts.
        session._retry_connection = False  # noqa: SLF001
        return session


class _Connector(aiohttp.TCPConnector):
    """Notes when it opens a connection. aiohttp's own way, tracing, costs every request some 20 us."""

    async def _create_connection(self, *args: Any, **kwargs: Any) -> Any:
        _FRESH.set(True)
        return await super()._create_connection(*args, **kwargs)


def _body_of(body: bytes | Upload | None, limit: asyncio.Timeout, seconds: float) -> Any:
    """Return a body as aiohttp takes it: large ones in pieces, an upload while it arrives.

    :param limit: the request's; each piece of an upload gives the server ``seconds`` again
    """
    if isinstance(body, Upload):
        return _pieces(body, limit, seconds)
    return io.BytesIO(body) if body and len(body) > WHOLE_BYTES else body


async def _pieces(upload: Upload, limit: asyncio.Timeout, seconds: float) -> AsyncGenerator[bytes, None]:
    loop = asyncio.get_running_loop()
    async with aclosing(pieces_of(upload)) as pieces:
        async for piece in pieces:
            yield piece
            with suppress(RuntimeError):  # the answer has begun, so the limit is over
                limit.reschedule(loop.time() + seconds)


def _text(value: bytes) -> str:
    """Return a header value as text, which aiohttp encodes as UTF-8 again."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
