"""Reads the entries of ``model_list`` in LiteLLM's syntax, and finds the entry for a model's name.

``upstream.py`` uses it as the first step of resolving, before litellm is asked. It does no I/O; it reads only the
environment variables that entries refer to.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Literal, assert_never, cast

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import ConfigError
from tidemark.core.frozen import frozen
from tidemark.core.ports import Headers
from tidemark.upstream import providers
from tidemark.upstream.configured_members import are_writable
from tidemark.upstream.fields import CONFIGURED_FOR_LITELLM

LaneChoice = Literal["auto", "wire", "translate"]
LANES = ("auto", "wire", "translate")
DIALECTS = ("chat", "responses", "messages")
"""The formats that an upstream may speak."""
ENVIRONMENT = "os.environ/"
"""LiteLLM's prefix of a value that names an environment variable."""
DEFAULT_TIMEOUT_SECONDS = 600.0
"""LiteLLM's and the OpenAI SDK's own default."""


@frozen
class RouteEntry:
    """One entry of ``model_list``."""

    name: str
    """``model_name``: the name that clients use; ``*`` stands for any text."""
    params: Mapping[str, JsonValue]
    """``litellm_params``, with environment variables replaced by their values."""
    lane: LaneChoice = "auto"
    dialects: frozenset[str] = frozenset()
    """``model_info.dialects``; empty if it is not stated."""
    thinking_binding: bool | None = None
    """``model_info.thinking_binding``; None if it is not stated."""
    native_compaction: bool | None = None
    """``model_info.native_compaction``; None if it is not stated."""

    @property
    def target(self) -> str:
        """Return ``litellm_params.model``; its ``*`` stands for what the name's ``*`` matched."""
        return str(self.params["model"])


@frozen
class Destination:
    """The settings of an entry for one model, with its wildcards filled in."""

    model: str
    """LiteLLM's name, for example ``anthropic/claude-sonnet-4-5``."""
    params: Mapping[str, JsonValue]
    lane: LaneChoice
    dialects: frozenset[str] = frozenset()
    thinking_binding: bool | None = None
    native_compaction: bool | None = None
    chosen_by_client: bool = False
    """Whether a wildcard put the client's text in the place of the provider, as in ``*`` for ``*``."""

    @property
    def base_url(self) -> str | None:
        """Return ``api_base``, or its alias ``base_url``."""
        return _text(self.params.get("api_base")) or _text(self.params.get("base_url"))

    @property
    def provider(self) -> str | None:
        """Return the provider, if the entry itself names it."""
        explicit = _text(self.params.get("custom_llm_provider"))
        return explicit or (self.model.partition("/")[0] if "/" in self.model else None)

    @property
    def without_litellm(self) -> tuple[str, str, str | None] | None:
        """Return bare model, provider and base URL, if the entry itself states enough of them."""
        provider = self.provider
        base = self.base_url or (providers.OPENAI_BASE if provider == "openai" else None)
        if provider in providers.WIRE_WITHOUT_LITELLM and base is not None:
            return self.bare_model, provider, base
        return None

    @property
    def is_plain(self) -> bool:
        """Tell whether its requests use the wire lane and never need litellm."""
        if self.without_litellm is None:
            return False
        match self.lane:
            case "wire":
                return True
            case "translate":
                return False
            case "auto":
                return not self.needs_litellm
            case _:
                assert_never(self.lane)

    @property
    def needs_litellm(self) -> bool:
        """Tell whether it has request parameters that only litellm applies, as for OpenAI's own models.

        litellm writes some parameters in other words for providers that it knows. A server of OpenAI's format that the
        entry itself names takes them as they are.
        """
        if not CONFIGURED_FOR_LITELLM & self.params.keys():
            return False
        stated = self.without_litellm
        if stated is not None and providers.is_openai(stated[2] or ""):
            return True
        return not are_writable(self.params, renamed=stated is None)

    @property
    def bare_model(self) -> str:
        """Return the model without the provider's prefix."""
        provider = self.provider
        return self.model.removeprefix(f"{provider}/") if provider else self.model

    @property
    def api_key(self) -> str | None:
        return _text(self.params.get("api_key"))

    @property
    def headers(self) -> Headers:
        """Return ``extra_headers`` and ``organization`` as header lines, for the wire lane."""
        configured = self.params.get("extra_headers") or self.params.get("headers")
        pairs = configured.items() if isinstance(configured, dict) else ()
        lines = [(str(name).lower().encode(), str(value).encode()) for name, value in pairs]
        if organization := _text(self.params.get("organization")):
            lines.append((b"openai-organization", organization.encode()))
        return tuple(lines)

    @property
    def timeout_seconds(self) -> float:
        return _seconds(self.params.get("timeout")) or DEFAULT_TIMEOUT_SECONDS

    @property
    def silence_seconds(self) -> float:
        """Return ``stream_timeout``, else ``timeout``, in seconds."""
        return _seconds(self.params.get("stream_timeout")) or self.timeout_seconds


def read_entries(
    model_list: Iterable[Mapping[str, JsonValue]], lanes: Mapping[str, str] | None = None
) -> tuple[RouteEntry, ...]:
    """Read ``model_list``.

    :param lanes: lane by glob on the model's name; an entry's own ``lane`` (beside ``litellm_params`` or in
        ``model_info``) takes precedence
    :raises ConfigError: an entry has no name or no ``litellm_params.model``, or names an unknown lane
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
        if isinstance(info, Mapping) and "base_model" in info:  # the model behind an Azure deployment's name
            expanded.setdefault("base_model", info["base_model"])
        entries.append(
            RouteEntry(
                name,
                expanded,
                cast("LaneChoice", lane),
                _dialects(info, place),
                _flag(info, "thinking_binding", place),
                _flag(info, "native_compaction", place),
            )
        )
    return tuple(entries)


def served_at(entry: RouteEntry, upstream_base_url: str | None) -> RouteEntry:
    """Return an entry with ``TIDEMARK_UPSTREAM`` as its address, if it is OpenAI's and has no address of its own."""
    provider = entry.params.get("custom_llm_provider") or entry.target.partition("/")[0]
    if upstream_base_url is None or provider != "openai" or {"api_base", "base_url"} & entry.params.keys():
        return entry
    return replace(entry, params={**entry.params, "api_base": upstream_base_url})


def find(entries: Sequence[RouteEntry], model: str) -> Destination | None:
    """Return the destination of a model: its own entry, else the longest pattern's; the first of equals."""
    for entry in entries:
        if entry.name == model:
            return _destination(entry, entry.target)
    for entry in sorted(entries, key=lambda entry: -len(entry.name)):
        if "*" in entry.name and (match := _pattern(entry.name).fullmatch(model)):
            chosen_by_client = "*" in entry.target.partition("/")[0] and not entry.params.get("custom_llm_provider")
            target = _filled(entry.target, match.groups())
            return replace(_destination(entry, target), chosen_by_client=chosen_by_client)
    return None


def _destination(entry: RouteEntry, target: str) -> Destination:
    """Return what an entry says of a model.

    :param target: the model's name at its provider
    """
    return Destination(
        target, entry.params, entry.lane, entry.dialects, entry.thinking_binding, entry.native_compaction
    )


def sole_destination(entries: Iterable[RouteEntry]) -> Destination | None:
    """Return the destination of requests that name no model; None if entries lead to several upstreams, or none.

    Only entries count that need no litellm. They lead to one upstream if address and key are equal.
    """
    destinations: dict[tuple[str, str | None], Destination] = {}
    for entry in entries:
        destination = Destination(entry.target, entry.params, entry.lane)
        if destination.is_plain and (parts := destination.without_litellm) is not None:
            destinations[parts[2] or "", destination.api_key] = destination
    return next(iter(destinations.values())) if len(destinations) == 1 else None


def expand(value: JsonValue) -> JsonValue:
    """Return a configured value with each ``os.environ/NAME`` replaced; None if the variable is not set."""
    if isinstance(value, str) and value.startswith(ENVIRONMENT):
        return os.environ.get(value.removeprefix(ENVIRONMENT))
    if isinstance(value, Mapping):
        return {key: expand(item) for key, item in value.items()}
    if isinstance(value, list):
        return [expand(item) for item in value]
    return value


def _dialects(info: JsonValue, place: int) -> frozenset[str]:
    """Read ``model_info.dialects``."""
    value = info.get("dialects") if isinstance(info, Mapping) else None
    if value is None:
        return frozenset()
    if not isinstance(value, list) or not value or not set(map(str, value)) <= set(DIALECTS):
        raise ConfigError(
            f"model_list[{place}].model_info.dialects is {value!r}; list some of {', '.join(DIALECTS)}, as in "
            f"[chat, responses]."
        )
    return frozenset(map(str, value))


def _flag(info: JsonValue, name: str, place: int) -> bool | None:
    """Read a member of ``model_info`` that is true, false or not there."""
    value = info.get(name) if isinstance(info, Mapping) else None
    if value is None or isinstance(value, bool):
        return value
    raise ConfigError(f"model_list[{place}].model_info.{name} is {value!r}; use true or false.")


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile("(.*)".join(re.escape(piece) for piece in name.split("*")), re.DOTALL)


def _filled(target: str, texts: Sequence[str]) -> str:
    """Return a target such as ``anthropic/*`` with its wildcards replaced; the last text fills all further ones."""
    for text in texts:
        target = target.replace("*", text.replace("*", "\0"), 1)
    return target.replace("*", texts[-1] if texts else "").replace("\0", "*")


def _seconds(value: JsonValue) -> float | None:
    return float(value) if isinstance(value, int | float) and value > 0 else None


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None
