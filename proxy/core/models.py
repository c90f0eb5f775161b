"""The registry of models (FR-3.2, FR-4.1.3): what was found of each, what a person set, and how both become one.

Beside the budget on the road of a request: the catalog finds a window, what a person set goes over it. The store
keeps both apart, so that a reset leads back to what was found.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace

from proxy.core.planning.budget import CompactionPolicy, ModelProfile, ModelWindow

FieldValue = int | float | None
"""A field's value: tokens, a share for ``threshold``, or None for what was found."""


@dataclass(frozen=True, slots=True)
class ModelOverrides:
    """What a person set of a model, in the units of ``ModelWindow`` and ``CompactionPolicy``; None is not set."""

    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    context_window: int | None = None
    threshold: float | None = None
    retention_tokens: int | None = None

    @property
    def states_window(self) -> bool:
        """Whether it says how much goes in; a reply's length alone does not."""
        return self.max_input_tokens is not None or self.context_window is not None

    @property
    def given(self) -> dict[str, int | float]:
        """The fields that are set, by name."""
        values = {name: getattr(self, name) for name in SETTABLE}
        return {name: value for name, value in values.items() if value is not None}

    def changed(self, said: Mapping[str, FieldValue]) -> ModelOverrides:
        """These with the fields of ``said`` in place of their own; None takes one back.

        :raises ValueError: the window for input and output is smaller than that for input
        """
        made = replace(self, **said)  # type: ignore[arg-type] # the fields' own types, as the edge has checked
        if made.context_window and made.max_input_tokens and made.context_window < made.max_input_tokens:
            raise ValueError(made.context_window)
        return made

    def over_window(self, found: ModelWindow) -> ModelWindow:
        """The window as it holds. It is taken whole from one source: two halves fit nothing."""
        output = found.max_output_tokens if self.max_output_tokens is None else self.max_output_tokens
        most = self.max_input_tokens or self.context_window
        if most is None:
            return found if output == found.max_output_tokens else replace(found, max_output_tokens=output)
        return ModelWindow(most, output, self.context_window, "manual")

    def over_policy(self, policy: CompactionPolicy) -> CompactionPolicy:
        """The policy as it holds."""
        if self.threshold is None and self.retention_tokens is None:
            return policy
        return replace(
            policy,
            threshold=policy.threshold if self.threshold is None else self.threshold,
            retention_tokens=policy.retention_tokens if self.retention_tokens is None else self.retention_tokens,
        )


SETTABLE = tuple(one.name for one in fields(ModelOverrides))
NOTHING_SET = ModelOverrides()


@dataclass(frozen=True, slots=True)
class ModelObservation:
    """A model as a request found it, without what a person set in the registry."""

    provider: str
    model: str
    """As the upstream calls it."""
    name: str
    """As the client calls it; policies go by it."""
    window: ModelWindow
    threshold: float
    retention_tokens: int


@dataclass(frozen=True, slots=True)
class RegistryVersion:
    """Which state of the registry a worker has read; both are texts that never come back."""

    epoch: str
    """Another one after the store was emptied."""
    change: str
    """Another one after every change of overrides."""


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """One model of the registry."""

    provider: str
    model: str
    name: str
    seen: ModelObservation | None = None
    """None where a person set something before any request came."""
    overrides: ModelOverrides = NOTHING_SET
    created_at: float | None = None
    """Unix time, seconds; None while nothing of it is stored."""
    updated_at: float | None = None

    @property
    def id(self) -> str:
        """``provider:model``."""
        return model_id(self.provider, self.model)

    def profile(self, policy: CompactionPolicy) -> ModelProfile:
        """Window and policy as they hold.

        :param policy: the configured one for ``name``
        """
        found = self.seen.window if self.seen else ModelWindow()
        return ModelProfile(self.name, self.overrides.over_window(found), self.overrides.over_policy(policy))


def model_id(provider: str, model: str) -> str:
    """FR-4.1.3: the key of a model's record."""
    return f"{provider}:{model}"


def merged_observation(record: ModelRecord | None, sighting: ModelObservation, now: float) -> ModelRecord | None:
    """The record after a request has found its model; None where that changes nothing.

    The newest word holds, but an assumption never takes the place of something found: a server that is asked
    while it starts does not make its model unknown.
    """
    if record is None or record.seen is None:
        created = now if record is None or record.created_at is None else record.created_at
        overrides = NOTHING_SET if record is None else record.overrides
        return ModelRecord(sighting.provider, sighting.model, sighting.name, sighting, overrides, created, now)
    if sighting == record.seen or (sighting.window.source == "default" and record.seen.window.source != "default"):
        return None
    return replace(record, name=sighting.name, seen=sighting, updated_at=now)
