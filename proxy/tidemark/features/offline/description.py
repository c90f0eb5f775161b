"""Describes what counts and compacts single requests, for ``/openapi.json``."""

from __future__ import annotations

from typing import get_args

from tidemark.core.conversation.summary import Strategy
from tidemark.server.describing import (
    NUMBER,
    OBJECT,
    TEXT,
    TEXT_OR_NULL,
    TRUTH,
    WHOLE,
    Body,
    choice,
    list_of,
    members,
    operation,
    whole,
)
from tidemark.server.endpoints.description import CHAT_BODY

OPERATIONS = (
    operation(
        "tenant",
        "POST",
        "/tidemark/count",
        "Count the tokens of a chat request.",
        members(
            {
                "input_tokens": WHOLE,
                "seconds": NUMBER,
                "model": TEXT_OR_NULL,
                "encoding": TEXT,
                "exact": TRUTH,
                "messages": WHOLE,
                "message_tokens": list_of(WHOLE),
                "other_tokens": WHOLE,
            }
        ),
        body=Body({**CHAT_BODY, "required": ["messages"]}),
    ),
    operation(
        "tenant",
        "POST",
        "/tidemark/compact",
        "Compact a chat request, and store nothing.",
        members(
            {
                "request": OBJECT,
                "summary": TEXT,
                "tokens_before": WHOLE,
                "tokens_after": WHOLE,
                "summarized_messages": WHOLE,
                "strategy": TEXT,
            }
        ),
        body=Body(
            members(
                {"request": {**CHAT_BODY, "required": ["messages"]}},
                {"max_tokens": whole(16), "strategy": choice(*get_args(Strategy))},
                only=True,
            )
        ),
        refusals=(401, 404, 429, 502, 504),
    ),
)
