"""Describes the registry of models, for ``/openapi.json``."""

from __future__ import annotations

from tidemark.config.stored import OVERRIDE_KINDS
from tidemark.server.describing import (
    NUMBER,
    NUMBER_OR_NULL,
    OBJECT,
    TEXT,
    WHOLE,
    WHOLE_OR_NULL,
    Body,
    Shape,
    constant,
    in_path,
    listed,
    members,
    operation,
)

_MODELS = "/tidemark/models"
_MODEL = _MODELS + "/{model}"
_NAMED = in_path("model", "A model's id or name, which may have slashes.")
_MARK: Shape = {"type": ["number", "string"]}
_SHOWN = members(
    {
        "id": TEXT,
        "object": constant("tidemark.model"),
        "provider": TEXT,
        "model": TEXT,
        "name": TEXT,
        "max_input_tokens": WHOLE_OR_NULL,
        "max_output_tokens": WHOLE_OR_NULL,
        "context_window": WHOLE_OR_NULL,
        "threshold": _MARK,
        "price_floor": NUMBER_OR_NULL,
        "retention_tokens": WHOLE,
        "source": TEXT,
        "overrides": OBJECT,
        "version": TEXT,
        "target": NUMBER,
        "window": WHOLE,
        "limit": WHOLE,
        "high_water": WHOLE,
        "prepare": WHOLE_OR_NULL,
        "low_water": WHOLE,
        "retention": WHOLE,
        "calibration": {"type": ["object", "null"]},
        "created_at": NUMBER_OR_NULL,
        "updated_at": NUMBER_OR_NULL,
    }
)
_FIELD: Shape = {"type": ["number", "string", "null"]}
_CHANGED = members({}, {**dict.fromkeys(OVERRIDE_KINDS, _FIELD), "version": TEXT}, only=True)


_REFUSALS = (404, 409, 502, 504)
OPERATIONS = (
    operation("tenant", "GET", _MODELS, "List the registry.", listed(_SHOWN), refusals=_REFUSALS),
    operation("tenant", "GET", _MODEL, "Show a model of the registry.", _SHOWN, _NAMED, refusals=_REFUSALS),
    operation(
        "operator",
        "PUT",
        _MODEL,
        "Set fields of a model; null resets one.",
        _SHOWN,
        _NAMED,
        body=Body(_CHANGED),
        refusals=_REFUSALS,
    ),
    operation("operator", "DELETE", _MODEL, "Remove what was set of a model.", _SHOWN, _NAMED, refusals=_REFUSALS),
)
