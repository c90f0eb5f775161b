"""Describes the bill, for ``/openapi.json``."""

from __future__ import annotations

from tidemark.core.bill import BillFigures, bill_json
from tidemark.server.describing import (
    NUMBER_OR_NULL,
    TEXT,
    choice,
    in_query,
    list_of,
    members,
    operation,
)

_BILL = dict.fromkeys(bill_json(BillFigures()), NUMBER_OR_NULL)
_OF_ONE = members(_BILL, {"model": TEXT, "day": TEXT})
OPERATIONS = (
    operation(
        "operator",
        "GET",
        "/tidemark/gain",
        "Return what requests cost.",
        members({"first": TEXT, "last": TEXT, **_BILL, "data": list_of(_OF_ONE)}),
        in_query("since", {"type": "string", "pattern": "^[1-9][0-9]{0,2}d$"}, "A number of days, as 7d."),
        in_query("by", choice("model", "day")),
    ),
)
