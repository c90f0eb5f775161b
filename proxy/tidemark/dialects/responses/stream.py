"""What ends an event stream of the Responses API, for ``dialects/event_stream.py``.

Source: OpenAI API reference, "Streaming events".
"""

from __future__ import annotations

import re

from tidemark.dialects.event_stream import EventStream
from tidemark.dialects.responses.reply import EventFold

FINAL = re.compile(rb'"response\.(?:completed|incomplete|failed|cancelled)"')
"""The type of a last event. Within a text it cannot stand, because its quotation marks are escaped there."""


def stream_fold() -> EventStream:
    """Begin to read a stream; what comes after the last event, such as ``[DONE]``, is skipped."""
    return EventStream(EventFold(), FINAL)
