"""Reads windows, providers and prices from litellm's data file of models, without importing litellm.

The catalog looks up windows here, the registry looks up providers, and ``tidemark bench`` looks up prices. The file is
3 MB of JSON in litellm's wheel. Reading its few needed fields takes some 20 ms, once, in a thread; importing litellm
for them takes 5 s.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import GenericAlias
from typing import Any

import msgspec

from tidemark.catalog.prices import PRICE_KEYS, read_price
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.frozen import frozen
from tidemark.core.money import ModelPrice
from tidemark.upstream.providers import KEYED, KEYLESS, WIRE_UNLISTED, WIRE_WITHOUT_LITELLM

DATA_FILE = "model_prices_and_context_window_backup.json"
MODES = frozenset({"chat", "completion", "responses"})
"""The modes of entries that accept a conversation."""
SPOKEN_WITHOUT_DATA = WIRE_WITHOUT_LITELLM | WIRE_UNLISTED | KEYED | KEYLESS
"""Providers that the file may lack, because their models are whatever an operator runs."""


@frozen
class WindowData:
    """The window of a model in one source, in tokens; None for what the source does not state."""

    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    context_window: int | None = None
    beta_windows: tuple[tuple[str, int], ...] = ()
    """The window of requests with an ``anthropic-beta`` of that value."""

    @property
    def has_window(self) -> bool:
        """Whether the source states how much input the model accepts."""
        return self.max_input_tokens is not None or self.context_window is not None

    def with_max_output(self, max_output_tokens: int | None) -> WindowData:
        return (
            self if max_output_tokens == self.max_output_tokens else replace(self, max_output_tokens=max_output_tokens)
        )


def read_window_data(info: Mapping[str, JsonValue]) -> WindowData:
    """Read litellm's ``model_info`` fields and our own two, ``context_window`` and ``beta_windows``."""
    betas = info.get("beta_windows")
    pairs = betas.items() if isinstance(betas, Mapping) else ()
    return WindowData(
        _tokens(info.get("max_input_tokens")),
        _tokens(info.get("max_output_tokens")),
        _tokens(info.get("context_window")),
        tuple((name, size) for name, value in pairs if (size := _tokens(value))),
    )


class _Entry(msgspec.Struct):
    # object, because the file's first entry describes the fields in prose.
    max_tokens: object = None
    max_input_tokens: object = None
    max_output_tokens: object = None
    mode: object = None
    litellm_provider: object = None
    input_cost_per_token: object = None
    output_cost_per_token: object = None


_PRICED_ENTRY = msgspec.defstruct(
    "_PricedEntry", [(key, object, None) for key in PRICE_KEYS if key not in _Entry.__struct_fields__], bases=(_Entry,)
)
_ENTRIES: msgspec.json.Decoder[Any] = msgspec.json.Decoder(GenericAlias(dict, (str, _PRICED_ENTRY)))
"""Decodes the file; each entry is an ``_Entry`` with a field for each key of a price."""


class LiteLLMModelData:
    """Litellm's data file, read at the first lookup; ``path`` names another file of the same form."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._entries: Mapping[str, _Entry] | None = None
        """The entries for conversations."""
        self._names: frozenset[str] = frozenset()
        """The names of all entries, without what a provider puts before them."""
        self._reading = asyncio.Lock()

    async def lookup(self, names: Iterable[str]) -> WindowData | None:
        """Return the data of the first of ``names`` that has a window in the file."""
        entries = await self._read()
        for name in names:
            if (entry := entries.get(name)) is None:
                continue
            window_data = WindowData(
                _tokens(entry.max_input_tokens) or _tokens(entry.max_tokens), _tokens(entry.max_output_tokens)
            )
            if window_data.has_window:
                return window_data
        return None

    async def provider(self, model: str) -> str | None:
        """Return litellm's provider of a model that the file lists under exactly this name."""
        entry = (await self._read()).get(model)
        provider = entry.litellm_provider if entry is not None else None
        return provider if isinstance(provider, str) else None

    async def names(self, model: str) -> bool:
        """Return whether the file lists a model of any kind by this name, or by a provider's name before it.

        It is true if the file cannot be read, because then nobody knows.
        """
        await self._read()
        return model in self._names or not self._names

    async def prices(self) -> Mapping[str, tuple[float, float]]:
        """Return the USD for each token of input and of output, by the model's name; only models with both."""
        entries = (await self._read()).items()
        pairs = ((name, entry.input_cost_per_token, entry.output_cost_per_token) for name, entry in entries)
        return {
            name: (float(prompt), float(reply))
            for name, prompt, reply in pairs
            if isinstance(prompt, int | float) and isinstance(reply, int | float)
        }

    async def price(self, names: Iterable[str]) -> ModelPrice | None:
        """Return the price of the first of ``names`` that has one in the file."""
        entries = await self._read()
        for name in names:
            entry = entries.get(name) or entries.get(name.rpartition("/")[2])
            if entry is not None and (price := read_price(msgspec.structs.asdict(entry))) is not None:
                return price
        return None

    async def providers(self) -> frozenset[str]:
        """Return every provider that the file or our own tables name."""
        listed = {entry.litellm_provider for entry in (await self._read()).values()}
        return frozenset(provider for provider in listed if isinstance(provider, str)) | SPOKEN_WITHOUT_DATA

    async def _read(self) -> Mapping[str, _Entry]:
        if self._entries is None:
            async with self._reading:
                if self._entries is None:
                    entries = await asyncio.to_thread(_read_file, self._path or data_path())
                    self._names = frozenset(name.rpartition("/")[2] for name in entries)
                    self._entries = {name: entry for name, entry in entries.items() if entry.mode in MODES}
        return self._entries


def data_path() -> Path | None:
    """Return the path of the data file in litellm's wheel. Looking for a package does not run it."""
    spec = importlib.util.find_spec("litellm")
    return Path(spec.origin).with_name(DATA_FILE) if spec is not None and spec.origin else None


def _read_file(path: Path | None) -> Mapping[str, _Entry]:
    """Return the file's entries; none if it cannot be read, because windows have defaults."""
    try:
        entries: Mapping[str, _Entry] = _ENTRIES.decode(path.read_bytes() if path else b"{}")
    except (OSError, msgspec.MsgspecError):
        return {}
    return entries


def _tokens(value: object) -> int | None:
    """Return a positive whole number of tokens, or None; the file also contains prose, and 2e5."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
