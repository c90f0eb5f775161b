"""Finds a model's window in the configuration, the running server, our own data or litellm's.

The catalog asks here at every request, and applies the registry's settings and learned windows to the answer. A window
that needed no server depends on configuration and data alone, so it is cached.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

from tidemark.catalog.litellm_data import LiteLLMModelData, WindowData, read_window_data
from tidemark.catalog.loaded_models import as_tokens
from tidemark.catalog.probe import Metadata, Probe
from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.planning.budget import ModelWindow
from tidemark.core.ports import Caller, Route
from tidemark.upstream.headers import beta_values
from tidemark.upstream.providers import KEYLESS, is_openai

REMEMBERED = 1024
"""The most models whose data are cached. Clients choose the names, so the caches need a bound."""
NO_WINDOW_DATA = WindowData()

_Inputs = tuple[Route, WindowData, Metadata]
ModelInfo = Mapping[str, JsonValue]
"""Litellm's ``model_info``: ``max_input_tokens``, ``max_output_tokens`` and ``context_window``, in tokens."""


class Windows:
    """Finds windows; its only state is caches.

    :param overrides: ``model_info`` of the configuration, by the client's name or a glob of it; read at every request
    :param shipped: ``config/models.yaml``, by glob of the upstream's or the client's name
    """

    def __init__(
        self,
        *,
        overrides: Mapping[str, ModelInfo],
        shipped: Mapping[str, ModelInfo],
        data: LiteLLMModelData,
        probe: Probe,
    ) -> None:
        self._overrides = overrides
        self._shipped = shipped
        self._data = data
        self._probe = probe
        self._read: BoundedCache[str, tuple[ModelInfo, WindowData]] = BoundedCache(REMEMBERED)
        """The configured ``model_info`` and the data read from it, by the client's name."""
        self._settled: BoundedCache[str, tuple[tuple[Route, WindowData], ModelWindow]] = BoundedCache(REMEMBERED)
        """The windows that needed no server, by the client's name, each with its inputs."""
        self._reported: BoundedCache[str, tuple[tuple[Route, WindowData, Metadata], ModelWindow]] = BoundedCache(
            REMEMBERED
        )
        """The windows of models whose server was asked, by the client's name, each with its inputs."""
        self._looked_up: BoundedCache[tuple[str, str, str], WindowData | None] = BoundedCache(REMEMBERED)
        self._betas: BoundedCache[str, tuple[tuple[str, int], ...]] = BoundedCache(REMEMBERED)
        """The windows that Anthropic's beta headers select, by the client's name."""

    async def find(self, route: Route, caller: Caller) -> ModelWindow:
        manual, settled = self._manual(route.name), self._settled.get(route.name)
        if settled is not None and settled[0] == (route, manual):
            return settled[1]
        metadata, reported = self._probe.cached_metadata(route), self._reported.get(route.name)
        if metadata is not None and reported is not None and reported[0] == (route, manual, metadata):
            return reported[1]
        if (window := await self._without_asking(route, manual)) is not None:
            self._settled.put(route.name, ((route, manual), window))
            return window
        window = await self._asked_window(route, manual, caller)
        if (metadata := self._probe.cached_metadata(route)) is not None:
            self._reported.put(route.name, ((route, manual, metadata), window))
        return window

    async def _asked_window(self, route: Route, manual: WindowData, caller: Caller) -> ModelWindow:
        """Return the window that the server reports, else that of the data, else the default."""
        window_data = await self._ask(route, caller)
        if _may_be_an_alias(route):
            model_data = await self._lookup(route) or NO_WINDOW_DATA
            if model_data.beta_windows and not manual.beta_windows and _is_served_as(window_data, model_data):
                self._betas.put(route.name, model_data.beta_windows)
            if window_data is None and model_data.has_window:
                window_data = model_data
        if window_data is None:
            return ModelWindow(max_output_tokens=manual.max_output_tokens)
        return _of_both(window_data, manual)

    def beta(self, route: Route, caller: Caller) -> tuple[str, int] | None:
        """Return the request's beta header that selects another window, and that window in tokens (S3-B4).

        Call it after ``find``. Through litellm the header goes to Anthropic alone.
        """
        betas = self._betas.get(route.name)
        if not betas or not (route.lane == "wire" or route.provider == "anthropic"):
            return None
        headers = beta_values(route, caller)
        return next((beta for beta in betas if beta[0] in headers), None)

    async def _without_asking(self, route: Route, manual: WindowData) -> ModelWindow | None:
        """Return the window from the configuration or the data; None if a server must be asked."""
        own = manual.beta_windows
        if not own and not manual.has_window and not _may_be_an_alias(route):
            own = (await self._lookup(route) or NO_WINDOW_DATA).beta_windows
        if own:
            self._betas.put(route.name, own)
        else:
            self._betas.pop(route.name, None)
        if manual.has_window:
            return _model_window(manual.with_max_output(await self.output(route)), manual=True)
        window_data = None if _may_be_an_alias(route) else await self._lookup(route)
        return None if window_data is None else _of_both(window_data, manual)

    def is_loading(self, route: Route) -> bool:
        """Return whether a window will be known as soon as its server has loaded the model."""
        return self._probe.is_loading(route)

    async def output(self, route: Route) -> int | None:
        """Return the longest reply from the configuration or the data."""
        manual = self._manual(route.name)
        if manual.max_output_tokens is not None:
            return manual.max_output_tokens
        looked_up = await self._lookup(route)
        return looked_up.max_output_tokens if looked_up else None

    def _manual(self, name: str) -> WindowData:
        if not self._overrides:
            return NO_WINDOW_DATA
        info = self.stated(name)
        read = self._read.get(name)
        if read is None or read[0] != info:
            read = (dict(info), read_window_data(info))
            self._read.put(name, read)
        return read[1]

    def stated(self, name: str) -> ModelInfo:
        """Return the configured ``model_info`` of a model, by the client's name; empty if there is none."""
        info = self._overrides.get(name)
        if info is None:
            globs = sorted((glob for glob in self._overrides if fnmatchcase(name, glob)), key=len)
            info = self._overrides[globs[-1]] if globs else {}
        return info

    async def _lookup(self, route: Route) -> WindowData | None:
        """Look a model up in our own data, then in litellm's."""
        key = (route.name, route.provider, route.upstream_model)
        if key not in self._looked_up:
            names = _names_of(route)
            window_data = self._in_shipped(names) or await self._data.lookup(names)
            self._looked_up.put(key, window_data)
            return window_data
        return self._looked_up[key]

    def _in_shipped(self, names: tuple[str, ...]) -> WindowData | None:
        lower = [name.lower() for name in names]
        for name in dict.fromkeys([*lower, *(name.rpartition("/")[2] for name in lower)]):
            globs = sorted((glob for glob in self._shipped if fnmatchcase(name, glob)), key=len, reverse=True)
            for glob in globs:
                window_data = read_window_data(self._shipped[glob])
                if window_data.has_window:
                    return window_data
        return None

    async def _ask(self, route: Route, caller: Caller) -> WindowData | None:
        if not (route.speaks_openai or _is_ollama(route)) or is_openai(route.base_url):
            return None  # OpenAI's list contains no windows
        stated = (route.params or {}).get("num_ctx") if _is_ollama(route) else None
        window = as_tokens(stated) or await self._probe.window(route, caller)
        return None if window is None else WindowData(context_window=window)


@lru_cache(maxsize=REMEMBERED)
def _model_window(window_data: WindowData, *, manual: bool = False) -> ModelWindow:
    most = window_data.max_input_tokens or window_data.context_window
    if most is None:
        raise AssertionError(window_data)  # callers pass only data that has a window
    return ModelWindow(most, window_data.max_output_tokens, window_data.context_window, "manual" if manual else "api")


def _of_both(window_data: WindowData, manual: WindowData) -> ModelWindow:
    """Return a window from data, with the configured longest reply if there is one."""
    return _model_window(window_data.with_max_output(manual.max_output_tokens or window_data.max_output_tokens))


def _is_served_as(window_data: WindowData | None, model_data: WindowData) -> bool:
    """Return whether a server may be the model that our data describe: it reports no smaller window than theirs."""
    if window_data is None:
        return True
    served, own = window_data.context_window or 0, model_data.max_input_tokens or model_data.context_window or 0
    return served >= own


def _may_be_an_alias(route: Route) -> bool:
    """Return whether a server decides what a name means: one that the configuration names, or an Ollama."""
    params = route.params or {}
    return bool(params.get("api_base") or params.get("base_url")) or _is_ollama(route)


def _is_ollama(route: Route) -> bool:
    """Return whether litellm sends the requests to an Ollama, which runs a model with the context of its operator."""
    return route.provider in KEYLESS and bool(route.base_url)


def _names_of(route: Route) -> tuple[str, ...]:
    """Return the names to look a model up by. The client's own comes last, because an alias can mean anything."""
    stated = (route.params or {}).get("base_model")
    upstream = (f"{route.provider}/{route.upstream_model}", route.upstream_model, route.name)
    return (stated, *upstream) if isinstance(stated, str) else upstream
