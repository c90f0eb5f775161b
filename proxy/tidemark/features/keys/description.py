"""Describes the keys of clients, for ``/openapi.json``."""

from __future__ import annotations

from tidemark.features.keys.fields import GRACE, MOST_HOURS, QUOTAS
from tidemark.server.describing import (
    TEXT,
    TEXT_OR_NULL,
    TRUTH,
    WHOLE_OR_NULL,
    Body,
    Operation,
    Parameter,
    Shape,
    constant,
    in_path,
    json_answer,
    list_of,
    members,
)

_KEYS = "/tidemark/keys"
_KEY = _KEYS + "/{id}"
_ID = in_path("id", "A key's id.")
_FIELDS = {
    "id": TEXT,
    "object": constant("tidemark.key"),
    "name": TEXT,
    "tenant": TEXT,
    "owner": TEXT,
    "models": list_of(TEXT),
    "expires": TEXT_OR_NULL,
    "expired": TRUTH,
    "created": TEXT_OR_NULL,
    "rotated": TEXT_OR_NULL,
    "former_until": TEXT_OR_NULL,
    **dict.fromkeys(QUOTAS, WHOLE_OR_NULL),
}
_WARNED = {"warnings": list_of(TEXT)}
_SHOWN = members(_FIELDS, _WARNED)
_WITH_SECRET = members({**_FIELDS, "key": TEXT}, _WARNED)
_OPTIONAL: dict[str, Shape] = {
    "tenant": TEXT_OR_NULL,
    "models": {"type": ["array", "null"], "items": {"type": "string"}},
    "expires": TEXT_OR_NULL,
    **dict.fromkeys(QUOTAS, WHOLE_OR_NULL),
}


def _operation(
    method: str,
    path: str,
    summary: str,
    answer: Shape,
    *names: Parameter,
    body: Body | None = None,
    status: int = 200,
) -> Operation:
    return Operation(
        method=method,
        path=path,
        summary=summary,
        access="operator",
        parameters=names,
        body=body,
        answers={status: json_answer(answer)},
        refusals=(404, 409) if names else (409,),
    )


OPERATIONS = (
    _operation("GET", _KEYS, "List the keys.", members({"object": constant("list"), "data": list_of(_SHOWN)})),
    _operation(
        "POST",
        _KEYS,
        "Make a key, whose secret is shown once.",
        _WITH_SECRET,
        body=Body(members({"name": TEXT}, _OPTIONAL, only=True)),
        status=201,
    ),
    _operation("GET", _KEY, "Show a key.", _SHOWN, _ID),
    _operation(
        "PATCH",
        _KEY,
        "Change a key; null resets a field.",
        _SHOWN,
        _ID,
        body=Body(members({}, {"name": TEXT, **_OPTIONAL}, only=True)),
    ),
    _operation("DELETE", _KEY, "Revoke a key.", _SHOWN, _ID),
    _operation(
        "POST",
        f"{_KEY}/rotate",
        "Give a key a new secret.",
        _WITH_SECRET,
        _ID,
        body=Body(members({}, {GRACE: {"type": "number", "minimum": 0, "maximum": MOST_HOURS}}, only=True)),
    ),
)
"""Those of this feature."""
