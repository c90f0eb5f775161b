"""The wire lane: a request's bytes go out and the answer's bytes come back untouched, over one pooled client.

Last step on the road of a request for upstreams that speak OpenAI's format. What goes out is the client's
request with its hop-by-hop headers taken off and the configured credential put on; what comes back is handed
on as it arrives, neither decoded nor gathered. aiohttp is imported here only.
"""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import msgspec

from proxy.core.errors import UpstreamBroken, UpstreamError, UpstreamTimedOut, UpstreamUnreachable
from proxy.core.headers import end_to_end
from proxy.core.messages import JsonValue, LivePrefix
from proxy.core.ports import Caller, Headers, Route, UpstreamReply
from proxy.upstream.answers import text_of, upstream_refused
from proxy.upstream.headers import outgoing

CONNECT_SECONDS = 10.0
"""Name lookup, TCP and TLS together."""
IDLE_SECONDS = 600.0
"""The longest silence within a body: the OpenAI SDK's own read timeout, so the client has given up by
then."""
KEEPALIVE_SECONDS = 4.0
"""Idle connections are dropped before uvicorn (vLLM, LiteLLM) and llama.cpp drop them at 5 s, so that no
request is sent into a connection that is just being closed."""
HEADER_BYTES = 65_536
"""The longest header line taken; aiohttp's own 8 kB is less than some gateways' policy headers."""
WHOLE_BYTES = 2**20
"""Longer bodies are written piece by piece, with other requests in between (aiohttp's own mark)."""
KEPT_PROXIES = 256
"""URLs whose proxy is remembered: looking through the environment takes 70 us."""
MAX_ATTEMPTS = 3
"""Of one request, all but the last over kept connections that turned out dead."""
DEAD_SECONDS = 1.0
"""A kept connection that fails later than this was not dead: its server may have worked on the request."""

JSON_CONTENT = ("content-type", "application/json")
_FRESH: ContextVar[bool] = ContextVar("fresh", default=True)
"""Whether the present task's request went out over a connection that was made for it."""
_GONE = (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError, ConnectionResetError, BrokenPipeError)


@dataclass(frozen=True, slots=True)
class _Question:
    """One HTTP request as it goes out."""

    route: Route
    method: str
    url: str
    headers: Sequence[tuple[str, str]]
    body: bytes | None = None


class WireReply:
    """An answer on the wire lane: status and headers are there, the body is on its way."""

    def __init__(self, response: aiohttp.ClientResponse, route: Route) -> None:
        self._response = response
        self._route = route
        self.status: int = response.status
        self.headers: Headers = end_to_end(response.raw_headers)

    async def body(self) -> AsyncIterator[bytes]:
        """The body's bytes, each piece as soon as it is there."""
        content, clock = self._response.content, asyncio.get_running_loop().time
        silence = _Silence(content)
        try:
            while True:
                silence.since = clock()
                piece = await content.readany()
                if not piece:
                    break
                silence.since = None
                yield piece
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise UpstreamBroken(
                f"The upstream of {self._route.name!r} stopped in the middle of its answer; send the request again.",
                internal=f"{self._route!r}: {error!r}",
            ) from error
        finally:
            silence.over()
            await self.close()

    async def close(self) -> None:
        """Abort the connection unless the body has been read to its end, which put it back into the pool."""
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._response.close()


class _Silence:
    """Ends a body whose upstream has said nothing for ``IDLE_SECONDS``; a client that reads slowly is none of that.

    One timer that looks now and then. aiohttp's own, ``sock_read``, is set anew for every piece that comes.
    """

    def __init__(self, content: aiohttp.StreamReader) -> None:
        self.since: float | None = None
        """When the next piece began to be waited for, by the loop's clock; None while nobody waits."""
        self._content = content
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(IDLE_SECONDS, self._look)

    def over(self) -> None:
        """The body has ended."""
        self._timer.cancel()

    def _look(self) -> None:
        now = self._loop.time()
        due = (now if self.since is None else self.since) + IDLE_SECONDS
        if due <= now:
            self._content.set_exception(aiohttp.SocketTimeoutError(f"silent for {IDLE_SECONDS:g} s"))
        else:
            self._timer = self._loop.call_at(due, self._look)


class WireLane:
    """One pooled HTTP client for all upstreams. Belongs to one event loop; opened at the first request."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def send(self, route: Route, body: bytes, caller: Caller) -> UpstreamReply:
        """Send a chat request and wait for status and headers, at most ``route.timeout_seconds``.

        :raises UpstreamUnreachable, UpstreamTimedOut: there was no answer
        """
        headers = outgoing(route, caller)
        if not any(name == "content-type" for name, _ in headers):
            headers.append(JSON_CONTENT)
        return WireReply(await self._ask(_Question(route, "POST", chat_url(route), headers, body)), route)

    async def complete(
        self,
        route: Route,
        messages: Sequence[Mapping[str, JsonValue]],
        caller: Caller,
        *,
        max_tokens: int,
        timeout_seconds: float,
        live: LivePrefix | None = None,
    ) -> str:
        """One text, not streamed.

        :param live: what goes before ``messages``, byte by byte
        :raises UpstreamError: there was no answer
        :raises SummaryRejected: it holds no text
        """
        # api.openai.com's reasoning models refuse max_tokens; most other servers know nothing else.
        bound = "max_completion_tokens" if is_openai(route.base_url) else "max_tokens"
        fields = {name: msgspec.Raw(raw) for name, raw in live.fields.items()} if live else {}
        before = [msgspec.Raw(message.raw) for message in live.messages] if live else []
        asked = {"messages": [*before, *messages], bound: max_tokens, "stream": False}
        body = msgspec.json.encode({"model": route.upstream_model, **fields, **asked})
        headers = [pair for pair in outgoing(route, caller) if pair[0] not in ("content-type", "accept")]
        headers += [JSON_CONTENT, ("accept", "application/json")]
        question = _Question(route, "POST", chat_url(route), headers, body)
        return text_of(await self._json(question, timeout_seconds), route)

    async def get_json(self, route: Route, url: str, caller: Caller, *, timeout_seconds: float) -> JsonValue:
        """A JSON document of the upstream, such as ``{base_url}/models``, asked with the caller's credential.

        :raises UpstreamError: there was no answer of status 200, or one that is no JSON
        """
        headers = [pair for pair in outgoing(route, caller) if pair[0] != "content-type"]
        return await self._json(_Question(route, "GET", url, headers), timeout_seconds)

    async def aclose(self) -> None:
        """Close all connections."""
        if self._session is not None:
            await self._session.close()

    async def _json(self, question: _Question, seconds: float) -> JsonValue:
        route = question.route
        try:
            async with asyncio.timeout(seconds):
                response = await self._ask(question)
                async with response:
                    content = await response.read()
        except TimeoutError as error:
            raise timed_out(route, seconds) from error
        except (aiohttp.ClientError, OSError) as error:
            raise UpstreamBroken(
                f"The upstream of {route.name!r} stopped in the middle of its answer.", internal=repr(error)
            ) from error
        if response.status != 200:
            raise upstream_refused(route, response.status, content)
        try:
            value: JsonValue = msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UpstreamError(f"The upstream of {route.name!r} answered with something that is no JSON.") from error
        return value

    async def _ask(self, question: _Question) -> aiohttp.ClientResponse:
        """Send, and wait for status and headers."""
        route, body = question.route, question.body
        session, clock, fresh = self._opened(), asyncio.get_running_loop().time, _FRESH
        try:
            async with asyncio.timeout(route.timeout_seconds):
                for attempt in range(1, MAX_ATTEMPTS + 1):
                    fresh.set(False)
                    began = clock()
                    try:
                        return await session.request(
                            question.method,
                            question.url,
                            data=io.BytesIO(body) if body and len(body) > WHOLE_BYTES else body,
                            headers=question.headers,
                            allow_redirects=False,
                            proxy=proxy_for(question.url),
                        )
                    except _GONE:
                        # A kept connection that the server had closed meanwhile: it has seen nothing of this
                        # request (RFC 9112 9.3.1 allows a retry then). A fresh one is never tried twice.
                        dead = not fresh.get() and clock() - began < DEAD_SECONDS
                        if not dead or attempt == MAX_ATTEMPTS:
                            raise
        except TimeoutError as error:
            connecting = isinstance(error, aiohttp.ConnectionTimeoutError)
            raise timed_out(route, CONNECT_SECONDS if connecting else route.timeout_seconds) from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise unreachable(route, error) from error
        raise AssertionError  # the loop returns or raises

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=_Connector(limit=0, keepalive_timeout=KEEPALIVE_SECONDS),
                timeout=aiohttp.ClientTimeout(total=None, connect=CONNECT_SECONDS),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
                skip_auto_headers=("accept", "accept-encoding", "content-type", "user-agent"),
                max_line_size=HEADER_BYTES,
                max_field_size=HEADER_BYTES,
            )
        return self._session


class _Connector(aiohttp.TCPConnector):
    """Notes where a connection is made anew. Tracing, aiohttp's own way, costs every request some 20 us."""

    async def _create_connection(self, *given: Any, **named: Any) -> Any:
        _FRESH.set(True)
        return await super()._create_connection(*given, **named)


def chat_url(route: Route) -> str:
    """Where a route's chat requests go."""
    return route.base_url.rstrip("/") + "/chat/completions"


def is_openai(base_url: str) -> bool:
    """Whether a base URL is OpenAI's own."""
    return urlsplit(base_url).hostname == "api.openai.com"


@lru_cache(maxsize=KEPT_PROXIES)
def proxy_for(url: str) -> str | None:
    """The HTTP proxy that the environment names for a URL (``HTTPS_PROXY``, ``NO_PROXY``, ...).

    Not aiohttp's ``trust_env``, which reads ``~/.netrc`` too and would lend its credentials to callers
    without any.
    """
    parts = urlsplit(url)
    proxies = getproxies()
    if not proxies or not parts.hostname or proxy_bypass(parts.hostname):
        return None
    return proxies.get(parts.scheme) or proxies.get("all")


def timed_out(route: Route, seconds: float) -> UpstreamTimedOut:
    """The error for an upstream that is connected and silent."""
    return UpstreamTimedOut(
        f"The upstream of {route.name!r} did not answer within {seconds:g} seconds; send the request again, "
        "or raise litellm_params.timeout of the model.",
        internal=repr(route),
    )


def unreachable(route: Route, error: BaseException) -> UpstreamUnreachable:
    """The error for an upstream that no connection can be made to."""
    return UpstreamUnreachable(
        f"The upstream of {route.name!r} cannot be reached; check that it runs, and api_base of the model "
        "or TIDEMARK_UPSTREAM.",
        internal=f"{route!r}: {error!r}",
    )
