"""Describes the figures of requests, for ``/openapi.json``."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.core.traffic import MAX_WINDOW_SECONDS, MIN_WINDOW_SECONDS
from tidemark.server.describing import (
    NUMBER,
    OBJECT,
    WHOLE,
    Operation,
    Shape,
    in_query,
    json_answer,
    list_of,
    members,
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
    Operation(
        method="GET",
        path="/tidemark/stats",
        summary="Return the figures of all requests over some seconds.",
        access="operator",
        parameters=(in_query("window", whole(MIN_WINDOW_SECONDS, MAX_WINDOW_SECONDS)),),
        answers={
            200: json_answer(
                members({"window": NUMBER, **_FIGURES, "series": list_of(members({"start": NUMBER, **_FIGURES}))})
            )
        },
    ),
)
"""Those of this feature."""
