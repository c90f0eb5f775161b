"""The ports of upstreams, of the model catalog and of authentication, with callers and routes.

``tidemark/upstream`` and ``tidemark/catalog`` implement them. Both lanes reply with an ``UpstreamReply``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from typing import Literal, Protocol

from tidemark.core.conversation.cache_marks import MarkFormat, MarkPolicy
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.request import CachedPrefix, Dialect
from tidemark.core.errors import ModelNotAllowed
from tidemark.core.frozen import frozen
from tidemark.core.grants import Grant
from tidemark.core.planning.budget import ModelProfile

Headers = Sequence[tuple[bytes, bytes]]
"""Header lines in order, repeated ones too; names in lower case."""
Lane = Literal["wire", "translate"]


@frozen
class Caller:
    """The sender of a request."""

    fingerprint: bytes
    """HMAC of the credential; the credential itself is in ``headers`` only."""
    headers: Headers
    """The client's request headers that are forwarded, with the credential; none that is for one hop only."""
    query: str = ""
    """The query of the client's request, with its question mark: ``?beta=true``. An upstream that is asked in the
    client's own dialect gets it."""
    trace_id: str = ""
    """The W3C trace that the request belongs to, in 32 hexadecimal digits; ``headers`` say the same."""
    answered_with: tuple[tuple[str, JsonValue], ...] = ()
    """Members that a bridge writes into the reply: what the client asked for and Tidemark has resolved before."""
    grant: Grant | None = None
    """What the caller's key allows; None if nothing but the upstream bounds it (``auth.mode: passthrough``)."""
    program: str = ""
    """The program that sends the request, as it names itself."""

    @property
    def is_restricted(self) -> bool:
        """Tell whether the caller may ask some models only."""
        return self.grant is not None and bool(self.grant.models)

    def check_model(self, model: str) -> None:
        """Refuse a model that the caller's key does not allow.

        :param model: the name that the client uses
        :raises ModelNotAllowed: the key allows others only
        """
        if self.grant is not None and not self.grant.allows(model):
            raise ModelNotAllowed(model)

    def __repr__(self) -> str:
        return f"Caller({self.fingerprint.hex()[:8]})"


NO_CREDENTIAL = Caller(b"", ())
"""The caller that sends no credential: the operator, whose admin token goes to no upstream, or a command."""


@frozen
class ConfiguredMembers:
    """What an entry's parameters make of the body of each request on the wire lane, as raw JSON by name."""

    stated: Mapping[str, bytes]
    """Parameters of chat completions."""
    extra_body: Mapping[str, bytes]
    """Members of requests of every kind."""
    left_out: frozenset[str]
    """Names of members that the upstream does not get."""


@frozen
class Route:
    """The upstream of a model, and how its requests are sent."""

    lane: Lane
    name: str
    """The model's name as the client uses it; profiles and windows are looked up by it."""
    upstream_model: str
    """The model's name as the upstream uses it."""
    provider: str
    base_url: str
    """The wire lane sends requests to this address and the dialect's path. It may be empty on the translate lane."""
    api_key: str | None = None
    """A configured key, which takes the place of the client's."""
    headers: Headers = ()
    """Configured extra headers."""
    params: Mapping[str, JsonValue] | None = None
    """Configured ``litellm_params`` for the translate lane, credentials included."""
    timeout_seconds: float = 600.0
    """The longest time until a reply begins."""
    dialects: frozenset[str] = frozenset()
    """The dialects that the upstream speaks (``model_info.dialects``); empty if nothing is configured."""
    thinking_binding: bool | None = None
    """Whether the model checks what its thinking stands behind (``model_info.thinking_binding``); None if its name
    is to say so."""
    native_compaction: bool | None = None
    """Whether the upstream writes summaries itself (``model_info.native_compaction``); None if its name or its
    address is to say so."""
    silence_seconds: float = 600.0
    """The longest time between two pieces of a reply; comments of a stream are pieces, too."""
    members: ConfiguredMembers | None = None
    """The configured request parameters, if the wire lane writes them; None if there are none."""
    takes_bytes: bool = False
    """Whether only ``transport.lane`` sends its requests through litellm. What litellm has no call for goes there as
    bytes."""

    @property
    def speaks_openai(self) -> bool:
        """Tell whether its address has OpenAI's endpoints, whichever lane sends the requests."""
        return self.lane == "wire" or (self.takes_bytes and self.provider != "anthropic")

    def __repr__(self) -> str:
        place = shown_url(self.base_url) or "litellm"
        return f"Route({self.lane} {self.name} -> {self.provider}/{self.upstream_model} at {place})"


def shown_url(base_url: str) -> str:
    """Return a base URL as others may see it: without a user, a password or the values of its query."""
    place, query, _ = base_url.partition("?")
    scheme, mark, rest = place.partition("://")
    authority, slash, path = rest.partition("/")
    return f"{scheme}{mark}{authority.rpartition('@')[2]}{slash}{path}{query}{'***' * bool(query)}"


@frozen
class Upload:
    """A request's body that is still arriving, and never in memory as a whole."""

    pieces: AsyncGenerator[bytes, None]
    """Read once, and closed if nobody reads on. It raises ``OSError`` if the body broke off."""
    length: int | None = None
    """In bytes; None if the client did not say it. The body then goes out in chunks (RFC 9112, section 7.1)."""
    encoding: bytes = b""
    """The body's ``Content-Encoding``, which is passed on with it."""


@frozen
class TextRequest:
    """A request for one short text, not streamed: what a summarizer sends."""

    messages: Sequence[Mapping[str, JsonValue]]
    max_tokens: int
    timeout_seconds: float
    cached_prefix: CachedPrefix | None = None
    """The beginning of a conversation, which goes before ``messages`` byte for byte."""
    conversation: str = ""
    """The conversation that the text is for, and is billed to; empty for none."""
    model: str = ""
    """That conversation's model, by the client's name."""


class UpstreamReply(Protocol):
    """An upstream's reply whose status and headers have arrived, and whose body is still to be read."""

    status: int
    headers: Headers
    """The headers to forward: without those for one connection only."""

    def body(self) -> AsyncIterator[bytes]:
        """Yield the body's bytes as they arrive.

        :raises UpstreamBroken: the connection ended before the body did
        :raises UpstreamStalled: nothing of it came for ``silence_seconds`` of its route
        """
        ...

    async def close(self) -> None:
        """Cancel the rest of the upstream call; calling it again changes nothing."""
        ...


def members_left_out(reply: UpstreamReply) -> Sequence[str]:
    """Return the members of a request that its bridge to another dialect left out; only bridged replies have any."""
    names: Sequence[str] = getattr(reply, "left_out", ())
    return names


class Upstream(Protocol):
    """Sends requests to providers; litellm decides which address and format each needs."""

    async def resolve(self, model: str, *, by_operator: bool = False) -> Route:
        """Find the route of a model's requests.

        :param by_operator: the configuration names the model, as a summarizer's; else a client does
        :raises ModelNotFound: no upstream serves it; the message names what is configured
        """
        ...

    async def send(self, route: Route, body: bytes, caller: Caller, *, dialect: Dialect, stream: bool) -> UpstreamReply:
        """Send a model request, its model already the upstream's, and wait for status and headers.

        :param dialect: the format of the body and of the reply
        :raises UpstreamUnreachable, UpstreamTimedOut: there was no answer
        :raises DialectNotServed: the model's provider does not speak this dialect
        """
        ...

    def sole_route(self, caller: Caller | None = None) -> Route | None:
        """Return the route of requests that name no model: to the only upstream; None if there are none or more.

        :param caller: if nothing is configured, a key of OpenAI's own form leads to OpenAI
        """
        ...

    async def forward(
        self, route: Route, method: str, path: str, body: bytes | Upload, caller: Caller
    ) -> UpstreamReply:
        """Send a request that Tidemark does not understand, and wait for status and headers.

        An ``Upload`` is sent while it arrives, and never a second time.

        :param path: below the upstream's base URL, with its query: ``/embeddings``
        :raises UpstreamUnreachable, UpstreamTimedOut: there was no answer
        :raises DialectNotServed: the model's provider is reached through litellm, which carries no unknown request
        """
        ...

    def has_credential(self, route: Route) -> bool:
        """Return whether calls go with a credential of the configuration, which all clients share."""
        ...

    async def needs_callers_key(self, route: Route) -> bool:
        """Return whether a call without a caller's key would have no credential that the upstream wants.

        Nobody knows whether the server of an entry wants a key: for one that wants none, the configuration has any key.
        """
        ...

    def keeps_responses(self, route: Route, caller: Caller) -> bool | None:
        """Return whether a route's upstream keeps a caller's responses, so that requests can go on from their ids.

        None if nobody knows beforehand.
        """
        ...

    def writes_summaries(self, route: Route, dialect: str, caller: Caller) -> bool:
        """Return whether a route's upstream is known to write summaries itself, when it is asked in a dialect.

        :param dialect: its name
        """
        ...

    def moves_summaries(self, route: Route, dialect: str, caller: Caller) -> bool:
        """Return whether a request that was just sent had its summary in the user's turn, as its server wants it.

        :param dialect: its name; in that of the Messages API every summary has this place
        """
        ...

    def mark_format(self, route: Route, dialect: str, caller: Caller, policy: MarkPolicy) -> MarkFormat | None:
        """Return the cache marks that a route's upstream takes in a dialect's requests; None if it may refuse them.

        :param policy: ``on`` if the address need not be the provider's own
        """
        ...

    async def complete(self, route: Route, request: TextRequest, caller: Caller) -> str:
        """Return one short text for a summarizer; one that the provider cut off ends with ``GAP``.

        :raises UpstreamError: there was no answer
        :raises SummaryRejected: it holds no text: tool calls or a refusal in its place, or nothing
        """
        ...


class ModelCatalog(Protocol):
    """Knows the windows and policies of models."""

    async def profile(self, route: Route, caller: Caller) -> ModelProfile:
        """Return a model's window and policy, by the sources of docs/configuration.md.

        It never fails, because the last source is a default.
        """
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
        """Learn a model's window from an upstream's error.

        :param sent_tokens: the local count of the request; the upstream may count more
        :param factor: the upstream's tokens for each local one, as far as known
        :param asked_tokens: the reply length that the request asks for
        :returns: the profile for the next attempt, with a smaller window or the whole reply reserved; None when the
            error has nothing to do with the context's length
        """
        ...


class Authenticator(Protocol):
    """Turns the credentials of a request into a caller.

    Every endpoint that acts for a client asks it. It does no I/O: chat requests ask it on the event loop, and each
    waits for it.
    """

    def caller(self, headers: Iterable[tuple[bytes, bytes]]) -> Caller:
        """Return the caller of a request.

        Two requests with the same credentials have the same fingerprint, in every process (promise 8).

        :param headers: the request's header lines, as they came
        :raises NotAuthenticated, Forbidden: the credentials are not accepted
        """
        ...

    def check_query(self, query: bytes) -> None:
        """Refuse a query with a credential that no upstream may get. Endpoints need not ask: the dispatcher does.

        :raises NotAuthenticated: it has one
        """
        ...
