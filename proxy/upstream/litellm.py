"""litellm's door: which provider serves a model, under which URL and in which lane.

Second half of resolving, and the composition of both lanes into the one ``Upstream``. litellm takes 4 to 8 s
of CPU to import and some 200 MB, so it is imported in a thread, once, and only for what ``model_list``,
``TIDEMARK_UPSTREAM`` and litellm's data file do not answer by themselves.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Protocol

from proxy.core.bounded import remember
from proxy.core.conversation.messages import JsonValue, LivePrefix
from proxy.core.errors import ModelNotFound, UpstreamError
from proxy.core.ports import Caller, Lane, Route, UpstreamReply
from proxy.upstream import providers
from proxy.upstream.fields import CONFIGURED_FOR_LITELLM
from proxy.upstream.routes import Destination, find, read_entries, served_at
from proxy.upstream.translate import TranslateLane
from proxy.upstream.wire import WireLane

REMEMBERED = 1024
"""Resolved names that are kept; clients choose names, so there must be a bound."""
NAMED_IN_ERRORS = 20
SERVER_LOGGERS = ("asyncio", "uvicorn", "uvicorn.access", "uvicorn.asgi", "uvicorn.error")
LONGEST_NAME = 256
"""Characters of a model's name; Hugging Face allows 96, and what is remembered must stay small."""


class ProviderData(Protocol):
    """litellm's data file, read without litellm (``modeldata.py``)."""

    async def provider(self, model: str) -> str | None:
        """The provider of a model that the file lists."""
        ...


class LiteLLMUpstream:
    """``Upstream``: resolves in the order ``model_list``, ``upstream_base_url``, litellm; sends by lane.

    :param model_list: LiteLLM's own syntax
    :param upstream_base_url: ``TIDEMARK_UPSTREAM``; serves every model that ``model_list`` does not name
    :param wire: the pooled client, when others use it too
    :param data: spares the import for models that litellm's data file gives to OpenAI
    :param lanes: lane by glob on the model's name, for entries that state none
    """

    def __init__(
        self,
        model_list: Iterable[Mapping[str, JsonValue]] = (),
        upstream_base_url: str | None = None,
        *,
        wire: WireLane | None = None,
        data: ProviderData | None = None,
        lanes: Mapping[str, str] | None = None,
    ) -> None:
        self.upstream_base_url = upstream_base_url.rstrip("/") if upstream_base_url else None
        entries = read_entries(model_list, lanes)
        self.entries = tuple(served_at(entry, self.upstream_base_url) for entry in entries)
        self.wire = wire or WireLane()
        self._translate = TranslateLane(_completion)
        self._data = data
        self._resolved: dict[str, Route] = {}

    def warm(self) -> None:
        """Start importing litellm in the background, unless everything that is configured does without it."""
        configured = [find(self.entries, entry.name) for entry in self.entries]
        by_name_alone = not configured and not self.upstream_base_url
        if by_name_alone or any(entry and not _is_plain(entry) for entry in configured):
            load()

    async def resolve(self, model: str) -> Route:
        """Where requests for ``model`` go.

        :raises ModelNotFound: nobody serves it; the message names what is configured
        """
        if len(model) > LONGEST_NAME:
            raise self._unknown(model, f"longer than {LONGEST_NAME} characters")
        if (known := self._resolved.pop(model, None)) is not None:
            self._resolved[model] = known  # the newest now
            return known
        route = await self._find(model)
        remember(self._resolved, model, route, most=REMEMBERED)
        return route

    async def send(self, route: Route, body: bytes, caller: Caller, *, stream: bool) -> UpstreamReply:
        """Send a chat request by its lane and wait for status and headers.

        :raises UpstreamUnreachable, UpstreamTimedOut: there was no answer
        """
        if route.lane == "wire":
            return await self.wire.send(route, body, caller)
        return await self._translate.send(route, body, caller, stream=stream)

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
        """One short text for a summarizer, not streamed.

        :param live: what goes before ``messages``, byte by byte
        :raises UpstreamError: there was no answer
        :raises SummaryRejected: it holds no text: tool calls or a refusal in its place, or nothing
        """
        lane = self.wire if route.lane == "wire" else self._translate
        return await lane.complete(
            route, messages, caller, max_tokens=max_tokens, timeout_seconds=timeout_seconds, live=live
        )

    async def aclose(self) -> None:
        """Close the pooled connections."""
        await self.wire.aclose()

    async def _find(self, model: str) -> Route:
        configured = find(self.entries, model)
        if configured is not None:
            return await self._configured(model, configured)
        if self.upstream_base_url:
            base = self.upstream_base_url
            return Route("wire", model, model, "openai", base, params={"api_base": base})
        return await self._by_name(model)

    async def _configured(self, name: str, entry: Destination) -> Route:
        known = _without_litellm(entry)
        try:
            model, provider, base = known or await _ask(entry.model, entry.params)
        except LookupError as error:
            raise self._unknown(name, f"litellm knows no provider for {entry.model!r}") from error
        lane = await _lane_of(entry, provider, base)
        if lane == "wire" and base is None:
            raise self._unknown(name, f"{provider} needs litellm_params.api_base")
        return Route(
            lane,
            name,
            model,
            provider,
            (base or "").rstrip("/"),
            entry.api_key,
            entry.headers,
            entry.params,
            entry.timeout_seconds,
        )

    async def _by_name(self, name: str) -> Route:
        """Zero configuration: the name alone, and the caller's own credential."""
        prefix, _, rest = name.partition("/")
        if prefix == "openai" and rest:
            return Route("wire", name, rest, "openai", providers.OPENAI_BASE)
        if self._data is not None and await self._data.provider(name) == "openai":
            return Route("wire", name, name, "openai", providers.OPENAI_BASE)
        if prefix in providers.LOGINS:
            raise self._unknown(name, f"{prefix} logs in on the server and needs an entry in model_list")
        family = providers.family_of(name)
        try:
            model, provider, base = await _ask(name, {})
        except LookupError as error:
            if family is None:
                raise self._unknown(name) from error
            model, provider, base = name, family, providers.DEFAULT_BASES.get(family)
        if family == "gemini" and provider == "vertex_ai":  # a caller has a Gemini key; vertex takes the server's
            provider, base = "gemini", None
        lane: Lane = "wire" if base and await _speaks_wire(provider) else "translate"
        if lane == "translate" and provider not in providers.OPEN_TO_ANY_NAME:
            raise self._unknown(name, f"{provider} needs an entry in model_list with its address or credentials")
        return Route(lane, name, model, provider, (base or "").rstrip("/"))

    def _unknown(self, name: str, reason: str = "") -> ModelNotFound:
        names = [entry.name for entry in self.entries]
        listed = ", ".join(names[:NAMED_IN_ERRORS]) + (", ..." if len(names) > NAMED_IN_ERRORS else "")
        return ModelNotFound(
            f"No upstream is known for model {name[:200]!r}{f' ({reason})' if reason else ''}. "
            f"Configured: {listed or 'no models'}. Add it to model_list, set TIDEMARK_UPSTREAM to an "
            "OpenAI-compatible server, or name the provider too, as in openai/gpt-4o or "
            "anthropic/claude-sonnet-4-5."
        )


def _without_litellm(entry: Destination) -> tuple[str, str, str | None] | None:
    """Bare model, provider and base URL, where the entry itself says enough."""
    provider = entry.provider
    base = entry.base_url or (providers.OPENAI_BASE if provider == "openai" else None)
    if provider in providers.WIRE_WITHOUT_LITELLM and base is not None:
        return entry.bare_model, provider, base
    return None


def _is_plain(entry: Destination) -> bool:
    """Whether an entry's requests go over the wire lane without litellm ever being asked."""
    translated = entry.lane == "translate" or (entry.lane == "auto" and CONFIGURED_FOR_LITELLM & entry.params.keys())
    return _without_litellm(entry) is not None and not translated


async def _lane_of(entry: Destination, provider: str, base: str | None) -> Lane:
    """The entry's own lane, or ``auto``: bytes, where nothing has to be translated or put in."""
    if entry.lane != "auto":
        return entry.lane
    if base is None or CONFIGURED_FOR_LITELLM & entry.params.keys():
        return "translate"
    return "wire" if await _speaks_wire(provider) else "translate"


async def _speaks_wire(provider: str) -> bool:
    if provider in providers.WIRE_WITHOUT_LITELLM | providers.WIRE_BESIDES:
        return True
    if provider in providers.NOT_AS_THEY_STAND:
        return False
    return provider in (await _module()).openai_compatible_providers


async def _ask(model: str, params: Mapping[str, JsonValue]) -> tuple[str, str, str | None]:
    """The bare model, its provider and its base URL, as litellm has them.

    Asked in a thread, for some providers read files. Its third answer, a key from the server's environment,
    is left alone.

    :raises LookupError: litellm knows no provider for the model
    """
    module = await _module()
    base = params.get("api_base") or params.get("base_url")
    try:
        bare, provider, _key, found = await asyncio.to_thread(
            module.get_llm_provider,
            model=model,
            custom_llm_provider=params.get("custom_llm_provider"),
            api_base=base,
        )
    except module.exceptions.BadRequestError as error:
        raise LookupError(model) from error
    own = providers.DEFAULT_BASES.get(provider)
    return bare, provider, str(base) if base else own or found


async def _completion(**fields: Any) -> Any:
    """``litellm.acompletion``, once it is imported."""
    return await (await _module()).acompletion(**fields)


_lock = threading.Lock()
_loading: Future[Any] | None = None


def load() -> Future[Any]:
    """litellm, as soon as it is imported; the import is started by the first who asks.

    In a daemon thread, so that a process which ends meanwhile need not wait for it.
    """
    global _loading  # noqa: PLW0603  an import is global to the process, too
    with _lock:
        if _loading is None:
            _loading = Future()
            _loading.set_running_or_notify_cancel()
            threading.Thread(target=_import, args=(_loading,), name="import-litellm", daemon=True).start()
    return _loading


async def _module() -> Any:
    try:
        return await asyncio.shield(asyncio.wrap_future(load()))
    except ImportError as error:
        raise UpstreamError("litellm cannot be imported; see the log.", internal=repr(error)) from error


@contextmanager
def _server_logs_left_alone() -> Iterator[None]:
    """Keep litellm's filters off uvicorn's loggers.

    It hangs them there as soon as its import begins, and they need the end of it: whatever the server logs
    meanwhile would fail, its shutdown too. Our own logging masks keys in every line already.
    """
    loggers = [logging.getLogger(name) for name in SERVER_LOGGERS]
    for logger in loggers:
        setattr(logger, "addFilter", lambda _: None)  # noqa: B010 - mypy refuses to shadow a method in the open
    try:
        yield
    finally:
        for logger in loggers:
            del logger.addFilter  # the class's own is there again


def _import(loading: Future[Any]) -> None:
    try:
        # Without the first, the import asks the network for a newer price list; without the second, it puts
        # the working folder's .env into this process's environment.
        os.environ.setdefault("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        os.environ.setdefault("LITELLM_MODE", "PRODUCTION")
        with warnings.catch_warnings(), _server_logs_left_alone():
            warnings.simplefilter("ignore")  # pydantic's remarks on litellm's own models
            import litellm

            # Types that litellm builds at first use, with remarks of the same kind.
            litellm.ModelResponse()
            litellm.ModelResponseStream()
        litellm.suppress_debug_info = True  # or it prints advertisements to stdout
        litellm.disable_streaming_logging = True
        # litellm's aiohttp transport leaves sessions open at exit and does not know SOCKS proxies; httpx is
        # what its exception mapping was written for, and speaks to a respx in tests.
        litellm.disable_aiohttp_transport = True
        # Its errors reach us as exceptions; its log lines would quote request contents.
        logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
        loading.set_result(litellm)
    except BaseException as error:  # noqa: BLE001  whoever waits must hear of it
        loading.set_exception(error if isinstance(error, ImportError) else ImportError(repr(error)))
