"""Lists the features. To leave one out, delete its line here and its folder.

``application.py`` plugs them in, and ``cli/main.py`` finds their commands by the same list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from importlib.util import find_spec
from pkgutil import resolve_name
from typing import TYPE_CHECKING, TypeVar

from tidemark.core.errors import ConfigError

if TYPE_CHECKING:
    from tidemark.config import Settings
    from tidemark.features.feature import Feature
    from tidemark.server.describing import Operation
    from tidemark.worker.worker import Worker

FEATURES = (
    "conversations.feature:ConversationsFeature",
    "summaries.feature:SummariesFeature",
    "responses.feature:ResponsesFeature",
    "live_events.feature:LiveEventsFeature",
    "traffic.feature:TrafficFeature",
    "bill.feature:BillFeature",
    "memory_flush.feature:MemoryFlushFeature",
    "model_registry.feature:ModelRegistryFeature",
    "settings.feature:SettingsFeature",
    "keys.feature:KeysFeature",
    "offline.feature:OfflineFeature",
    "request_log.feature:RequestLogFeature",
    "audit.feature:AuditFeature",
    "upkeep",
    "tenants.feature:TenantsFeature",
)
"""The class of each feature, by its place in ``tidemark/features``, or the folder of one that has commands alone.

A command imports none that it does not need."""
_ASKED_FOR: Mapping[str, tuple[str, Callable[[Settings], bool]]] = {
    "keys": ("auth.mode: keys", lambda settings: settings.auth.mode == "keys"),
    "live_events": ("events.webhook", lambda settings: settings.events.webhook is not None),
    "memory_flush": ("memory_flush.enabled", lambda settings: settings.memory_flush.enabled),
}
"""By feature: the setting that asks for it, and whether it does."""
F = TypeVar("F", bound="Feature")


def plug_in(worker: Worker) -> list[Feature]:
    """Make all features of a worker, and give it their listeners and hooks."""
    classes = [resolve_name(f"tidemark.features.{name}") for name in FEATURES if ":" in name]
    features: list[Feature] = [make(worker) for make in classes]
    for feature in features:
        worker.emit.listeners += feature.listeners()
        worker.deletion_hooks += feature.deletion_hooks()
        worker.flushes += feature.flushes()
        worker.savings += feature.savings()
    return features


def feature_modules(name: str) -> Iterator[str]:
    """Yield the modules of a name that features have, such as their commands, without importing a feature."""
    for feature in FEATURES:
        module = f"tidemark.features.{feature.partition('.')[0]}.{name}"
        if find_spec(module) is not None:
            yield module


def descriptions() -> list[Operation]:
    """Return what the features say of their endpoints."""
    modules = feature_modules("description")
    return [operation for module in modules for operation in resolve_name(f"{module}:OPERATIONS")]


def check_settings(settings: Settings) -> None:
    """Refuse what would let every worker fail at its start, or be ignored.

    :raises ConfigError: a setting asks for a feature that was left out, or a feature cannot start with its settings
    """
    present = {feature.partition(".")[0] for feature in FEATURES}
    for feature, (setting, asks) in _ASKED_FOR.items():
        if feature not in present and asks(settings):
            raise ConfigError(
                f"{setting} asks for the feature {feature}, which this Tidemark was built without. Unset it."
            )
    if settings.privacy.hook is not None:
        resolve_name("tidemark.privacy.patterns:load_hook")(settings.privacy.hook)
    for module in feature_modules("starting"):
        resolve_name(f"{module}:check")(settings)


def find(kind: type[F], features: list[Feature]) -> F:
    """Return the feature of a kind."""
    return next(feature for feature in features if isinstance(feature, kind))
