"""litellm's data file of models, read without importing litellm: windows, and who serves a name.

Beside the catalog and the resolver. The file is 3 MB of JSON in litellm's wheel; reading the few fields that
count takes some 20 ms, once, in a thread, where importing litellm for them takes 5 s.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from proxy.core.conversation.messages import JsonValue
from proxy.upstream.providers import KEYED, KEYLESS, WIRE_BESIDES, WIRE_WITHOUT_LITELLM

DATA_FILE = "model_prices_and_context_window_backup.json"
MODES = frozenset({"chat", "completion", "responses"})
"""Of the file's entries those that take a conversation."""
SPOKEN_WITHOUT_DATA = WIRE_WITHOUT_LITELLM | WIRE_BESIDES | KEYED | KEYLESS
"""Providers that the file may not name, for their models are whatever somebody runs."""


@dataclass(frozen=True, slots=True)
class Known:
    """What one source says of a model, in tokens; None for what it does not say."""

    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    context_window: int | None = None

    @property
    def has_window(self) -> bool:
        """Whether the source tells how much goes in."""
        return self.max_input_tokens is not None or self.context_window is not None

    def answering(self, max_output_tokens: int | None) -> Known:
        """The same with this as the longest reply."""
        return (
            self if max_output_tokens == self.max_output_tokens else replace(self, max_output_tokens=max_output_tokens)
        )


def known_from(info: Mapping[str, JsonValue]) -> Known:
    """Read LiteLLM's words (``model_info``) and our one more, ``context_window``."""
    return Known(*(_tokens(info.get(name)) for name in ("max_input_tokens", "max_output_tokens", "context_window")))


class _Entry(msgspec.Struct):
    # object, because the file's first entry describes the fields in prose.
    max_tokens: object = None
    max_input_tokens: object = None
    max_output_tokens: object = None
    mode: object = None
    litellm_provider: object = None


class LiteLLMModelData:
    """The file, read at the first question; ``path`` is another one of the same form."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._entries: Mapping[str, _Entry] | None = None
        self._reading = asyncio.Lock()

    async def lookup(self, names: Iterable[str]) -> Known | None:
        """What the file says of the first of ``names`` that it knows a window of."""
        entries = await self._read()
        for name in names:
            if (entry := entries.get(name)) is None:
                continue
            known = Known(
                _tokens(entry.max_input_tokens) or _tokens(entry.max_tokens), _tokens(entry.max_output_tokens)
            )
            if known.has_window:
                return known
        return None

    async def provider(self, model: str) -> str | None:
        """Litellm's provider of a model that the file lists by just this name."""
        entry = (await self._read()).get(model)
        provider = entry.litellm_provider if entry is not None else None
        return provider if isinstance(provider, str) else None

    async def providers(self) -> frozenset[str]:
        """Every provider that the file or our own tables name."""
        listed = {entry.litellm_provider for entry in (await self._read()).values()}
        return frozenset(one for one in listed if isinstance(one, str)) | SPOKEN_WITHOUT_DATA

    async def _read(self) -> Mapping[str, _Entry]:
        if self._entries is None:
            async with self._reading:
                if self._entries is None:
                    self._entries = await asyncio.to_thread(_read_file, self._path or data_path())
        return self._entries


def data_path() -> Path | None:
    """The data file in litellm's wheel; finding a package's place does not run it."""
    spec = importlib.util.find_spec("litellm")
    return Path(spec.origin).with_name(DATA_FILE) if spec is not None and spec.origin else None


def _read_file(path: Path | None) -> Mapping[str, _Entry]:
    """The file's entries for conversations; none where it cannot be read: windows have defaults."""
    try:
        entries = msgspec.json.decode(path.read_bytes() if path else b"{}", type=dict[str, _Entry])
    except (OSError, msgspec.MsgspecError):
        return {}
    return {name: entry for name, entry in entries.items() if entry.mode in MODES}


def _tokens(value: object) -> int | None:
    """A positive whole number of tokens; the file also has prose, and 2e5."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None
