"""Describes the stream of live events, for ``/openapi.json``."""

from __future__ import annotations

from tidemark.features.live_events.feature import PATH
from tidemark.server.describing import ANYTHING, EVENTS, TEXT, Answer, in_header, operation

OPERATIONS = (
    operation(
        "tenant",
        "GET",
        PATH,
        "Stream live events of the caller's conversations, or of all for the operator.",
        Answer({EVENTS: ANYTHING}),
        in_header("Last-Event-ID", TEXT, "The id of an event of this stream."),
        refusals=(413,),
    ),
)
