"""Records of models (FR-3.2, FR-4.1.3): what was observed, what the operator set, and how both are combined.

The catalog observes a model's window before the budget is made, and the operator's overrides replace it. The store
keeps both apart, so that a reset restores what was observed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import fields, replace

from tidemark.core.frozen import frozen
from tidemark.core.planning.budget import CompactionPolicy, ModelProfile, ModelWindow

FieldValue = int | float | None
"""A field's value: tokens, a share for ``threshold``, or None for the observed value."""


@frozen
class ModelOverrides:
    """Settings of a model by the operator, in the units of ``ModelWindow`` and ``CompactionPolicy``; None is unset."""

    max_input_tokens: int | None = None
    max_output_tokens: int | None = None
    context_window: int | None = None
    threshold: float | None = None
    retention_tokens: int | None = None

    @property
    def states_window(self) -> bool:
        """Return whether the length of the input is set; the reply's length alone sets no window."""
        return self.max_input_tokens is not None or self.context_window is not None

    @property
    def set_fields(self) -> dict[str, int | float]:
        values = {name: getattr(self, name) for name in SETTABLE}
        return {name: value for name, value in values.items() if value is not None}

    @property
    def version(self) -> str:
        """Return a text that differs if the settings differ, for people who edit one model at once."""
        return "v" + hashlib.sha256(json.dumps(self.set_fields, sort_keys=True).encode()).hexdigest()[:16]

    def with_fields(self, changes: Mapping[str, FieldValue]) -> ModelOverrides:
        """Return the overrides with some fields replaced; None unsets a field.

        :raises ValueError: the window for input and output is smaller than that for input
        """
        overrides = replace(self, **changes)  # type: ignore[arg-type] # the fields' own types, as the edge has checked
        shared, most = overrides.context_window, overrides.max_input_tokens
        if shared and most and shared < most:
            raise ValueError(shared)
        return overrides

    def over_window(self, observed: ModelWindow) -> ModelWindow:
        """Return the window that applies. It comes whole from one source, because parts of two do not match."""
        output = observed.max_output_tokens if self.max_output_tokens is None else self.max_output_tokens
        most = self.max_input_tokens or self.context_window
        if most is None:
            return observed if output == observed.max_output_tokens else replace(observed, max_output_tokens=output)
        return ModelWindow(most, output, self.context_window, "manual")

    def over_policy(self, policy: CompactionPolicy) -> CompactionPolicy:
        if self.threshold is None and self.retention_tokens is None:
            return policy
        return replace(
            policy,
            threshold=policy.threshold if self.threshold is None else self.threshold,
            by_price=policy.by_price and self.threshold is None,
            retention_tokens=policy.retention_tokens if self.retention_tokens is None else self.retention_tokens,
        )


SETTABLE = tuple(field.name for field in fields(ModelOverrides))
NOTHING_SET = ModelOverrides()


@frozen
class ModelObservation:
    """What a request showed of a model, without the operator's overrides."""

    provider: str
    model: str
    """The upstream's name for the model."""
    name: str
    """The client's name for the model; policies match it."""
    window: ModelWindow
    threshold: float
    retention_tokens: int


@frozen
class RegistryVersion:
    """The state of the registry that a worker has read. No value of either text is used twice."""

    epoch: str
    """It changes when the store is emptied."""
    change: str
    """It changes with every change of overrides."""


@frozen
class ModelRecord:
    """One model of the registry."""

    provider: str
    model: str
    name: str
    observation: ModelObservation | None = None
    """None if the operator set something before any request used the model."""
    overrides: ModelOverrides = NOTHING_SET
    created_at: float | None = None
    """Unix time, seconds; None while the record is not stored."""
    updated_at: float | None = None

    @property
    def id(self) -> str:
        """Return ``provider:model``."""
        return model_id(self.provider, self.model)

    def profile(self, policy: CompactionPolicy) -> ModelProfile:
        """Return the window and the policy that apply.

        :param policy: the configured one for ``name``
        """
        observed = self.observation.window if self.observation else ModelWindow()
        return ModelProfile(self.name, self.overrides.over_window(observed), self.overrides.over_policy(policy))


def model_id(provider: str, model: str) -> str:
    """Return the id of a model's record (FR-4.1.3)."""
    return f"{provider}:{model}"


def merged_observation(record: ModelRecord | None, observation: ModelObservation, now: float) -> ModelRecord | None:
    """Return the record after a request has observed its model; None if that changes nothing.

    The newest observation wins, but a default never replaces a window that a source stated: a server that is asked
    while it starts does not make its model unknown.
    """
    if record is None or record.observation is None:
        created = now if record is None or record.created_at is None else record.created_at
        overrides = NOTHING_SET if record is None else record.overrides
        return ModelRecord(
            observation.provider, observation.model, observation.name, observation, overrides, created, now
        )
    if observation == record.observation or (
        observation.window.source == "default" and record.observation.window.source != "default"
    ):
        return None
    return replace(record, name=observation.name, observation=observation, updated_at=now)
