"""HTTP by way of a proxy that the environment names, over aiohttp: CONNECT, proxy credentials, TLS within TLS.

Beside ``http1`` and asked in the same way; imported at the first request that needs it, since few do. The wire
lane's door to aiohttp.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import aiohttp

from proxy.upstream.http1.answer import LINE_BYTES, require_sendable
from proxy.upstream.http1.connection import WHOLE_BYTES
from proxy.upstream.http1.failures import AnswerBroken, ConnectionGone, ConnectTimedOut

_FRESH: ContextVar[bool] = ContextVar("fresh", default=True)
"""Whether the present task's request went out over a connection that was made for it."""
_GONE = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionResetError, BrokenPipeError)


class ProxiedAnswer:
    """Status and headers as they came, and the body on its way."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self.status = response.status
        # The space that some put before a header's colon is no part of its name (RFC 9112, section 5.1).
        self.headers = [(name.rstrip(b" \t"), value) for name, value in response.raw_headers]
        self._response = response

    async def read(self, silence_seconds: float) -> bytes:
        """What has come of the body since the last piece, waiting if there is nothing; empty at its end.

        :raises OSError: the connection was silent for so long, or the body breaks off
        """
        try:
            async with asyncio.timeout(silence_seconds):
                return await self._response.content.readany()
        except aiohttp.ClientError as error:
            raise AnswerBroken(repr(error)) from error

    def close(self) -> None:
        """Abort the connection unless the body has been read to its end, which put it back into the pool."""
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._response.close()


class ProxiedClient:
    """One pooled client for all proxies. Belongs to one event loop.

    :param keepalive_seconds: idle connections are dropped then
    :param connect_seconds: for name lookup, TCP and TLS together
    """

    def __init__(self, *, keepalive_seconds: float, connect_seconds: float) -> None:
        self._session = aiohttp.ClientSession(
            connector=_Connector(limit=0, keepalive_timeout=keepalive_seconds),
            timeout=aiohttp.ClientTimeout(total=None, connect=connect_seconds),
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            skip_auto_headers=("accept", "accept-encoding", "content-type", "user-agent"),
            max_line_size=LINE_BYTES,
            max_field_size=LINE_BYTES,
        )

    async def ask(
        self,
        method: str,
        url: str,
        headers: Sequence[tuple[bytes, bytes]],
        body: bytes | None,
        due: float,
        *,
        proxy: str,
    ) -> ProxiedAnswer:
        """Send a request, and wait for status and headers of its answer.

        :param due: when to stop waiting, by the loop's clock
        :raises ConnectTimedOut, ConnectionGone, AnswerBroken, OSError: there was no answer
        :raises ValueError: this is no request that could be sent
        """
        _FRESH.set(False)
        try:
            async with asyncio.timeout_at(due):
                response = await self._session.request(
                    method,
                    url,
                    data=io.BytesIO(body) if body and len(body) > WHOLE_BYTES else body,
                    headers=[(name.decode("latin-1"), _text(value)) for name, value in headers],
                    allow_redirects=False,
                    proxy=proxy,
                )
        except _GONE as error:
            raise ConnectionGone(repr(error), kept=not _FRESH.get()) from error
        except aiohttp.ConnectionTimeoutError as error:
            raise ConnectTimedOut(repr(error)) from error
        except aiohttp.ClientError as error:
            raise AnswerBroken(repr(error)) from error
        answer = ProxiedAnswer(response)
        try:
            require_sendable(answer.status, answer.headers)
        except AnswerBroken:
            answer.close()
            raise
        return answer

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()


class _Connector(aiohttp.TCPConnector):
    """Notes where a connection is made anew. Tracing, aiohttp's own way, costs every request some 20 us."""

    async def _create_connection(self, *given: Any, **named: Any) -> Any:
        _FRESH.set(True)
        return await super()._create_connection(*given, **named)


def _text(value: bytes) -> str:
    """A header value as aiohttp wants it: it will write it as UTF-8 again."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")
