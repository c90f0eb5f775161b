"""Describes the endpoints of summaries by hand and of receipts, for ``/openapi.json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from tidemark.core.conversation.summary import TemplateName
from tidemark.features.conversations.description import CONVERSATION, PAGE, of_conversations, paged
from tidemark.server.describing import (
    NUMBER,
    OBJECT,
    TEXT,
    TEXT_OR_NULL,
    TRUTH,
    WHOLE,
    WHOLE_OR_NULL,
    Answer,
    Body,
    Shape,
    choice,
    constant,
    list_of,
    members,
    text,
    whole,
)

_MODEL = text(1, 256)
_STRATEGY = choice("extractive", "llm", "hybrid")
_UNVERSIONED: Mapping[str, Shape] = {
    "conversation": TEXT,
    "summary": TEXT,
    "strategy": TEXT,
    "written_with": TEXT,
    "edited": TRUTH,
    "summarized_messages": WHOLE,
    "text_tokens": WHOLE,
    "max_text_tokens": WHOLE,
    "tokens_before": WHOLE,
    "tokens_after": WHOLE,
}
_IN_USE = members({**_UNVERSIONED, "version": TEXT})
_RECEIPT = members(
    {
        "object": constant("summary.receipt"),
        "prefix": TEXT,
        "version": TEXT,
        "summarized_messages": WHOLE,
        "strategy": TEXT,
        "in_use": TRUTH,
        "kept": OBJECT,
        "unsupported": OBJECT,
        "lost": list_of(members({"kind": TEXT, "text": TEXT, "survival": TEXT})),
        "more_lost": WHOLE_OR_NULL,
    }
)
_REFUSALS = (401, 404, 409, 429, 502, 504, 507)
_SUMMARIES = f"{CONVERSATION}/summaries"
OPERATIONS = (
    of_conversations(
        "GET",
        f"{CONVERSATION}/receipts",
        "Tell for each summary what was lost.",
        members({"object": constant("list"), "conversation": TEXT, **paged(_RECEIPT)}),
        *PAGE,
    ),
    of_conversations(
        "POST",
        f"{CONVERSATION}/summarize",
        "Compact a stored conversation.",
        Answer(
            {
                "application/json": members(
                    {
                        "conversation": TEXT,
                        "summary": TEXT,
                        "strategy": TEXT_OR_NULL,
                        "summarized_messages": WHOLE,
                        "tokens_before": WHOLE,
                        "tokens_after": WHOLE,
                    },
                    {"outcome": constant("nothing_to_summarize"), "warning": TEXT},
                )
            },
            reports=True,
        ),
        body=Body(
            members({}, {"retention_tokens": whole(0), "regenerate": TRUTH, "model": _MODEL}, only=True),
            required=False,
        ),
        refusals=_REFUSALS,
    ),
    of_conversations(
        "POST",
        _SUMMARIES,
        "Put a preview or an edited text into use.",
        _IN_USE,
        body=Body(members({}, {"text": TEXT, "version": TEXT, "preview": TEXT}, only=True)),
        refusals=_REFUSALS,
    ),
    of_conversations(
        "POST",
        f"{_SUMMARIES}/preview",
        "Write the summary in use once more.",
        members({"preview": TEXT, "expires_in": NUMBER, **_UNVERSIONED, "present": _IN_USE}),
        body=Body(
            members(
                {}, {"model": _MODEL, "strategy": _STRATEGY, "template": choice(*get_args(TemplateName))}, only=True
            ),
            required=False,
        ),
        refusals=_REFUSALS,
    ),
)
