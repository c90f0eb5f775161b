"""Asks a running server for its context window, through ``/models`` and llama.cpp's ``/props``.

The catalog uses the probe for servers whose address is configured. The server itself knows best what it was started
with. It is asked once in some minutes, with the caller's own credential, for at most two seconds. A failure means only
that this source has no window.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import UpstreamError
from tidemark.core.frozen import frozen
from tidemark.core.ports import Caller, Route
from tidemark.upstream.providers import endpoint

ANSWER_SECONDS = 2.0
"""The longest that a first request to a server waits for its metadata."""
FRESH_SECONDS = 300.0
FAILED_SECONDS = 15.0
"""How long a failure is cached, for one caller only, because its credential may be the cause."""
REMEMBERED = 256
"""The most servers and callers in the caches. Both come from outside, so the caches need a bound."""

WINDOW_FIELDS = ("max_model_len", "context_length", "context_window", "max_context_length")
"""vLLM and SGLang; OpenRouter and Together; Groq; LM Studio."""


@frozen
class Metadata:
    """The windows of a server's models, in tokens by model id."""

    windows: Mapping[str, int] = field(default_factory=dict)
    only: int | None = None
    """The window of a server with one model, which accepts any name (llama.cpp)."""

    def of(self, model: str) -> int | None:
        """Return the window of a model."""
        return self.windows.get(model, self.only)


_NEVER: tuple[float, Metadata | None] = (0.0, None)


class Probe:
    """Asks servers, and caches their answers by base URL; ``clock`` is monotonic, in seconds.

    :param get_json: ``WireLane.get_json``
    """

    def __init__(
        self, get_json: Callable[..., Awaitable[JsonValue]], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._get_json = get_json
        self._clock = clock
        self._cached: BoundedCache[str, tuple[float, Metadata]] = BoundedCache(REMEMBERED)
        self._failed: BoundedCache[tuple[str, bytes], float] = BoundedCache(REMEMBERED)
        self._asking: dict[tuple[str, bytes], asyncio.Task[Metadata | None]] = {}

    def cached_metadata(self, base_url: str) -> Metadata | None:
        """Return what a server reported, the very same value while it is fresh; None if it must be asked."""
        until, metadata = self._cached.get(base_url, _NEVER)
        return metadata if until > self._clock() else None

    async def window(self, route: Route, caller: Caller) -> int | None:
        """Return the window that a route's server reports for the model, in tokens; None if it reports none."""
        until, metadata = self._cached.get(route.base_url, _NEVER)
        if metadata is None or until <= self._clock():
            metadata = await self._ask(route, caller) or metadata
        return metadata.of(route.upstream_model) if metadata is not None else None

    async def _ask(self, route: Route, caller: Caller) -> Metadata | None:
        """Ask the server, unless that failed just now. Concurrent requests wait for the same answer."""
        key = (route.base_url, caller.fingerprint)
        if self._failed.get(key, 0.0) > self._clock():
            return None
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._metadata(route, caller))
            task.add_done_callback(lambda _done: self._asking.pop(key, None))
        metadata = await asyncio.shield(task)
        if metadata is None:
            self._failed.put(key, self._clock() + FAILED_SECONDS)
        else:
            self._cached.put(route.base_url, (self._clock() + FRESH_SECONDS, metadata))
        return metadata

    async def _metadata(self, route: Route, caller: Caller) -> Metadata | None:
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                listed = await self._get(route, endpoint(route.base_url, "/models"), caller)
                entries = entries_of(listed)
                windows = {str(entry["id"]): window for entry in entries if (window := window_of(entry))}
                if len(entries) > 1:
                    return Metadata(windows)
                only = next(iter(windows.values()), None)
                if only is None:
                    only = await self._props(route, caller) or (trained_window(entries[0]) if entries else None)
                return Metadata(windows, only) if listed is not None or only else None
        except TimeoutError:
            return None

    async def _props(self, route: Route, caller: Caller) -> int | None:
        """Return the context of one slot of llama.cpp, which is what a request may use."""
        props = await self._get(route, endpoint(route.base_url, "/props", without="/v1"), caller)
        settings = props.get("default_generation_settings") if isinstance(props, dict) else None
        return _tokens(settings.get("n_ctx")) if isinstance(settings, dict) else None

    async def _get(self, route: Route, url: str, caller: Caller) -> JsonValue:
        try:
            return await self._get_json(route, url, caller, timeout_seconds=ANSWER_SECONDS)
        except UpstreamError:
            return None


def entries_of(listed: JsonValue) -> list[Mapping[str, JsonValue]]:
    """Return the models of a ``/models`` answer: the list under ``data``, or the answer itself (Together)."""
    data = listed.get("data") if isinstance(listed, dict) else listed
    return [entry for entry in data if isinstance(entry, dict) and "id" in entry] if isinstance(data, list) else []


def window_of(entry: Mapping[str, JsonValue]) -> int | None:
    """Return the window that a server runs a model with, in tokens."""
    meta = entry.get("meta")
    if isinstance(meta, dict) and (running := _tokens(meta.get("n_ctx"))):
        return running
    return next((tokens for name in WINDOW_FIELDS if (tokens := _tokens(entry.get(name)))), None)


def trained_window(entry: Mapping[str, JsonValue]) -> int | None:
    """Return the window that a model was trained with (llama.cpp); the server may run it with a smaller one."""
    meta = entry.get("meta")
    return _tokens(meta.get("n_ctx_train")) if isinstance(meta, dict) else None


def _tokens(value: JsonValue) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
