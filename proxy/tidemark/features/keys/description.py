"""Describes the keys of clients, for ``/openapi.json``."""

from __future__ import annotations

from tidemark.features.keys.fields import GRACE, MOST_HOURS, QUOTAS
from tidemark.server.describing import (
    TEXT,
    TEXT_OR_NULL,
    TRUTH,
    WHOLE_OR_NULL,
    Body,
    Shape,
    constant,
    in_path,
    list_of,
    listed,
    members,
    operation,
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


_MISSING = (404, 409)
OPERATIONS = (
    operation("operator", "GET", _KEYS, "List the keys.", listed(_SHOWN), refusals=(409,)),
    operation(
        "operator",
        "POST",
        _KEYS,
        "Make a key, whose secret is shown once.",
        _WITH_SECRET,
        body=Body(members({"name": TEXT}, _OPTIONAL, only=True)),
        status=201,
        refusals=(409,),
    ),
    operation("operator", "GET", _KEY, "Show a key.", _SHOWN, _ID, refusals=_MISSING),
    operation(
        "operator",
        "PATCH",
        _KEY,
        "Change a key; null resets a field.",
        _SHOWN,
        _ID,
        body=Body(members({}, {"name": TEXT, **_OPTIONAL}, only=True)),
        refusals=_MISSING,
    ),
    operation("operator", "DELETE", _KEY, "Revoke a key.", _SHOWN, _ID, refusals=_MISSING),
    operation(
        "operator",
        "POST",
        f"{_KEY}/rotate",
        "Give a key a new secret.",
        _WITH_SECRET,
        _ID,
        body=Body(members({}, {GRACE: {"type": "number", "minimum": 0, "maximum": MOST_HOURS}}, only=True)),
        refusals=_MISSING,
    ),
)
