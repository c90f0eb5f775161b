"""Defines all settings of a process as one frozen value.

``loading.py`` builds it from file and environment, and ``app`` reads it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from tidemark.config.access_sections import (
    AuditSettings,
    EncryptionSettings,
    OpenIdSettings,
    PrivacySettings,
    QuotaSettings,
    RequestLogSettings,
)
from tidemark.config.masking import Address, Secret
from tidemark.config.models import ModelDefaults, ModelEntry, WindowNote, most_specific
from tidemark.config.sections import (
    AuthSettings,
    CompactionSettings,
    EventSettings,
    HistorySettings,
    LimitSettings,
    MemoryFlushSettings,
    ModelStoreSettings,
    Preset,
    ServerSettings,
    StatedKeys,
    StoreSettings,
    TenantSettings,
    TokenizerSettings,
    TransportSettings,
    changed,
)
from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.records import Keep
from tidemark.core.frozen import frozen
from tidemark.core.planning.budget import CompactionPolicy, ModelWindow

POLICIES = 1024
"""The most cached policies. Clients choose the names, so the cache needs a bound."""


@frozen(kw_only=True)
class CompactionByModel:
    """The section ``compaction``."""

    defaults: CompactionSettings = field(default_factory=CompactionSettings)
    models: Mapping[str, StatedKeys] = field(default_factory=dict)
    """By glob on the name that clients use; of several matching globs, only the longest applies."""


@frozen(kw_only=True)
class Secrets:
    """The secrets, which only the environment may contain."""

    admin_token: Secret | None = None
    """``TIDEMARK_ADMIN_TOKEN``: gives access to every tenant's conversations. None: nobody has that right."""
    signing: Secret | None = None
    """``TIDEMARK_SECRET``: the key of the HMAC that distinguishes tenants. None: a generated one, stored in
    ``data_dir``."""
    auditor_token: Secret | None = None
    """``TIDEMARK_AUDITOR_TOKEN``: shows figures and the audit log. None: only OpenID makes somebody an auditor."""
    openid: Secret | None = None
    """``TIDEMARK_OPENID_SECRET``: the secret of this server at the provider. None: a public client."""
    flush: Secret | None = None
    """``TIDEMARK_FLUSH_SECRET``: signs the posts to ``memory_flush.webhook`` and ``events.webhook``."""
    encryption: Secret | None = None
    """``TIDEMARK_ENCRYPTION_KEY``: the master keys that wrap those of tenants. None: nothing is encrypted, unless a
    file or a command has them."""
    encryption_file: Path | None = None
    """``TIDEMARK_ENCRYPTION_KEY_FILE``: the file that has them."""


@frozen(kw_only=True)
class Settings:
    """All settings of a process."""

    data_dir: Path
    """The absolute folder of the embedded store and the generated secret; by default the platform's data folder."""
    model_list: tuple[ModelEntry, ...] = ()
    """Empty: any model, at the provider that litellm derives from its name."""
    upstream: Address | None = None
    """An OpenAI-compatible base URL for every model that the list does not name. None: litellm decides."""
    compaction: CompactionByModel = field(default_factory=CompactionByModel)
    store: StoreSettings = field(default_factory=StoreSettings)
    tenants: Mapping[str, TenantSettings] = field(default_factory=dict)
    """``store.tenants``, by the tenant's id, as the log shows it."""
    store_models: Mapping[str, ModelStoreSettings] = field(default_factory=dict)
    """``store.models``, by the client's name for a model or a pattern of it."""
    quotas: Mapping[str, QuotaSettings] = field(default_factory=dict)
    """``limits.tenants``, by the tenant's name in its keys or by its owner's id: what is bounded in another way."""
    history: HistorySettings = field(default_factory=HistorySettings)
    server: ServerSettings = field(default_factory=ServerSettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    transport: TransportSettings = field(default_factory=TransportSettings)
    auth: AuthSettings = field(default_factory=AuthSettings)
    tokenizer: TokenizerSettings = field(default_factory=TokenizerSettings)
    memory_flush: MemoryFlushSettings = field(default_factory=MemoryFlushSettings)
    events: EventSettings = field(default_factory=EventSettings)
    request_log: RequestLogSettings = field(default_factory=RequestLogSettings)
    audit: AuditSettings = field(default_factory=AuditSettings)
    openid: OpenIdSettings = field(default_factory=OpenIdSettings)
    encryption: EncryptionSettings = field(default_factory=EncryptionSettings)
    privacy: PrivacySettings = field(default_factory=PrivacySettings)
    redact: Mapping[str, str] = field(default_factory=dict)
    """``privacy.redact``: regular expressions by the name that stands in the place of what they match."""
    secrets: Secrets = field(default_factory=Secrets)
    model_defaults: ModelDefaults = field(default_factory=ModelDefaults, repr=False)
    """The shipped ``config/models.yaml``."""
    preset: Preset | None = field(default=None, compare=False)
    """The preset for keys of ``compaction.defaults`` and ``tokenizer`` that the file does not state."""
    sources: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """Where values come from, by dotted key; a key that is missing has its default (``effective.py``)."""
    stored_keys: frozenset[str] = field(default=frozenset(), compare=False)
    """The keys of ``compaction.defaults`` whose values are the store's (``stored.py``)."""
    path: Path | None = field(default=None, compare=False)
    """The file; None without one."""
    warnings: tuple[str, ...] = field(default=(), compare=False)
    """``file:line: message`` for usable values that may be mistakes."""
    _policies: BoundedCache[str, CompactionPolicy] = field(
        default_factory=lambda: BoundedCache(POLICIES), init=False, repr=False, compare=False
    )
    """The cache of ``policy_for``, because every request asks and an answer searches all patterns."""

    def entry_for(self, model: str) -> ModelEntry | None:
        """Return the entry that serves a client's name: the name's own, else the longest wildcard's."""
        first: dict[str, ModelEntry] = {}
        for entry in self.model_list:
            first.setdefault(entry.name, entry)
        if model in first:
            return first[model]
        return most_specific({name: entry for name, entry in first.items() if "*" in name}, model)

    def compaction_for(self, model: str) -> CompactionSettings:
        """Return the compaction keys that apply to a client's name.

        The more specific value wins: defaults, glob, then the entry's own. A value of ``models.yaml`` replaces only
        Tidemark's own defaults, never a default that the file changed.
        """
        entry = self.entry_for(model)
        shipped = self.model_defaults.find(_lookup_name(entry, model))
        settings, own = self.compaction.defaults, CompactionSettings()
        if shipped is not None:
            untouched = {
                name: value
                for name, value in shipped.compaction.items()
                if getattr(settings, name) == getattr(own, name) and name not in self.stored_keys
            }
            settings = changed(settings, untouched)
        settings = changed(settings, most_specific(self.compaction.models, model) or {})
        return changed(settings, entry.compaction if entry else {})

    def keep_for(self, model: str) -> Keep:
        """Return what is stored of the requests of a client's name for a model."""
        stated = {pattern: own.keep for pattern, own in self.store_models.items() if own.keep is not None}
        return most_specific(stated, model) or self.store.keep

    @property
    def ttl_days_by_model(self) -> Mapping[str, float]:
        """``ttl_days`` of ``store.models``, by name or pattern, of those that state it."""
        stated = {pattern: own.ttl_days for pattern, own in self.store_models.items()}
        return {pattern: days for pattern, days in stated.items() if days is not None}

    def policy_for(self, model: str) -> CompactionPolicy:
        """Return the compaction policy for a client's name."""
        policy = self._policies.get(model)
        if policy is None:
            policy = dataclasses.replace(self.compaction_for(model).policy(), keep=self.keep_for(model))
            self._policies.put(model, policy)
        return policy

    def windows(self) -> Mapping[str, ModelWindow]:
        """Return the windows that ``model_info`` states, by ``model_name``, with wildcards as written."""
        stated = (entry for entry in reversed(self.model_list) if entry.window != WindowNote())
        return {entry.name: self._window_of(entry, entry.name) for entry in stated}

    def window_for(self, model: str) -> ModelWindow | None:
        """Return the window of ``model_info`` (``manual``), else of ``models.yaml`` (``api``), else None."""
        entry = self.entry_for(model)
        if entry is not None and entry.window != WindowNote():
            return self._window_of(entry, model)
        shipped = self.model_defaults.find(_lookup_name(entry, model))
        return shipped.window.window("api") if shipped is not None and shipped.window.states_window else None

    def listening(self, *, host: str | None = None, port: int | None = None, workers: int | None = None) -> Settings:
        """Return these settings with the command line's values for the server."""
        arguments = {"host": host, "port": port, "workers": workers}
        server = changed(self.server, {name: value for name, value in arguments.items() if value is not None})
        stated = {f"server.{name}": "command line" for name, value in arguments.items() if value is not None}
        return dataclasses.replace(self, server=server, sources={**self.sources, **stated})

    def _window_of(self, entry: ModelEntry, model: str) -> ModelWindow:
        shipped = self.model_defaults.find(_lookup_name(entry, model))
        return entry.window.over(shipped.window if shipped else WindowNote()).window("manual")


def _lookup_name(entry: ModelEntry | None, model: str) -> str:
    """Return the name to look a model up by: the upstream's, or the client's if a wildcard serves it."""
    return model if entry is None or "*" in entry.name else entry.lookup_name
