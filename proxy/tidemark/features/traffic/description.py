"""Describes the figures of requests, for ``/openapi.json``."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.core.traffic import MAX_WINDOW_SECONDS, MIN_WINDOW_SECONDS
from tidemark.server.describing import (
    NUMBER,
    OBJECT,
    TEXT,
    WHOLE,
    Shape,
    in_query,
    list_of,
    members,
    operation,
    whole,
)

_FIGURES: Mapping[str, Shape] = {
    "requests": WHOLE,
    "tokens_before": WHOLE,
    "tokens_after": WHOLE,
    "tokens_saved": {"type": "integer"},
    "compactions": OBJECT,
    "summarizer_failures": WHOLE,
    "shed": WHOLE,
    "cached_tokens": WHOLE,
    "overhead_seconds": OBJECT,
    "upstream_first_byte_seconds": OBJECT,
}
_NAMES: Mapping[str, Shape] = {"models": list_of(TEXT), "tenants": list_of(TEXT)}
OPERATIONS = (
    operation(
        "operator",
        "GET",
        "/tidemark/stats",
        "Return the figures of all requests over some seconds, or those of a model or a tenant.",
        members({"window": NUMBER, **_FIGURES, **_NAMES, "series": list_of(members({"start": NUMBER, **_FIGURES}))}),
        in_query("window", whole(MIN_WINDOW_SECONDS, MAX_WINDOW_SECONDS)),
        in_query("model", TEXT, "One of models."),
        in_query("tenant", TEXT, "One of tenants, the beginning of one, or its name. Not with model."),
    ),
)
