"""All settings of a process in one frozen value, and the questions that ``app`` asks of it.

``loading.py`` makes it from file and environment.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from proxy.config.masking import Address, Secret
from proxy.config.models import ModelDefaults, ModelEntry, WindowNote, most_specific
from proxy.config.sections import (
    AuthSettings,
    CompactionSettings,
    Given,
    HistorySettings,
    MemoryFlushSettings,
    Preset,
    ServerSettings,
    StoreSettings,
    TenantSettings,
    TokenizerSettings,
    TransportSettings,
    changed,
)
from proxy.core.planning.budget import CompactionPolicy, ModelWindow

POLICIES = 1024
"""Remembered, by the names that clients choose, so there must be a bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionByModel:
    """The section ``compaction``."""

    defaults: CompactionSettings = field(default_factory=CompactionSettings)
    models: Mapping[str, Given] = field(default_factory=dict)
    """By glob on the name the client uses; of several that fit, the longest holds and the others do not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Secrets:
    """What only the environment may hold."""

    admin_token: Secret | None = None
    """``TIDEMARK_ADMIN_TOKEN``: opens every tenant's conversations. None: nobody has that right."""
    signing: Secret | None = None
    """``TIDEMARK_SECRET``: the key of the HMAC that tells tenants apart. None: one is made and kept in
    ``data_dir``."""
    flush: Secret | None = None
    """``TIDEMARK_FLUSH_SECRET``: signs what is posted to ``memory_flush.webhook``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Everything that can be configured."""

    data_dir: Path
    """Absolute. Where the embedded store and the generated secret live; the platform's folder for data."""
    model_list: tuple[ModelEntry, ...] = ()
    """Empty: any model, with the provider that litellm derives from its name."""
    upstream: Address | None = None
    """One OpenAI-compatible base URL for every model that the list does not name. None: litellm decides."""
    compaction: CompactionByModel = field(default_factory=CompactionByModel)
    store: StoreSettings = field(default_factory=StoreSettings)
    tenants: Mapping[str, TenantSettings] = field(default_factory=dict)
    """``store.tenants``: by the tenant's id, as the log tells it."""
    history: HistorySettings = field(default_factory=HistorySettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    transport: TransportSettings = field(default_factory=TransportSettings)
    auth: AuthSettings = field(default_factory=AuthSettings)
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    memory_flush: MemoryFlushSettings = field(default_factory=MemoryFlushSettings)
    secrets: Secrets = field(default_factory=Secrets)
    model_defaults: ModelDefaults = field(default_factory=ModelDefaults, repr=False)
    """The shipped ``config/models.yaml``."""
    preset: Preset | None = field(default=None, compare=False)
    """Whose values hold in ``compaction.defaults`` and ``tokenizer`` where the file states none."""
    path: Path | None = field(default=None, compare=False)
    """The file; None without one."""
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """``file:line: message`` for what could be used, but may be meant otherwise."""
    _policies: dict[str, CompactionPolicy] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What ``policy_for`` has found: every request asks, and all patterns are looked through to answer."""

    def entry_for(self, model: str) -> ModelEntry | None:
        """The entry that serves the name the client uses: its own, else the longest wildcard's."""
        first: dict[str, ModelEntry] = {}
        for entry in self.model_list:
            first.setdefault(entry.name, entry)
        if model in first:
            return first[model]
        return most_specific({name: entry for name, entry in first.items() if "*" in name}, model)

    def compaction_for(self, model: str) -> CompactionSettings:
        """The compaction keys that hold for the name the client uses.

        The more particular word wins: defaults, glob, the entry's own. What ``models.yaml`` ships stands in
        for Tidemark's own defaults only, never for a default that the file changed.
        """
        entry = self.entry_for(model)
        shipped = self.model_defaults.find(_known_as(entry, model))
        settings, own = self.compaction.defaults, CompactionSettings()
        if shipped is not None:
            untouched = {
                name: value
                for name, value in shipped.compaction.items()
                if getattr(settings, name) == getattr(own, name)
            }
            settings = changed(settings, untouched)
        settings = changed(settings, most_specific(self.compaction.models, model) or {})
        return changed(settings, entry.compaction if entry else {})

    def policy_for(self, model: str) -> CompactionPolicy:
        """The compaction policy for the name the client uses."""
        policy = self._policies.get(model)
        if policy is None:
            policy = self._policies[model] = self.compaction_for(model).policy()
            if len(self._policies) > POLICIES:
                del self._policies[next(iter(self._policies))]
        return policy

    def windows(self) -> Mapping[str, ModelWindow]:
        """The windows that ``model_info`` states, by ``model_name``, wildcards as written."""
        stated = (entry for entry in reversed(self.model_list) if entry.window != WindowNote())
        return {entry.name: self._window_of(entry, entry.name) for entry in stated}

    def window_for(self, model: str) -> ModelWindow | None:
        """What ``model_info`` says of a window (``manual``), else ``models.yaml`` (``api``), or None."""
        entry = self.entry_for(model)
        if entry is not None and entry.window != WindowNote():
            return self._window_of(entry, model)
        shipped = self.model_defaults.find(_known_as(entry, model))
        return shipped.window.window("api") if shipped is not None and shipped.window.states_window else None

    def listening(self, *, host: str | None = None, port: int | None = None, workers: int | None = None) -> Settings:
        """The same with what the command line says of the server."""
        said = {"host": host, "port": port, "workers": workers}
        server = changed(self.server, {name: value for name, value in said.items() if value is not None})
        return dataclasses.replace(self, server=server)

    def _window_of(self, entry: ModelEntry, model: str) -> ModelWindow:
        shipped = self.model_defaults.find(_known_as(entry, model))
        return entry.window.over(shipped.window if shipped else WindowNote()).window("manual")


def _known_as(entry: ModelEntry | None, model: str) -> str:
    """The name that a model is known by: the upstream's, or the client's where a wildcard serves it."""
    return model if entry is None or "*" in entry.name else entry.known_as
