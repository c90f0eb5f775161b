"""Asks a running server for its context window, through ``/models`` and what else its program has.

The catalog uses the probe for servers whose address is configured. The server itself knows best what it was started
with. It is asked once in some minutes, or seconds if it loads models on demand, for at most two seconds. It gets the
caller's own credential, unless litellm's requests bring it none. A failure means only that this source has no window.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field, replace

from tidemark.catalog.loaded_models import (
    Question,
    as_tokens,
    loaded_models,
    model_key,
    names_of,
    ollama,
    slot_tokens,
)
from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import UpstreamError
from tidemark.core.frozen import frozen
from tidemark.core.ports import NO_CREDENTIAL, Caller, Route
from tidemark.upstream.providers import KEYLESS, endpoint, is_local

ANSWER_SECONDS = 2.0
"""The longest that a first request to a server waits for its metadata."""
FRESH_SECONDS = 300.0
LOADED_SECONDS = 10.0
"""How long the window of a loaded model holds: its server may load it again with another one."""
LEAST_PATIENCE, MOST_PATIENCE = 0.02, 5.0
"""The bounds of how long a server is not asked again for a model that it had not loaded.

In between it is as long as it was asked in vain. The model's first request loads it, and no model answers sooner. A
list of all models asks once."""
LOADING_SECONDS = 60.0
"""After that time in vain, a window counts as one that nobody tells."""
FAILED_SECONDS = 15.0
"""How long a failure is cached, for one caller only, because its credential may be the cause."""
REMEMBERED = 256
"""The most servers and callers in the caches. Both come from outside, so the caches need a bound."""

WINDOW_FIELDS = ("max_model_len", "context_length", "context_window", "max_context_length")
"""vLLM and SGLang; OpenRouter and Together; Groq; Mistral."""


@frozen
class Metadata:
    """The windows of a server's models, in tokens by model id."""

    windows: Mapping[str, int] = field(default_factory=dict)
    only: int | None = None
    """The window of a server with one model, which accepts any name (llama.cpp)."""
    loaded: Mapping[str, int | None] | None = None
    """Windows by ``model_key`` if the server loads models on demand; None for one that it does not tell."""

    def of(self, model: str) -> int | None:
        """Return the window of a model."""
        window = self.windows.get(model)
        if window is None and self.loaded is not None:
            window = self.loaded.get(model_key(model))
        return self.only if window is None else window

    def is_awaited(self, model: str) -> bool:
        """Return whether the server will tell a window as soon as it has loaded the model."""
        return self.loaded is not None and model_key(model) not in self.loaded and self.of(model) is None

    def with_earlier(self, earlier: Metadata | None) -> Metadata:
        """Return this with the windows that models had when they were last loaded."""
        if self.loaded is None or earlier is None or earlier.loaded is None:
            return self
        return replace(self, windows={**earlier.windows, **self.windows}, loaded={**earlier.loaded, **self.loaded})


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
        """What servers reported, and when, by base URL."""
        self._awaited: BoundedCache[tuple[str, str], float] = BoundedCache(REMEMBERED)
        """Since when a server is asked in vain for a model."""
        self._failed: BoundedCache[tuple[str, bytes], float] = BoundedCache(REMEMBERED)
        self._asking: dict[tuple[str, bytes], asyncio.Task[Metadata | None]] = {}

    def cached_metadata(self, route: Route) -> Metadata | None:
        """Return what a server reported, the very same value while it is fresh; None if it must be asked."""
        asked_at, metadata = self._cached.get(route.base_url, _NEVER)
        if metadata is None or asked_at + self._fresh_seconds(metadata, route, asked_at) <= self._clock():
            return None
        return metadata

    def _fresh_seconds(self, metadata: Metadata, route: Route, asked_at: float) -> float:
        """Return how long a report holds for a route's model."""
        if metadata.loaded is None:
            return FRESH_SECONDS
        if metadata.is_awaited(route.upstream_model):
            since = self._awaited.get((route.base_url, route.upstream_model), asked_at)
            return min(max(asked_at - since, LEAST_PATIENCE), MOST_PATIENCE)
        return FRESH_SECONDS if metadata.of(route.upstream_model) is None else LOADED_SECONDS

    def is_loading(self, route: Route) -> bool:
        """Return whether a route's server is about to tell a window: it had not loaded the model a moment ago."""
        metadata = self._cached.get(route.base_url, _NEVER)[1]
        if metadata is None or not metadata.is_awaited(route.upstream_model):
            return False
        since = self._awaited.get((route.base_url, route.upstream_model), self._clock())
        return self._clock() - since < LOADING_SECONDS

    async def window(self, route: Route, caller: Caller) -> int | None:
        """Return the window that a route's server reports for the model, in tokens; None if it reports none."""
        metadata = self.cached_metadata(route)
        if metadata is None:
            earlier = self._cached.get(route.base_url, _NEVER)[1]
            asking = self._ask(route, caller)
            if earlier is not None and earlier.loaded is not None and earlier.of(route.upstream_model) is not None:
                return earlier.of(route.upstream_model)  # nobody waits to hear that it is still the same
            reported = None if asking is None else await asyncio.shield(asking)
            metadata = reported or self._cached.get(route.base_url, _NEVER)[1]
        if metadata is None:
            return None
        self._note_awaited(metadata, route)
        return metadata.of(route.upstream_model)

    def _note_awaited(self, metadata: Metadata, route: Route) -> None:
        key = (route.base_url, route.upstream_model)
        if not metadata.is_awaited(route.upstream_model):
            self._awaited.pop(key, None)
        elif self._awaited.get(key, None) is None:
            self._awaited.put(key, self._clock())

    def _ask(self, route: Route, caller: Caller) -> asyncio.Task[Metadata | None] | None:
        """Ask the server, unless that failed just now. Concurrent requests wait for the same answer."""
        key = (route.base_url, caller.fingerprint)
        if self._failed.get(key, 0.0) > self._clock():
            return None
        task = self._asking.get(key)
        if task is None:
            task = self._asking[key] = asyncio.create_task(self._report(route, caller))
            task.add_done_callback(lambda _done: self._asking.pop(key, None))
        return task

    async def _report(self, route: Route, caller: Caller) -> Metadata | None:
        """Ask the server, and keep what it says; None if it says nothing of use."""
        metadata, earlier = await self._metadata(route, caller), self._cached.get(route.base_url, _NEVER)[1]
        if metadata is None or (metadata == Metadata() and earlier is not None and earlier.loaded is not None):
            self._failed.put((route.base_url, caller.fingerprint), self._clock() + FAILED_SECONDS)
            return None
        metadata = metadata.with_earlier(earlier)
        self._cached.put(route.base_url, (self._clock(), metadata))
        return metadata

    async def _metadata(self, route: Route, caller: Caller) -> Metadata | None:
        entries: list[Mapping[str, JsonValue]] = []

        def question(asker: Caller) -> Question:
            def get(path: str) -> Awaitable[JsonValue]:
                return self._get(route, endpoint(route.base_url, path, without="/v1"), asker)

            return Question(route.upstream_model, entries, get)

        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                if (
                    route.provider in KEYLESS
                ):  # litellm speaks to it at Ollama's own addresses, without the caller's key
                    running = await ollama(question(NO_CREDENTIAL))
                    return None if running is None else Metadata(loaded=running.windows)
                listed = await self._get(route, endpoint(route.base_url, "/models"), caller)
                entries += entries_of(listed)
                windows = {
                    name: window for entry in entries if (window := window_of(entry)) for name in names_of(entry)
                }
                if not all(map(window_of, entries)):
                    loaded = await loaded_models(question(caller), may_be_ollama=is_local(route.base_url))
                    if loaded is not None:
                        return Metadata(windows, loaded.only, loaded.windows)
                if len(entries) > 1:
                    return Metadata(windows)
                only = next(iter(windows.values()), None)
                if only is None:
                    props = await self._get(route, endpoint(route.base_url, "/props", without="/v1"), caller)
                    only = slot_tokens(props) or (trained_window(entries[0]) if entries else None)
                is_empty = not entries and is_local(route.base_url)  # no model is installed yet
                return Metadata(windows, only) if only or (listed is not None and not is_empty) else None
        except TimeoutError:
            return None

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
    if isinstance(meta, dict) and (running := as_tokens(meta.get("n_ctx"))):
        return running
    return next((tokens for name in WINDOW_FIELDS if (tokens := as_tokens(entry.get(name)))), None)


def trained_window(entry: Mapping[str, JsonValue]) -> int | None:
    """Return the window that a model was trained with (llama.cpp); the server may run it with a smaller one."""
    meta = entry.get("meta")
    return as_tokens(meta.get("n_ctx_train")) if isinstance(meta, dict) else None
