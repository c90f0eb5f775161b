"""The entries of ``model_list``: LiteLLM's syntax, read into values and matched against a model's name.

First half of resolving, before litellm is asked anything. No I/O but the environment that entries refer to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from typing import Literal, cast

from proxy.core.conversation.messages import JsonValue
from proxy.core.errors import ConfigError
from proxy.core.ports import Headers
from proxy.upstream import providers
from proxy.upstream.fields import CONFIGURED_FOR_LITELLM

LaneChoice = Literal["auto", "wire", "translate"]
LANES = ("auto", "wire", "translate")
ENVIRONMENT = "os.environ/"
"""LiteLLM's way to name an environment variable in a value."""
DEFAULT_TIMEOUT_SECONDS = 600.0
"""LiteLLM's and the OpenAI SDK's own default."""


@dataclass(frozen=True, slots=True)
class RouteEntry:
    """One entry of ``model_list``."""

    name: str
    """``model_name``: what clients use; ``*`` stands for any text."""
    params: Mapping[str, JsonValue]
    """``litellm_params``, environment references expanded."""
    lane: LaneChoice = "auto"

    @property
    def target(self) -> str:
        """``litellm_params.model``, as LiteLLM writes it; ``*`` takes what the name's matched."""
        return str(self.params["model"])


@dataclass(frozen=True, slots=True)
class Destination:
    """What an entry says about one model, its wildcards filled in."""

    model: str
    """LiteLLM's name, for example ``anthropic/claude-sonnet-4-5``."""
    params: Mapping[str, JsonValue]
    lane: LaneChoice
    chosen_by_client: bool = False
    """Whether a wildcard put the client's own text where the provider stands, as in ``*`` for ``*``."""

    @property
    def base_url(self) -> str | None:
        """``api_base``, or its alias ``base_url``."""
        return _text(self.params.get("api_base")) or _text(self.params.get("base_url"))

    @property
    def provider(self) -> str | None:
        """The provider as far as the entry itself names it."""
        explicit = _text(self.params.get("custom_llm_provider"))
        return explicit or (self.model.partition("/")[0] if "/" in self.model else None)

    @property
    def without_litellm(self) -> tuple[str, str, str | None] | None:
        """Bare model, provider and base URL, where the entry itself says enough."""
        provider = self.provider
        base = self.base_url or (providers.OPENAI_BASE if provider == "openai" else None)
        if provider in providers.WIRE_WITHOUT_LITELLM and base is not None:
            return self.bare_model, provider, base
        return None

    @property
    def is_plain(self) -> bool:
        """Whether its requests go over the wire lane without litellm ever being asked."""
        translated = self.lane == "translate" or (self.lane == "auto" and CONFIGURED_FOR_LITELLM & self.params.keys())
        return self.without_litellm is not None and not translated

    @property
    def bare_model(self) -> str:
        """The model without the provider's prefix."""
        provider = self.provider
        return self.model.removeprefix(f"{provider}/") if provider else self.model

    @property
    def api_key(self) -> str | None:
        """The configured key."""
        return _text(self.params.get("api_key"))

    @property
    def headers(self) -> Headers:
        """``extra_headers`` and ``organization``, for the wire lane."""
        configured = self.params.get("extra_headers") or self.params.get("headers")
        pairs = configured.items() if isinstance(configured, dict) else ()
        lines = [(str(name).lower().encode(), str(value).encode()) for name, value in pairs]
        if organization := _text(self.params.get("organization")):
            lines.append((b"openai-organization", organization.encode()))
        return tuple(lines)

    @property
    def timeout_seconds(self) -> float:
        """``timeout``, in seconds."""
        return _seconds(self.params.get("timeout")) or DEFAULT_TIMEOUT_SECONDS

    @property
    def silence_seconds(self) -> float:
        """``stream_timeout``, else ``timeout``, in seconds."""
        return _seconds(self.params.get("stream_timeout")) or self.timeout_seconds


def read_entries(
    model_list: Iterable[Mapping[str, JsonValue]], lanes: Mapping[str, str] | None = None
) -> tuple[RouteEntry, ...]:
    """Read ``model_list``.

    :param lanes: lane by glob on the model's name; an entry's own ``lane`` (beside ``litellm_params`` or in
        ``model_info``) goes before it
    :raises ConfigError: an entry has no name or no ``litellm_params.model``, or names no lane that there is
    """
    entries = []
    for place, item in enumerate(model_list):
        name, params = item.get("model_name"), item.get("litellm_params")
        if not isinstance(name, str) or not isinstance(params, Mapping) or not isinstance(params.get("model"), str):
            raise ConfigError(f"model_list[{place}] needs model_name and litellm_params.model.")
        info = item.get("model_info")
        lane = item.get("lane") or (info.get("lane") if isinstance(info, Mapping) else None)
        lane = lane or next((value for glob, value in (lanes or {}).items() if fnmatchcase(name, glob)), "auto")
        if lane not in LANES:
            raise ConfigError(f"model_list[{place}].lane is {lane!r}; use one of {', '.join(LANES)}.")
        expanded = {str(key): expand(value) for key, value in params.items()}
        if isinstance(info, Mapping) and "base_model" in info:  # what an Azure deployment's name stands for
            expanded.setdefault("base_model", info["base_model"])
        entries.append(RouteEntry(name, expanded, cast("LaneChoice", lane)))
    return tuple(entries)


def served_at(entry: RouteEntry, upstream_base_url: str | None) -> RouteEntry:
    """The entry where one base URL serves every model: an OpenAI entry without an address of its own is there, too."""
    provider = entry.params.get("custom_llm_provider") or entry.target.partition("/")[0]
    if upstream_base_url is None or provider != "openai" or {"api_base", "base_url"} & entry.params.keys():
        return entry
    return replace(entry, params={**entry.params, "api_base": upstream_base_url})


def find(entries: Sequence[RouteEntry], model: str) -> Destination | None:
    """The destination of a model: its own entry, else the longest pattern's; the first of equals."""
    for entry in entries:
        if entry.name == model:
            return Destination(entry.target, entry.params, entry.lane)
    for entry in sorted(entries, key=lambda entry: -len(entry.name)):
        if "*" in entry.name and (matched := _pattern(entry.name).fullmatch(model)):
            chosen = "*" in entry.target.partition("/")[0] and not entry.params.get("custom_llm_provider")
            target = _filled(entry.target, matched.groups())
            return Destination(target, entry.params, entry.lane, chosen_by_client=chosen)
    return None


def expand(value: JsonValue) -> JsonValue:
    """A configured value with each ``os.environ/NAME`` replaced; None where there is no such variable."""
    if isinstance(value, str) and value.startswith(ENVIRONMENT):
        return os.environ.get(value.removeprefix(ENVIRONMENT))
    if isinstance(value, Mapping):
        return {key: expand(item) for key, item in value.items()}
    if isinstance(value, list):
        return [expand(item) for item in value]
    return value


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile("(.*)".join(re.escape(piece) for piece in name.split("*")), re.DOTALL)


def _filled(target: str, found: Sequence[str]) -> str:
    """``anthropic/*`` and what the name's wildcards stood for; the last fills all that are left over."""
    for text in found:
        target = target.replace("*", text.replace("*", "\0"), 1)
    return target.replace("*", found[-1] if found else "").replace("\0", "*")


def _seconds(value: JsonValue) -> float | None:
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None
