"""Describes the stream of live events, for ``/openapi.json``."""

from __future__ import annotations

from tidemark.features.live_events.feature import PATH
from tidemark.server.describing import ANYTHING, EVENTS, TEXT, Answer, Operation, in_header

OPERATIONS = (
    Operation(
        method="GET",
        path=PATH,
        summary="Stream live events of the caller's conversations, or of all for the operator.",
        access="tenant",
        parameters=(in_header("Last-Event-ID", TEXT, "The id of an event of this stream."),),
        answers={200: Answer({EVENTS: ANYTHING})},
        refusals=(413,),
    ),
)
"""Those of this feature."""
