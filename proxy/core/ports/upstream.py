"""Who asks, which model answers and where; and how an upstream is spoken to.

What the flow needs of ``proxy/upstream``. The wire lane and the translate lane both answer as an ``UpstreamReply``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from proxy.core.conversation.messages import JsonValue
from proxy.core.conversation.request import CachedPrefix, Dialect
from proxy.core.planning.budget import ModelProfile
from proxy.core.values import value

Headers = Sequence[tuple[bytes, bytes]]
"""Header lines in order, repeated ones too; names in lower case."""
Lane = Literal["wire", "translate"]


@value
class Caller:
    """Who sends a request, as far as Tidemark needs to know."""

    fingerprint: bytes
    """HMAC of the credential; the credential itself is in ``headers`` only."""
    headers: Headers
    """The client's request headers that go upstream, credential included; none that is for one hop only."""

    def __repr__(self) -> str:
        return f"Caller({self.fingerprint.hex()[:8]})"


NO_CREDENTIAL = Caller(b"", ())
"""The caller that sends no credential: the operator, whose admin token goes to no upstream, or a command."""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a model's requests go."""

    lane: Lane
    name: str
    """The model's name as the client uses it; profiles and windows are looked up by it."""
    upstream_model: str
    """The model's name as the upstream uses it."""
    provider: str
    base_url: str
    """Of the wire lane: ``{base_url}/chat/completions`` is asked. May be empty on the translate lane."""
    api_key: str | None = None
    """A configured key, which takes the place of the client's."""
    headers: Headers = ()
    """Configured extra headers."""
    params: Mapping[str, JsonValue] | None = None
    """Configured ``litellm_params`` for the translate lane, credentials included."""
    timeout_seconds: float = 600.0
    """Until an answer begins."""
    silence_seconds: float = 600.0
    """The longest between two pieces of an answer; comments of a stream are pieces, too."""

    def __repr__(self) -> str:
        place = _shown(self.base_url) or "litellm"
        return f"Route({self.lane} {self.name} -> {self.provider}/{self.upstream_model} at {place})"


def _shown(base_url: str) -> str:
    """A base URL as the log may show it: without a user, a password, and what its query says."""
    place, query, _ = base_url.partition("?")
    scheme, mark, rest = place.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{mark}{authority.rpartition('@')[2]}{slash}{path}{query}{'***' * bool(query)}"


@dataclass(frozen=True, slots=True)
class TextRequest:
    """A request for one short text, not streamed: what a summarizer sends."""

    messages: Sequence[Mapping[str, JsonValue]]
    max_tokens: int
    timeout_seconds: float
    cached_prefix: CachedPrefix | None = None
    """The beginning of a conversation, which goes before ``messages`` byte for byte."""


class UpstreamReply(Protocol):
    """An upstream's answer whose status and headers are there and whose body is on its way."""

    status: int
    headers: Headers
    """Those that travel on: without what was for one connection only."""

    def body(self) -> AsyncIterator[bytes]:
        """The body's bytes as they arrive, never gathered.

        :raises UpstreamBroken: the connection ended before the body did
        :raises UpstreamStalled: nothing of it came for ``silence_seconds`` of its route
        """
        ...

    async def close(self) -> None:
        """Give up the rest; the upstream call is cancelled. May be called more than once."""
        ...


class Upstream(Protocol):
    """The way to the providers: litellm decides where and how, bytes travel."""

    async def resolve(self, model: str, *, by_operator: bool = False) -> Route:
        """Where requests for ``model`` go.

        :param by_operator: the configuration names the model, as a summarizer's; else a client does
        :raises ModelNotFound: nobody serves it; the message names what is configured
        """
        ...

    async def send(self, route: Route, body: bytes, caller: Caller, *, dialect: Dialect, stream: bool) -> UpstreamReply:
        """Send a model request, its model already the upstream's, and wait for status and headers.

        :param dialect: the format of the body and of the reply
        :raises UpstreamUnreachable, UpstreamTimedOut: there was no answer
        :raises DialectNotServed: the model's provider does not speak this dialect
        """
        ...

    async def forward(self, route: Route, method: str, path: str, body: bytes, caller: Caller) -> UpstreamReply:
        """Send a request that Tidemark does not understand, and wait for status and headers.

        :param path: below the upstream's base URL, with its query: ``/embeddings``
        :raises UpstreamUnreachable, UpstreamTimedOut: there was no answer
        :raises DialectNotServed: the model's provider is reached through litellm, which carries no unknown request
        """
        ...

    async def complete(self, route: Route, request: TextRequest, caller: Caller) -> str:
        """Return one short text for a summarizer.

        :raises UpstreamError: there was no answer
        :raises SummaryRejected: it holds no text: tool calls or a refusal in its place, or nothing
        """
        ...


class ModelCatalog(Protocol):
    """What is known of models."""

    async def profile(self, route: Route, caller: Caller) -> ModelProfile:
        """Window and policy of a model, by the sources of docs/models.md; never fails, the last is a default."""
        ...

    async def learn(
        self,
        route: Route,
        caller: Caller,
        profile: ModelProfile,
        *,
        status: int,
        body: bytes,
        sent_tokens: int,
        factor: float = 1.0,
        asked_tokens: int | None = None,
    ) -> ModelProfile | None:
        """What an upstream's error teaches of a model's window.

        :param sent_tokens: what was sent, as counted here; the upstream may count more for the same
        :param factor: how many times more it was believed to count
        :param asked_tokens: the reply that the request asks for
        :returns: the profile to go on with, its window smaller or the whole reply kept free; None when the error
            is none of context length
        """
        ...
