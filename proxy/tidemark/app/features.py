"""Lists the features. To leave one out, delete its line here and its folder.

``application.py`` plugs them in, and ``cli/main.py`` finds their commands by the same list.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from tidemark.features.feature import Feature
    from tidemark.worker.worker import Worker

FEATURES = (
    "conversations.feature:Conversations",
    "summaries.feature:Summaries",
    "responses.feature:Responses",
    "live_events.feature:LiveEvents",
    "traffic.feature:Traffic",
    "memory_flush.feature:Flushing",
    "model_registry.feature:ModelRegistryFeature",
    "settings.feature:OperatorSettingsFeature",
    "offline.feature:Offline",
    "upkeep.feature:Upkeep",
)
"""The class of each feature, by its place in ``tidemark/features``; a command imports none that it does not need."""
F = TypeVar("F", bound="Feature")


def plug_in(worker: Worker) -> list[Feature]:
    """Make all features of a worker, and give it their listeners and hooks."""
    features: list[Feature] = [resolve_name(f"tidemark.features.{name}")(worker) for name in FEATURES]
    for feature in features:
        worker.emit.listeners += feature.listeners()
        worker.deletion_hooks += feature.deletion_hooks()
        worker.flushes += feature.flushes()
    return features


def find(kind: type[F], features: list[Feature]) -> F:
    """Return the feature of a kind."""
    return next(feature for feature in features if isinstance(feature, kind))
