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
from proxy.core.conversation.messages import LONGEST_MODEL_NAME, CachedPrefix, JsonValue
from proxy.core.errors import ModelNotFound, UpstreamError
from proxy.core.ports import Caller, Lane, Route, UpstreamReply
from proxy.upstream import providers
from proxy.upstream.bases import trimmed
from proxy.upstream.fields import CONFIGURED_FOR_LITELLM
from proxy.upstream.naming import why_closed
from proxy.upstream.resending import send_once
from proxy.upstream.routes import Destination, find, read_entries, served_at
from proxy.upstream.translate import TranslateLane
from proxy.upstream.wire import WireLane

REMEMBERED = 1024
"""Resolved names that are kept; clients choose names, so there must be a bound."""
NAMED_IN_ERRORS = 20
SERVER_LOGGERS = ("asyncio", "uvicorn", "uvicorn.access", "uvicorn.asgi", "uvicorn.error")


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
        self.upstream_base_url = trimmed(upstream_base_url) if upstream_base_url else None
        entries = read_entries(model_list, lanes)
        self.entries = tuple(served_at(entry, self.upstream_base_url) for entry in entries)
        self.wire = wire or WireLane()
        self._translate = TranslateLane(_completion)
        self._data = data
        self._resolved: dict[str, Route] = {}
        """What clients asked for."""
        self._named: dict[str, Route] = {}
        """What the configuration names; it may lead where a client's word does not."""

    def warm(self) -> None:
        """Start importing litellm in the background, unless everything that is configured does without it."""
        configured = [find(self.entries, entry.name) for entry in self.entries]
        by_name_alone = not configured and not self.upstream_base_url
        if by_name_alone or any(entry and not entry.is_plain for entry in configured):
            load()

    async def resolve(self, model: str, *, by_operator: bool = False) -> Route:
        """Where requests for ``model`` go.

        :param by_operator: the configuration names the model, as a summarizer's; else a client does
        :raises ModelNotFound: nobody serves it; the message names what is configured
        """
        if len(model) > LONGEST_MODEL_NAME:
            raise self._unknown(model, f"longer than {LONGEST_MODEL_NAME} characters")
        resolved = self._named if by_operator else self._resolved
        if (known := resolved.pop(model, None)) is not None:
            resolved[model] = known  # the newest now
            return known
        route = await self._find(model, by_operator=by_operator)
        remember(resolved, model, route, most=REMEMBERED)
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
        live: CachedPrefix | None = None,
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

    async def _find(self, model: str, *, by_operator: bool) -> Route:
        configured = find(self.entries, model)
        if configured is not None:
            return await self._configured(model, configured)
        if self.upstream_base_url:
            base = self.upstream_base_url
            return Route("wire", model, model, "openai", base, params={"api_base": base})
        if self.entries and not by_operator:  # a list is all that is served
            raise self._unknown(model)
        return await self._by_name(model, by_operator=by_operator)

    async def _configured(self, name: str, entry: Destination) -> Route:
        by_client = entry.chosen_by_client and entry.base_url is None
        if by_client and entry.provider in providers.LOGINS:
            raise self._unknown(name, why_closed(name, entry.provider, "translate", None))
        known = entry.without_litellm
        try:
            model, provider, base = known or await _ask(entry.model, entry.params)
        except LookupError as error:
            raise self._unknown(name, f"litellm knows no provider for {entry.model!r}") from error
        lane = await _lane_of(entry, provider, base)
        if lane == "wire" and base is None:
            raise self._unknown(name, f"{provider} needs litellm_params.api_base")
        if by_client and (reason := why_closed(name, provider, lane, base)):
            raise self._unknown(name, reason)
        return Route(
            lane,
            name,
            model,
            provider,
            trimmed(base or ""),
            entry.api_key,
            entry.headers,
            entry.params,
            entry.timeout_seconds,
            entry.silence_seconds,
        )

    async def _by_name(self, name: str, *, by_operator: bool) -> Route:
        """Zero configuration: the name alone, and the caller's own credential."""
        prefix, _, rest = name.partition("/")
        if prefix == "openai" and rest:
            return Route("wire", name, rest, "openai", providers.OPENAI_BASE)
        if self._data is not None and await self._data.provider(name) == "openai":
            return Route("wire", name, name, "openai", providers.OPENAI_BASE)
        if prefix in providers.LOGINS:
            raise self._unknown(name, why_closed(name, prefix, "translate", None))
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
        if not by_operator and (reason := why_closed(name, provider, lane, base)):
            raise self._unknown(name, reason)
        if lane == "translate" and provider not in providers.OPEN_TO_ANY_NAME | providers.KEYLESS:
            raise self._unknown(name, f"{provider} needs an entry in model_list with its address or credentials")
        return Route(lane, name, model, provider, trimmed(base or ""))

    def _unknown(self, name: str, reason: str | None = None) -> ModelNotFound:
        """The error in OpenAI's words, with what would be served and what would mend it."""
        names = [entry.name for entry in self.entries]
        listed = ", ".join(names[:NAMED_IN_ERRORS]) + (", ..." if len(names) > NAMED_IN_ERRORS else "")
        mend = (
            "Add it to model_list, where openai/* stands for every model of OpenAI, or set TIDEMARK_UPSTREAM to an "
            "OpenAI-compatible server."
            if names
            else "Add it to model_list, set TIDEMARK_UPSTREAM to an OpenAI-compatible server, or name the provider "
            "too, as in openai/gpt-4o or anthropic/claude-sonnet-4-5."
        )
        return ModelNotFound(
            f"The model {name[:200]!r} does not exist or you do not have access to it"
            f"{f' ({reason})' if reason else ''}. Configured: {listed or 'no models'}. {mend}"
        )


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
        send_once(litellm.llms.custom_httpx.http_handler.AsyncHTTPHandler)
        # Its errors reach us as exceptions; its log lines would quote request contents.
        logging.getLogger("LiteLLM").setLevel(logging.CRITICAL)
        loading.set_result(litellm)
    except BaseException as error:  # noqa: BLE001  whoever waits must hear of it
        loading.set_exception(error if isinstance(error, ImportError) else ImportError(repr(error)))
