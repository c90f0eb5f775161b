"""Where a model's window is found: the file, the running server, our own data, litellm's.

Below the catalog, which asks at every request and puts over it what a person set and what an overflow taught. What no
server was asked for follows from file and data alone, and is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache

from proxy.catalog.litellm_data import Known, LiteLLMModelData, known_from
from proxy.catalog.probe import Probe
from proxy.core.bounded import remember
from proxy.core.conversation.messages import JsonValue
from proxy.core.planning.budget import ModelWindow
from proxy.core.ports import Caller, Route
from proxy.upstream.wire import is_openai

REMEMBERED = 1024
"""Models whose data are kept; clients choose names, so there must be a bound."""
NOTHING_KNOWN = Known()

ModelInfo = Mapping[str, JsonValue]
"""``max_input_tokens``, ``max_output_tokens``, ``context_window``: LiteLLM's ``model_info`` words, in
tokens."""


class Windows:
    """Windows by the file, our data and the servers. State: what was found before, which saves time only.

    :param overrides: what a person wrote, by the client's name or a glob of it; looked at with every request
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
        self._read: dict[str, tuple[ModelInfo, Known]] = {}
        """What a person wrote, by the client's name, and what was read from it."""
        self._settled: dict[str, tuple[tuple[Route, Known], ModelWindow]] = {}
        """The windows that no server was asked for, by the client's name, each with what it follows from."""
        self._looked_up: dict[tuple[str, str, str], Known | None] = {}

    async def found(self, route: Route, caller: Caller) -> ModelWindow:
        """The window by the file, our data and the servers."""
        manual, settled = self._manual(route.name), self._settled.get(route.name)
        if settled is not None and settled[0] == (route, manual):
            return settled[1]
        if (window := await self._unasked(route, manual)) is not None:
            remember(self._settled, route.name, ((route, manual), window), most=REMEMBERED)
            return window
        known = await self._ask(route, caller)
        if known is None and _may_be_an_alias(route):
            known = await self._lookup(route)
        return ModelWindow(max_output_tokens=manual.max_output_tokens) if known is None else _of_both(known, manual)

    async def _unasked(self, route: Route, manual: Known) -> ModelWindow | None:
        """The window where no server is asked for it: by the file, else by our data."""
        if manual.has_window:
            return _model_window(manual.answering(await self.output(route)), manual=True)
        known = None if _may_be_an_alias(route) else await self._lookup(route)
        return None if known is None else _of_both(known, manual)

    async def output(self, route: Route) -> int | None:
        """The longest reply, where no server is asked for it."""
        manual = self._manual(route.name)
        if manual.max_output_tokens is not None:
            return manual.max_output_tokens
        looked_up = await self._lookup(route)
        return looked_up.max_output_tokens if looked_up else None

    def _manual(self, name: str) -> Known:
        if not self._overrides:
            return NOTHING_KNOWN
        info = self._overrides.get(name)
        if info is None:
            globs = sorted((glob for glob in self._overrides if fnmatchcase(name, glob)), key=len)
            info = self._overrides[globs[-1]] if globs else {}
        read = self._read.get(name)
        if read is None or read[0] != info:
            read = (dict(info), known_from(info))
            remember(self._read, name, read, most=REMEMBERED)
        return read[1]

    async def _lookup(self, route: Route) -> Known | None:
        """Our own data, then litellm's."""
        key = (route.name, route.provider, route.upstream_model)
        if key not in self._looked_up:
            names = _names_of(route)
            known = self._in_shipped(names) or await self._data.lookup(names)
            remember(self._looked_up, key, known, most=REMEMBERED)
            return known
        return self._looked_up[key]

    def _in_shipped(self, names: tuple[str, ...]) -> Known | None:
        lower = [name.lower() for name in names]
        for name in dict.fromkeys([*lower, *(name.rpartition("/")[2] for name in lower)]):
            globs = sorted((glob for glob in self._shipped if fnmatchcase(name, glob)), key=len, reverse=True)
            for glob in globs:
                known = known_from(self._shipped[glob])
                if known.has_window:
                    return known
        return None

    async def _ask(self, route: Route, caller: Caller) -> Known | None:
        if route.lane != "wire" or is_openai(route.base_url):  # OpenAI's list tells no windows
            return None
        window = await self._probe.window(route, caller)
        return None if window is None else Known(context_window=window)


@lru_cache(maxsize=REMEMBERED)
def _model_window(known: Known, *, manual: bool = False) -> ModelWindow:
    most = known.max_input_tokens or known.context_window
    if most is None:
        raise AssertionError(known)  # only asked of sources that have a window
    return ModelWindow(most, known.max_output_tokens, known.context_window, "manual" if manual else "api")


def _of_both(known: Known, manual: Known) -> ModelWindow:
    """A window that a person wrote no more of than the reply's length."""
    return _model_window(known.answering(manual.max_output_tokens or known.max_output_tokens))


def _may_be_an_alias(route: Route) -> bool:
    """Whether a person gave the server's address: there, a name such as gpt-4o may be served by anything."""
    return bool(route.params and (route.params.get("api_base") or route.params.get("base_url")))


def _names_of(route: Route) -> tuple[str, ...]:
    """The names to look a model up by; the client's own comes last, for an alias can mean anything."""
    stated = (route.params or {}).get("base_model")
    upstream = (f"{route.provider}/{route.upstream_model}", route.upstream_model, route.name)
    return (stated, *upstream) if isinstance(stated, str) else upstream
