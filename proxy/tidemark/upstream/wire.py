"""The wire lane sends a request's bytes and returns the answer's bytes unchanged, over one pooled client.

It stands between assembly and relay, for upstreams that speak OpenAI's format. It adds the configured credential to the
client's request, and passes the answer on as it arrives, neither decoded nor collected. It uses the project's own HTTP
client (``http1``). It uses aiohttp if the environment names a proxy, and everywhere with
``transport.upstream: library`` (``docs/adr/0012-an-http-client-of-our-own.md``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from functools import lru_cache
from math import inf
from typing import TYPE_CHECKING, Protocol

import msgspec

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import UpstreamError
from tidemark.core.http_headers import end_to_end
from tidemark.core.ports import Caller, Headers, Route, TextRequest, Upload, UpstreamReply
from tidemark.upstream.answer_bounds import AnswerBounds, OpenEvent, has_plain_events
from tidemark.upstream.configured_members import with_members
from tidemark.upstream.errors import TIMEOUT_REMEDY, broken, refused, stalled, timed_out, unreachable
from tidemark.upstream.headers import carried, outgoing
from tidemark.upstream.http1.failures import ConnectionGone, ConnectTimedOut
from tidemark.upstream.http1.pool import Pool
from tidemark.upstream.providers import endpoint, is_openai
from tidemark.upstream.reaching import TlsQuestions, failure_of, proxy_of

if TYPE_CHECKING:
    from tidemark.upstream.aiohttp_client import AiohttpClient

CONNECT_SECONDS = 10.0
"""The limit for name lookup, TCP and TLS together."""
KEEPALIVE_SECONDS = 4.0
"""How long an idle connection is kept. uvicorn (vLLM, LiteLLM) and llama.cpp close theirs after 5 s; an earlier end
here keeps requests off connections that are just being closed."""
MAX_CACHED_URLS = 256
"""URLs that are cached."""
MAX_ATTEMPTS = 2
"""Times that one request is sent: over a kept connection that turns out dead, then over a new one."""
DEAD_SECONDS = 0.05
"""How soon a kept connection has to end to count as dead before the request. A longer round trip raises it. If it
ends later, its server may have worked on the request and bills it (RFC 9110, 9.2.2), so it is not sent again."""
LONGEST_ROUND_TRIP_SECONDS = 0.3
"""A round trip around the globe; a connect that took longer lost a packet or waited for a second address."""

CHAT_PATH = "/chat/completions"
"""Summarizers are asked in chat completions, whatever the client speaks."""
METHODS_WITH_BODY = frozenset({"PATCH", "POST", "PUT"})
"""Methods whose requests say their length even if it is zero: some servers insist (RFC 9110, section 8.6)."""
FIRST_ERROR = 400
"""From this status on an answer is an error."""
JSON_CONTENT = (b"content-type", b"application/json")
Body = bytes | Upload
Lines = Sequence[tuple[bytes, bytes]]


class WireAnswer(Protocol):
    """An answer of either HTTP client: ``http1``'s or aiohttp's."""

    @property
    def status(self) -> int:
        """Return the status code."""
        ...

    @property
    def headers(self) -> Headers:
        """Return the header lines as they arrived."""
        ...

    async def read(self, silence_seconds: float) -> bytes:
        """Return the bytes of the body that arrived since the last call, or wait for some.

        They are empty at the body's end.

        :raises OSError: the connection was silent for so long, or the body broke off
        """
        ...

    def close(self) -> None:
        """Give up the rest of the body, and the connection with it."""
        ...


class WireClient(Protocol):
    """Sends requests over ``http1``'s pool or over aiohttp."""

    async def ask(
        self, method: str, url: str, headers: Lines, body: Body | None, due: float, *, fresh: bool = False
    ) -> WireAnswer:
        """Send a request, and wait for status and headers of its answer.

        :param due: when to stop waiting, on the loop's clock
        :param fresh: use a new connection
        :raises ConnectTimedOut, ConnectionGone, AnswerBroken, OSError: there was no answer
        :raises ValueError: the request cannot be sent as HTTP
        """
        ...


class WireReply:
    """An answer on the wire lane whose status and headers are there and whose body is still arriving.

    It is the iterator of its own body, because an async generator costs more: the event loop registers each one.

    :param is_carried: nothing of the body is held, unless it is an error
    """

    def __init__(self, answer: WireAnswer, route: Route, bounds: AnswerBounds, *, is_carried: bool = False) -> None:
        self._answer = answer
        self._route = route
        self.status: int = answer.status
        self.headers: Headers = end_to_end(answer.headers)
        self._bounds = bounds
        self._free_bytes: float = bounds.answer
        self._event: OpenEvent | None = None
        if answer.status >= FIRST_ERROR:
            self._free_bytes = bounds.error
        elif is_carried:
            self._free_bytes = inf
        elif has_plain_events(self.headers):
            self._event = OpenEvent()

    def body(self) -> AsyncIterator[bytes]:
        """Return an iterator of the body's bytes, each piece as soon as it arrives."""
        return self

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            piece = await self._answer.read(self._route.silence_seconds)
        except TimeoutError as error:
            self._answer.close()
            raise stalled(self._route) from error
        except OSError as error:
            self._answer.close()
            raise broken(self._route, error) from error
        except BaseException:  # the task that waited was cancelled
            self._answer.close()
            raise
        if not piece:
            self._answer.close()
            raise StopAsyncIteration
        self._free_bytes -= len(piece)
        if self._free_bytes < 0:
            self._answer.close()
            is_error = self.status >= FIRST_ERROR
            raise (self._bounds.too_long_error if is_error else self._bounds.too_long_answer)(self._route)
        if self._event is not None:
            self._event.add(piece)
            if self._event.size > self._bounds.event:
                self._answer.close()
                raise self._bounds.too_long_event(self._route)
        return piece

    async def close(self) -> None:
        """Abort the connection, unless the body was read to its end and the connection is idle again."""
        self._answer.close()


class WireLane:
    """Two pooled clients for all upstreams, for one event loop; each is opened at the first request that needs it.

    :param library: send every request over aiohttp, not only those through a proxy
    :param bounds: those of answers
    """

    def __init__(self, *, library: bool = False, bounds: AnswerBounds | None = None) -> None:
        self._library = library
        self.bounds = bounds or AnswerBounds()
        self._pool: Pool | None = None
        self._tls_questions = TlsQuestions()
        self._aiohttp: AiohttpClient | None = None

    async def send(self, route: Route, body: bytes, caller: Caller, *, path: str = CHAT_PATH) -> UpstreamReply:
        """Send a model request and wait for status and headers, at most ``route.timeout_seconds``.

        :param path: the endpoint of the request's dialect, below the base URL
        :raises UpstreamUnreachable, UpstreamTimedOut: there was no answer
        """
        headers = outgoing(route, caller)
        if b"content-type" not in dict(headers):
            headers.append(JSON_CONTENT)
        answer = await self._ask(route, "POST", url_of(route.base_url, path), headers, body)
        return WireReply(answer, route, self.bounds)

    async def forward(self, route: Route, method: str, path: str, body: Body, caller: Caller) -> UpstreamReply:
        """Send any request as it came, with the credential that its route has.

        :param path: below the base URL, with its query
        :raises UpstreamUnreachable, UpstreamTimedOut: there was no answer
        """
        url = endpoint(route.base_url, path)
        headers = carried(route, caller)
        if isinstance(body, Upload) and body.encoding:
            headers.append((b"content-encoding", body.encoding))
        has_body = bool(body) or method in METHODS_WITH_BODY
        answer = await self._ask(route, method, url, headers, body if has_body else None)
        return WireReply(answer, route, self.bounds, is_carried=True)

    async def complete(self, route: Route, request: TextRequest, caller: Caller) -> JsonValue:
        """Return the chat completion with one short text.

        :raises UpstreamError: there was no answer
        """
        # api.openai.com's reasoning models refuse max_tokens; most other servers know no other member.
        bound = "max_completion_tokens" if is_openai(route.base_url) else "max_tokens"
        prefix = request.cached_prefix
        fields = {name: msgspec.Raw(raw) for name, raw in prefix.fields.items()} if prefix else {}
        before = [msgspec.Raw(raw) for raw in prefix.raws] if prefix else []
        members = {"messages": [*before, *request.messages], bound: request.max_tokens, "stream": False}
        body = msgspec.json.encode({"model": route.upstream_model, **fields, **members})
        if route.members is not None:
            body = with_members(body, route.members)
        headers = [pair for pair in outgoing(route, caller) if pair[0] not in (b"content-type", b"accept")]
        headers += [JSON_CONTENT, (b"accept", b"application/json")]
        url = url_of(route.base_url, CHAT_PATH)
        return await self._json(route, "POST", url, headers, body, seconds=request.timeout_seconds)

    async def get_json(self, route: Route, url: str, caller: Caller, *, timeout_seconds: float) -> JsonValue:
        """Return a JSON document of the upstream, such as ``{base_url}/models``, with the caller's credential.

        :raises UpstreamError: there was no answer of status 200, or it is no JSON
        """
        headers = [pair for pair in outgoing(route, caller) if pair[0] != b"content-type"]
        return await self._json(route, "GET", url, headers, None, seconds=timeout_seconds)

    async def aclose(self) -> None:
        if self._pool is not None:
            await self._pool.aclose()
        if self._aiohttp is not None:
            await self._aiohttp.aclose()

    async def _json(
        self, route: Route, method: str, url: str, headers: Lines, body: bytes | None, *, seconds: float
    ) -> JsonValue:
        try:
            async with asyncio.timeout(seconds):
                answer = await self._ask(route, method, url, headers, body)
                content = b"".join([piece async for piece in WireReply(answer, route, self.bounds)])
        except TimeoutError as error:
            raise timed_out(route, seconds) from error
        if answer.status != 200:
            raise refused(route, answer.status, content)
        try:
            value: JsonValue = msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UpstreamError(f"The upstream of {route.name!r} answered with something that is no JSON.") from error
        return value

    async def _ask(self, route: Route, method: str, url: str, headers: Lines, body: Body | None) -> WireAnswer:
        """Send a request, and wait for status and headers."""
        clock = asyncio.get_running_loop().time
        began = clock()
        due = began + route.timeout_seconds
        try:
            client = self._client_for(url)
            # An upload can be read once only, so it goes over a connection that cannot be dead already.
            for attempt in range(MAX_ATTEMPTS if isinstance(body, Upload) else 1, MAX_ATTEMPTS + 1):
                try:
                    return await client.ask(method, url, headers, body, due, fresh=attempt == MAX_ATTEMPTS)
                except ConnectionGone as gone:
                    # The server had already closed a kept connection, so it saw nothing of this request, and RFC
                    # 9112, 9.3.1 allows a retry. A request over a new connection is never sent again.
                    round_trip = min(gone.round_trip_seconds, LONGEST_ROUND_TRIP_SECONDS)
                    dead = gone.reused and clock() - began < max(DEAD_SECONDS, round_trip)
                    if not dead or attempt == MAX_ATTEMPTS:
                        raise
        except ConnectTimedOut as error:
            raise unreachable(route, error, failure_of(error, route.base_url, headers)) from error
        except TimeoutError as error:
            raise timed_out(route, route.timeout_seconds, TIMEOUT_REMEDY) from error
        except (OSError, ValueError) as error:
            if isinstance(body, Upload):  # the server had begun to read, so how it speaks is no question
                raise unreachable(route, error, failure_of(error, route.base_url, headers)) from error
            took = clock() - began
            failure = await self._tls_questions.failure_of(error, route.base_url, headers, took_seconds=took)
            raise unreachable(route, error, failure) from error
        raise AssertionError  # the loop returns or raises

    def _client_for(self, url: str) -> WireClient:
        if self._library or proxy_of(url) is not None:
            return self._aiohttp or self._open_aiohttp()
        if self._pool is None:
            self._pool = Pool(keepalive_seconds=KEEPALIVE_SECONDS, connect_seconds=CONNECT_SECONDS)
        return self._pool

    def _open_aiohttp(self) -> AiohttpClient:
        from tidemark.upstream.aiohttp_client import AiohttpClient

        self._aiohttp = AiohttpClient(
            keepalive_seconds=KEEPALIVE_SECONDS, connect_seconds=CONNECT_SECONDS, proxy_for=_proxy_url
        )
        return self._aiohttp


@lru_cache(maxsize=MAX_CACHED_URLS)
def url_of(base_url: str, path: str) -> str:
    """Return the URL of an endpoint: the very same text each time, so that its hash is cached."""
    return endpoint(base_url, path)


def _proxy_url(url: str) -> str | None:
    proxy = proxy_of(url)
    return None if proxy is None else proxy.url
