"""Describes the bill, for ``/openapi.json``."""

from __future__ import annotations

from tidemark.core.bill import BillFigures, bill_json
from tidemark.server.describing import (
    NUMBER_OR_NULL,
    TEXT,
    Operation,
    choice,
    in_query,
    json_answer,
    list_of,
    members,
)

_BILL = dict.fromkeys(bill_json(BillFigures()), NUMBER_OR_NULL)
OPERATIONS = (
    Operation(
        method="GET",
        path="/tidemark/gain",
        summary="Return what requests cost.",
        access="operator",
        parameters=(
            in_query("since", {"type": "string", "pattern": "^[1-9][0-9]{0,2}d$"}, "A number of days, as 7d."),
            in_query("by", choice("model", "day")),
        ),
        answers={
            200: json_answer(
                members(
                    {
                        "first": TEXT,
                        "last": TEXT,
                        **_BILL,
                        "data": list_of(members(_BILL, {"model": TEXT, "day": TEXT})),
                    }
                )
            )
        },
    ),
)
"""Those of this feature."""
