"""The wire lane: a request's bytes go out and the answer's bytes come back untouched, over one pooled client.

On the road of a request between the assembly and the relay, for upstreams that speak OpenAI's format. What goes out is
the client's request with the configured credential put on; what comes back is handed on as it arrives, neither decoded
nor gathered. A client of our own carries it (``http1``). aiohttp does where the environment names a proxy, and
everywhere with ``transport.upstream: library`` (``docs/adr/0012-an-http-client-of-our-own.md``).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import msgspec

from proxy.core.conversation.messages import CachedPrefix, JsonValue
from proxy.core.errors import UpstreamBroken, UpstreamError, UpstreamTimedOut, UpstreamUnreachable
from proxy.core.http_headers import end_to_end
from proxy.core.ports import Caller, Headers, Route, UpstreamReply
from proxy.upstream.answers import stalled, text_of, upstream_refused
from proxy.upstream.bases import endpoint
from proxy.upstream.headers import outgoing
from proxy.upstream.http1.failures import ConnectionGone, ConnectTimedOut
from proxy.upstream.http1.pool import Pool

if TYPE_CHECKING:
    from proxy.upstream.aiohttp_client import AiohttpClient

CONNECT_SECONDS = 10.0
"""Name lookup, TCP and TLS together."""
KEEPALIVE_SECONDS = 4.0
"""Idle connections are dropped before uvicorn (vLLM, LiteLLM) and llama.cpp drop them at 5 s, so that no
request is sent into a connection that is just being closed."""
KEPT_URLS = 256
"""URLs that are remembered with their proxy: looking through the environment takes 70 us."""
MAX_ATTEMPTS = 2
"""Of one request: over a kept connection that turned out dead, then over a fresh one."""
DEAD_SECONDS = 0.05
"""A kept connection that ends later than this, and later than a round trip, was not dead when it was asked: its server
may have worked on the request, and what it did is billed (RFC 9110, 9.2.2)."""
LONGEST_ROUND_TRIP_SECONDS = 0.3
"""Around the globe; a connect that took longer lost a packet or waited for a second address."""

JSON_CONTENT = (b"content-type", b"application/json")
Lines = Sequence[tuple[bytes, bytes]]


class WireAnswer(Protocol):
    """The answer of either client: ``http1``'s or aiohttp's."""

    @property
    def status(self) -> int:
        """The status code."""
        ...

    @property
    def headers(self) -> Headers:
        """The header lines as they came."""
        ...

    async def read(self, silence_seconds: float) -> bytes:
        """What has come of the body since the last piece, waiting if there is nothing; empty at its end.

        :raises OSError: the connection was silent for so long, or the body breaks off
        """
        ...

    def close(self) -> None:
        """Give up what has not come yet, and the connection with it."""
        ...


class WireClient(Protocol):
    """Sends requests: ``http1``'s pool, or aiohttp."""

    async def ask(
        self, method: str, url: str, headers: Lines, body: bytes | None, due: float, *, fresh: bool = False
    ) -> WireAnswer:
        """Send a request, and wait for status and headers of its answer.

        :param due: when to stop waiting, by the loop's clock
        :param fresh: use a connection that has carried nothing yet
        :raises ConnectTimedOut, ConnectionGone, AnswerBroken, OSError: there was no answer
        :raises ValueError: this is no request that could be sent
        """
        ...


class WireReply:
    """An answer on the wire lane: status and headers are there, the body is on its way.

    It is the iterator of its own body: an async generator is announced to the event loop and taken off again.
    """

    def __init__(self, answer: WireAnswer, route: Route) -> None:
        self._answer = answer
        self._route = route
        self.status: int = answer.status
        self.headers: Headers = end_to_end(answer.headers)

    def body(self) -> AsyncIterator[bytes]:
        """The body's bytes, each piece as soon as it is there."""
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
            raise UpstreamBroken(
                f"The upstream of {self._route.name!r} stopped in the middle of its answer; send the request again.",
                internal=f"{self._route!r}: {error!r}",
            ) from error
        except BaseException:  # whoever waited was cancelled
            self._answer.close()
            raise
        if not piece:
            self._answer.close()
            raise StopAsyncIteration
        return piece

    async def close(self) -> None:
        """Abort the connection unless the body has come to its end, which put it back among the idle ones."""
        self._answer.close()


class WireLane:
    """Two pooled clients for all upstreams. Belongs to one event loop; each is opened at the first request for it.

    :param library: send every request over aiohttp, not only those through a proxy
    """

    def __init__(self, *, library: bool = False) -> None:
        self._library = library
        self._pool: Pool | None = None
        self._aiohttp: AiohttpClient | None = None

    async def send(self, route: Route, body: bytes, caller: Caller) -> UpstreamReply:
        """Send a chat request and wait for status and headers, at most ``route.timeout_seconds``.

        :raises UpstreamUnreachable, UpstreamTimedOut: there was no answer
        """
        headers = outgoing(route, caller)
        if b"content-type" not in dict(headers):
            headers.append(JSON_CONTENT)
        return WireReply(await self._ask(route, "POST", chat_url(route.base_url), headers, body), route)

    async def complete(
        self,
        route: Route,
        messages: Sequence[Mapping[str, JsonValue]],
        caller: Caller,
        *,
        max_tokens: int,
        timeout_seconds: float,
        live: CachedPrefix | None = None,
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
        headers = [pair for pair in outgoing(route, caller) if pair[0] not in (b"content-type", b"accept")]
        headers += [JSON_CONTENT, (b"accept", b"application/json")]
        return text_of(
            await self._json(route, "POST", chat_url(route.base_url), headers, body, seconds=timeout_seconds), route
        )

    async def get_json(self, route: Route, url: str, caller: Caller, *, timeout_seconds: float) -> JsonValue:
        """A JSON document of the upstream, such as ``{base_url}/models``, asked with the caller's credential.

        :raises UpstreamError: there was no answer of status 200, or one that is no JSON
        """
        headers = [pair for pair in outgoing(route, caller) if pair[0] != b"content-type"]
        return await self._json(route, "GET", url, headers, None, seconds=timeout_seconds)

    async def aclose(self) -> None:
        """Close all connections."""
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
                try:
                    pieces = []
                    while piece := await answer.read(seconds):
                        pieces.append(piece)
                finally:
                    answer.close()
        except TimeoutError as error:
            raise timed_out(route, seconds) from error
        except OSError as error:
            raise UpstreamBroken(
                f"The upstream of {route.name!r} stopped in the middle of its answer.", internal=repr(error)
            ) from error
        content = b"".join(pieces)
        if answer.status != 200:
            raise upstream_refused(route, answer.status, content)
        try:
            value: JsonValue = msgspec.json.decode(content)
        except (msgspec.DecodeError, RecursionError) as error:
            raise UpstreamError(f"The upstream of {route.name!r} answered with something that is no JSON.") from error
        return value

    async def _ask(self, route: Route, method: str, url: str, headers: Lines, body: bytes | None) -> WireAnswer:
        """Send, and wait for status and headers."""
        clock = asyncio.get_running_loop().time
        began = clock()
        due = began + route.timeout_seconds
        try:
            client = self._client_for(url)
            for attempt in range(1, MAX_ATTEMPTS + 1):
                try:
                    return await client.ask(method, url, headers, body, due, fresh=attempt == MAX_ATTEMPTS)
                except ConnectionGone as gone:
                    # A kept connection that the server had closed meanwhile: it has seen nothing of this
                    # request (RFC 9112 9.3.1 allows a retry then). A fresh one is never tried twice.
                    round_trip = min(gone.round_trip_seconds, LONGEST_ROUND_TRIP_SECONDS)
                    dead = gone.reused and clock() - began < max(DEAD_SECONDS, round_trip)
                    if not dead or attempt == MAX_ATTEMPTS:
                        raise
        except ConnectTimedOut as error:
            raise unreachable(route, error) from error
        except TimeoutError as error:
            raise timed_out(route, route.timeout_seconds, "raise litellm_params.timeout of the model") from error
        except (OSError, ValueError) as error:
            raise unreachable(route, error) from error
        raise AssertionError  # the loop returns or raises

    def _client_for(self, url: str) -> WireClient:
        if self._library or proxy_for(url) is not None:
            return self._aiohttp or self._open_aiohttp()
        if self._pool is None:
            self._pool = Pool(keepalive_seconds=KEEPALIVE_SECONDS, connect_seconds=CONNECT_SECONDS)
        return self._pool

    def _open_aiohttp(self) -> AiohttpClient:
        from proxy.upstream.aiohttp_client import AiohttpClient

        self._aiohttp = AiohttpClient(
            keepalive_seconds=KEEPALIVE_SECONDS, connect_seconds=CONNECT_SECONDS, proxy_for=proxy_for
        )
        return self._aiohttp


@lru_cache(maxsize=KEPT_URLS)
def chat_url(base_url: str) -> str:
    """Where the chat requests of a base URL go: the very same text each time, whose hash is known by then."""
    return endpoint(base_url, "/chat/completions")


def is_openai(base_url: str) -> bool:
    """Whether a base URL is OpenAI's own."""
    return urlsplit(base_url).hostname == "api.openai.com"


@lru_cache(maxsize=KEPT_URLS)
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


def timed_out(route: Route, seconds: float, mend: str = "") -> UpstreamTimedOut:
    """The error for an upstream that is connected and silent.

    :param mend: what would give it more time, where somebody can
    """
    more = f", or {mend}" if mend else ""
    return UpstreamTimedOut(
        f"The upstream of {route.name!r} did not answer within {seconds:g} seconds; send the request again{more}.",
        internal=repr(route),
    )


def unreachable(route: Route, error: BaseException) -> UpstreamUnreachable:
    """The error for an upstream that no connection can be made to."""
    return UpstreamUnreachable(
        f"The upstream of {route.name!r} cannot be reached; check that it runs, and api_base of the model "
        "or TIDEMARK_UPSTREAM.",
        internal=f"{route!r}: {error!r}",
    )
