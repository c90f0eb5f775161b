"""Resolves a model's name to a route, and sends requests over the route's lane.

It implements the port ``Upstream`` with both lanes. It resolves in the order ``model_list``, ``TIDEMARK_UPSTREAM``,
litellm's data file, litellm itself, so that litellm is imported for few models only.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol, assert_never

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.cache_marks import MarkFormat, MarkPolicy, claudes_format, openais_format
from tidemark.core.conversation.messages import LONGEST_MODEL_NAME, JsonValue
from tidemark.core.conversation.native import writes_summaries
from tidemark.core.conversation.request import Dialect
from tidemark.core.errors import ModelNotFound, UpstreamError
from tidemark.core.http_headers import KEYS
from tidemark.core.ports import (
    NO_CREDENTIAL,
    Caller,
    ConfiguredMembers,
    Lane,
    Route,
    TextRequest,
    Upload,
    UpstreamReply,
)
from tidemark.upstream import litellm, providers
from tidemark.upstream.answers import text_of
from tidemark.upstream.bridges.asking import WriteMessage
from tidemark.upstream.chat_sending import ChatSender
from tidemark.upstream.configured_members import carried_with, members_of
from tidemark.upstream.errors import ANY_MODEL
from tidemark.upstream.fields import CONFIGURED_FOR_LITELLM
from tidemark.upstream.headers import caller_key, is_anthropic
from tidemark.upstream.other_calls import OtherCalls, is_served
from tidemark.upstream.other_dialects import (
    ANTHROPIC,
    OtherDialects,
    SpokenDialects,
    not_asked_in_chat,
    not_served,
    not_spoken,
)
from tidemark.upstream.providers import CLAUDES_CLOUDS, endpoint, is_local, is_openai, trimmed, why_closed
from tidemark.upstream.refusals import Refusal
from tidemark.upstream.routes import DIALECTS, Destination, find, read_entries, served_at, sole_destination
from tidemark.upstream.translate import TranslateLane, credential_for
from tidemark.upstream.wire import WireLane

CHAT, RESPONSES, MESSAGES = DIALECTS
MAX_CACHED_ROUTES = 1024
"""Resolved names that are cached; clients choose names, so there must be a bound."""
_UNLISTED_PREFIX = "amazon_nova"
"""Begins names that litellm knows without its data file."""
KEYLESS_SECONDS = 2.0
"""How long a server may take to show that it wants no key."""
MAX_NAMES_IN_ERRORS = 20
"""Configured models that an error's message lists."""


class ProviderData(Protocol):
    """Reads litellm's data file without litellm (``catalog/litellm_data.py``)."""

    async def provider(self, model: str) -> str | None:
        """Return the provider of a model that the file lists."""
        ...

    async def names(self, model: str) -> bool:
        """Return whether the file lists a model of any kind by this name, or by a provider's name before it."""
        ...


class LiteLLMUpstream:
    """Implements ``Upstream``.

    :param model_list: LiteLLM's own syntax
    :param upstream_base_url: ``TIDEMARK_UPSTREAM``; serves every model that ``model_list`` does not name
    :param wire: the wire lane, if others use its connections too
    :param data: spares the import of litellm for models that its data file lists under OpenAI
    :param lanes: lane by glob on the model's name, for entries that state none
    :param by_litellm: ``transport.lane: litellm``; an entry's own ``lane`` comes first
    :param write_chat: writes a message of any dialect in chat completions; without it there is no bridge
    :param clock: seconds, of any origin
    """

    def __init__(
        self,
        model_list: Iterable[Mapping[str, JsonValue]] = (),
        upstream_base_url: str | None = None,
        *,
        wire: WireLane | None = None,
        data: ProviderData | None = None,
        lanes: Mapping[str, str] | None = None,
        by_litellm: bool = False,
        write_chat: WriteMessage | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.upstream_base_url = trimmed(upstream_base_url) if upstream_base_url else None
        entries = read_entries(model_list, lanes)
        self.entries = tuple(served_at(entry, self.upstream_base_url) for entry in entries)
        self.wire = wire or WireLane()
        self._translate = TranslateLane(litellm.complete, self.wire.bounds)
        self._others = OtherCalls(litellm.call)
        self._spoken = SpokenDialects(clock)
        self._chat = ChatSender(self.wire, self._translate, clock)
        self._other_dialects = OtherDialects(self._spoken, self.wire, self._chat, write_chat, clock)
        self._data = data
        self._by_litellm = by_litellm
        self._note_completion: Callable[[Route, TextRequest, JsonValue], None] = lambda *_: None
        self._client_routes: BoundedCache[str, Route] = BoundedCache(MAX_CACHED_ROUTES)
        """Routes of names that clients sent."""
        self._operator_routes: BoundedCache[str, Route] = BoundedCache(MAX_CACHED_ROUTES)
        """Routes of names in the configuration, which may lead where a client's name may not."""

    def warm(self) -> None:
        """Start importing litellm in the background, unless no configured model needs it."""
        configured = [find(self.entries, entry.name) for entry in self.entries]
        by_name_alone = not configured and not self.upstream_base_url
        if by_name_alone or self._by_litellm or any(entry and not entry.is_plain for entry in configured):
            litellm.load()

    async def resolve(self, model: str, *, by_operator: bool = False) -> Route:
        if len(model) > LONGEST_MODEL_NAME:
            raise self._not_found(model, f"longer than {LONGEST_MODEL_NAME} characters")
        routes = self._operator_routes if by_operator else self._client_routes
        if (route := routes.get(model)) is not None:
            routes.move_to_end(model)  # the last used is the last to be dropped
            return route
        route = await self._find(model, by_operator=by_operator)
        routes.put(model, route)
        return route

    async def send(self, route: Route, body: bytes, caller: Caller, *, dialect: Dialect, stream: bool) -> UpstreamReply:
        """Send a model request over its lane and wait for status and headers.

        :raises UpstreamUnreachable, UpstreamTimedOut: there was no answer
        :raises DialectNotServed: litellm translates chat completions only
        :raises ModelNotAllowed: the caller's key does not allow the model; endpoints have asked before
        """
        if caller.grant is not None:
            caller.check_model(route.name)
        if route.dialects and CHAT not in route.dialects and dialect.name not in route.dialects:
            raise not_spoken(route, dialect)
        if route.takes_bytes and route.dialects and CHAT not in route.dialects:
            raise not_asked_in_chat(route)
        if dialect.name != CHAT:
            return await self._other_dialects.send(route, body, caller, dialect=dialect, stream=stream)
        return await self._chat.send(route, body, caller, stream=stream, path=dialect.path + caller.query)

    def sole_route(self, caller: Caller | None = None) -> Route | None:
        """Return the route to the only upstream, for requests that name no model.

        It is ``TIDEMARK_UPSTREAM``, else the one address that the entries of ``model_list`` on the wire lane share.
        With neither, it is OpenAI for a key of OpenAI's own form, as for the list of models.
        """
        if not self.upstream_base_url and not self.entries and caller is not None:
            is_openais = (caller_key(caller) or "").startswith(providers.OPENAI_KEYS)
            return Route("wire", ANY_MODEL, ANY_MODEL, "openai", providers.OPENAI_BASE) if is_openais else None
        if self.upstream_base_url:
            base = self.upstream_base_url
            return Route("wire", ANY_MODEL, ANY_MODEL, "openai", base, params={"api_base": base})
        destination = sole_destination(self.entries)
        if destination is None or destination.without_litellm is None:
            return None
        _, provider, address = destination.without_litellm
        return _route("wire", (ANY_MODEL, ANY_MODEL), provider, address, destination)

    async def forward(
        self, route: Route, method: str, path: str, body: bytes | Upload, caller: Caller
    ) -> UpstreamReply:
        """Send a request that Tidemark does not understand, and wait for status and headers.

        :raises UpstreamUnreachable, UpstreamTimedOut: there was no answer
        :raises DialectNotServed: litellm carries no unknown request
        :raises ModelNotAllowed: the caller's key does not allow the model, or allows some and the request names none
        """
        if caller.grant is not None:
            caller.check_model(route.name)
        carrying = self._carrying_route(route, caller)
        if route.lane != "wire" and isinstance(body, bytes) and is_served(route, method, path, alone=carrying is None):
            return await self._others.send(route, path, body, caller)
        if carrying is None:
            raise not_served(route, path)
        if carrying.members is not None and method == "POST" and isinstance(body, bytes):
            body = carried_with(body, path, carrying.members)
        return await self.wire.forward(carrying, method, path, body, caller)

    def _carrying_route(self, route: Route, caller: Caller) -> Route | None:
        """Return the route that carries bytes; None if there is only litellm."""
        if route.takes_bytes:
            route = replace(route, lane="wire" if route.speaks_openai else route.lane, dialects=frozenset())
        # Anthropic has more endpoints than that of messages
        return route if route.lane == "wire" else self._spoken.native_route(route, MESSAGES, caller)

    def has_credential(self, route: Route) -> bool:
        if not route.speaks_openai:
            return not isinstance(credential_for(route, NO_CREDENTIAL), Refusal)
        return route.api_key is not None or (bool(route.headers) and any(name in KEYS for name, _ in route.headers))

    async def needs_callers_key(self, route: Route) -> bool:
        """Return whether a call without a caller's key would have no credential that the upstream wants.

        The configuration says so. ``TIDEMARK_UPSTREAM`` has no place for that, so a server of this machine or
        network is asked for its models without a key.
        """
        if self.has_credential(route):
            return False
        if not route.speaks_openai or route.base_url != self.upstream_base_url or not is_local(route.base_url):
            return True
        try:
            url = endpoint(route.base_url, "/models")
            await self.wire.get_json(route, url, NO_CREDENTIAL, timeout_seconds=KEYLESS_SECONDS)
        except UpstreamError:
            return True
        return False

    def keeps_responses(self, route: Route, caller: Caller) -> bool | None:
        """Return whether a route's upstream keeps responses: OpenAI does, and litellm's bridges do not."""
        if self._spoken.native_route(route, RESPONSES, caller) is None:
            return False
        return True if is_openai(route.base_url) else None

    def writes_summaries(self, route: Route, dialect: str, caller: Caller) -> bool:
        """Return whether a route's upstream is known to write summaries itself, when it is asked in a dialect.

        Claude's models say it by their names, OpenAI by its address; ``model_info.native_compaction`` comes first.
        """
        if self._spoken.native_route(route, dialect, caller) is None:
            return False
        if route.native_compaction is not None:
            return route.native_compaction
        return writes_summaries(route.upstream_model) if dialect == MESSAGES else is_openai(route.base_url)

    def moves_summaries(self, route: Route, dialect: str, caller: Caller) -> bool:
        is_native = dialect != CHAT and self._spoken.native_route(route, dialect, caller) is not None
        is_bridged = self._chat.templates.is_taught(route, caller)  # since a native request was refused
        return (is_bridged or not is_native) and self._chat.moves_summaries(route, caller)

    def mark_format(self, route: Route, dialect: str, caller: Caller, policy: MarkPolicy) -> MarkFormat | None:
        """Return the cache marks that a route's upstream takes in a dialect's requests; None if it may refuse them.

        Anthropic, OpenAI and the clouds of Claude are known by provider and address. Servers that speak their formats
        may refuse the member.
        """
        native, name = self._spoken.native_route(route, dialect, caller), route.upstream_model
        if policy == "off":
            return None
        if native is None:
            is_taken = route.provider in CLAUDES_CLOUDS or (
                route.provider == ANTHROPIC and is_anthropic(route.base_url)
            )
            is_taken = dialect != RESPONSES and route.lane == "translate" and (is_taken or policy == "on")
            return claudes_format(name) if is_taken else None
        if dialect == MESSAGES:
            return claudes_format(name) if is_anthropic(native.base_url) or policy == "on" else None
        if policy == "on":  # gateways take Anthropic's marks in chat completions
            return openais_format(name) or (claudes_format(name) if dialect == CHAT else None)
        return openais_format(name) if is_openai(native.base_url) else None

    def note_completions(self, note: Callable[[Route, TextRequest, JsonValue], None]) -> None:
        """Give ``note`` each chat completion that ``complete`` takes its text from, to measure its usage."""
        self._note_completion = note

    async def complete(self, route: Route, request: TextRequest, caller: Caller) -> str:
        lane = self.wire if route.lane == "wire" else self._translate
        answer = await lane.complete(route, request, caller)
        self._note_completion(route, request, answer)
        return text_of(answer, route)

    async def aclose(self) -> None:
        await self.wire.aclose()
        await litellm.aclose()

    async def _find(self, model: str, *, by_operator: bool) -> Route:
        destination = find(self.entries, model)
        if destination is not None:
            route = await self._route_of(model, destination)
            return self._switched(route) if destination.lane == "auto" else route
        return self._switched(await self._find_unlisted(model, by_operator=by_operator))

    def _switched(self, route: Route) -> Route:
        """Return a route that would get the client's bytes as one through litellm, if ``transport.lane`` says so."""
        is_anthropics = route.provider == "anthropic" and route.lane == "translate"
        if not self._by_litellm or not (route.lane == "wire" or (is_anthropics and route.dialects != {CHAT})):
            return route
        dialects = frozenset({CHAT}) if route.provider == "anthropic" else route.dialects
        return replace(route, lane="translate", dialects=dialects, takes_bytes=True)

    async def _find_unlisted(self, model: str, *, by_operator: bool) -> Route:
        """Return the route of a model that no entry of ``model_list`` covers."""
        if self.upstream_base_url:
            base = self.upstream_base_url
            return Route("wire", model, model, "openai", base, params={"api_base": base})
        if self.entries and not by_operator:  # clients reach no model beside a list
            raise self._not_found(model)
        return await self._by_name(model, by_operator=by_operator)

    async def _route_of(self, name: str, entry: Destination) -> Route:
        """Return the route to what an entry of ``model_list`` says about a model."""
        by_client = entry.chosen_by_client and entry.base_url is None
        if by_client and entry.provider in providers.LOGINS:
            raise self._not_found(name, why_closed(name, entry.provider, "translate", None))
        try:
            model, provider, base = entry.without_litellm or await litellm.find_provider(entry.model, entry.params)
        except LookupError as error:
            raise self._not_found(name, f"litellm knows no provider for {entry.model!r}") from error
        lane = await _lane_of(entry, provider, base)
        if lane == "wire" and base is None:
            raise self._not_found(name, f"{provider} needs litellm_params.api_base")
        if by_client and (reason := why_closed(name, provider, lane, base)):
            raise self._not_found(name, reason)
        return _route(lane, (name, model), provider, base, entry)

    async def _by_name(self, name: str, *, by_operator: bool) -> Route:
        """Return the route of a name that nothing is configured for; the caller's own credential is used."""
        prefix, separator, rest = name.partition("/")
        if prefix == "openai" and rest:
            return Route("wire", name, rest, "openai", providers.OPENAI_BASE)
        if self._data is not None and await self._data.provider(name) == "openai":
            return Route("wire", name, name, "openai", providers.OPENAI_BASE)
        if not separator and ":" not in name and await self._is_unlisted(name):
            raise self._not_found(name)
        if prefix in providers.LOGINS:
            raise self._not_found(name, why_closed(name, prefix, "translate", None))
        family = providers.family_of(name)
        try:
            model, provider, base = await litellm.find_provider(name, {})
        except LookupError as error:
            if family is None:
                raise self._not_found(name) from error
            model, provider, base = name, family, providers.DEFAULT_BASES.get(family)
        if family == "gemini" and provider == "vertex_ai":  # a caller has a Gemini key; vertex takes the server's
            provider, base = "gemini", None
        lane: Lane = "wire" if base and await _speaks_wire(provider) else "translate"
        if not by_operator and (reason := why_closed(name, provider, lane, base)):
            raise self._not_found(name, reason)
        if lane == "translate" and provider not in providers.OPEN_TO_ANY_NAME | providers.KEYLESS:
            raise self._not_found(name, f"{provider} needs an entry in model_list with its address or credentials")
        return Route(lane, name, model, provider, trimmed(base or ""))

    async def _is_unlisted(self, name: str) -> bool:
        """Return whether a bare name is nobody's, so that nobody waits for litellm's import to learn the same."""
        if self._data is None or name == ANY_MODEL or providers.family_of(name) is not None:
            return False
        return not name.startswith(_UNLISTED_PREFIX) and not await self._data.names(name)

    def _not_found(self, name: str, reason: str | None = None) -> ModelNotFound:
        """Return the error in OpenAI's words, with what is configured and how to add the model."""
        names = [entry.name for entry in self.entries]
        listing = ", ".join(names[:MAX_NAMES_IN_ERRORS]) + (", ..." if len(names) > MAX_NAMES_IN_ERRORS else "")
        remedy = (
            "Add it to model_list, where openai/* stands for every model of OpenAI, or set TIDEMARK_UPSTREAM to an "
            "OpenAI-compatible server."
            if names
            else "Add it to model_list, set TIDEMARK_UPSTREAM to an OpenAI-compatible server, or name the provider "
            "too, as in openai/gpt-4o or anthropic/claude-sonnet-4-5."
        )
        return ModelNotFound(
            f"The model {name[:200]!r} does not exist or you do not have access to it"
            f"{f' ({reason})' if reason else ''}. Configured: {listing or 'no models'}. {remedy}"
        )


def _route(lane: Lane, names: tuple[str, str], provider: str, base: str | None, entry: Destination) -> Route:
    """Return the route with everything that an entry says.

    :param names: the model's name as the client uses it, and as the upstream does
    """
    key, seconds, silence = entry.api_key, entry.timeout_seconds, entry.silence_seconds
    members = members_of(entry.params) if lane == "wire" else None
    return Route(
        lane,
        *names,
        provider,
        trimmed(base or ""),
        key,
        entry.headers,
        entry.params,
        timeout_seconds=seconds,
        silence_seconds=silence,
        dialects=entry.dialects or _in_chat_alone(provider, entry, members),
        thinking_binding=entry.thinking_binding,
        native_compaction=entry.native_compaction,
        members=members,
    )


def _in_chat_alone(provider: str, entry: Destination, members: ConfiguredMembers | None) -> frozenset[str]:
    """Return chat alone if an entry of Anthropic's goes through litellm, or has parameters of chat completions.

    ``lane: wire`` carries the client's bytes in every dialect; its parameters are written into chat requests only.
    """
    if provider == "anthropic":
        is_asked = entry.lane == "translate" or bool(CONFIGURED_FOR_LITELLM & entry.params.keys())
        return frozenset({CHAT}) if is_asked else frozenset()
    return frozenset({CHAT}) if members is not None and entry.lane == "auto" else frozenset()


async def _lane_of(entry: Destination, provider: str, base: str | None) -> Lane:
    """Return the lane that the entry states; for ``auto`` it is ``wire`` if the request needs no translation."""
    match entry.lane:
        case "wire" | "translate":
            return entry.lane
        case "auto":
            if base is None or entry.needs_litellm:
                return "translate"
            return "wire" if await _speaks_wire(provider) else "translate"
        case _:
            assert_never(entry.lane)


async def _speaks_wire(provider: str) -> bool:
    """Tell whether a provider takes OpenAI's format as it is."""
    if provider in providers.WIRE_WITHOUT_LITELLM | providers.WIRE_UNLISTED:
        return True
    if provider in providers.REWRITTEN_BY_LITELLM:
        return False
    return provider in await litellm.openai_compatible_providers()
