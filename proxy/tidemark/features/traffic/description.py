"""Describes the figures of requests, for ``/openapi.json``."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.core.traffic import MAX_WINDOW_SECONDS, MIN_WINDOW_SECONDS
from tidemark.server.describing import (
    NUMBER,
    OBJECT,
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
}
OPERATIONS = (
    operation(
        "operator",
        "GET",
        "/tidemark/stats",
        "Return the figures of all requests over some seconds.",
        members({"window": NUMBER, **_FIGURES, "series": list_of(members({"start": NUMBER, **_FIGURES}))}),
        in_query("window", whole(MIN_WINDOW_SECONDS, MAX_WINDOW_SECONDS)),
    ),
)
"""Those of this feature."""
