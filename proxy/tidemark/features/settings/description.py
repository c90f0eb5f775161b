"""Describes the operator's settings, for ``/openapi.json``."""

from __future__ import annotations

from tidemark.config.stored import STORED_KINDS
from tidemark.server.describing import ANYTHING, OBJECT, TEXT, Body, constant, list_of, members, operation

_PATH = "/tidemark/settings"
_SETTINGS = dict.fromkeys(STORED_KINDS, ANYTHING)
_SHOWN = members(
    {
        "object": constant("tidemark.settings"),
        **_SETTINGS,
        "stored": list_of(TEXT),
        "ignored": OBJECT,
        "version": TEXT,
    }
)
OPERATIONS = tuple(
    operation(
        "operator",
        method,
        _PATH,
        summary,
        _SHOWN,
        body=Body(members({}, {**_SETTINGS, "version": TEXT}, only=True)) if method == "PUT" else None,
        refusals=(409,),
    )
    for method, summary in (
        ("GET", "Show the settings for all models."),
        ("PUT", "Set some settings; null resets one."),
        ("DELETE", "Remove all stored settings."),
    )
)
