"""Describes the endpoints of stored responses and of OpenAI's conversations, for ``/openapi.json``."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.features.responses.endpoints import MAX_PAGE_ITEMS
from tidemark.server.describing import (
    ANYTHING,
    EVENTS,
    JSON,
    OBJECT,
    TEXT,
    TRUTH,
    WHOLE,
    Answer,
    Body,
    Operation,
    Parameter,
    Shape,
    choice,
    constant,
    in_path,
    in_query,
    list_of,
    members,
    operation,
    whole,
)
from tidemark.server.endpoints.description import MODEL_REFUSALS, RESPONSES_BODY

_OF_MODEL = in_query("model", TEXT, "A model of the upstream that may keep it.")
_RESPONSE = "/v1/responses/{id}"
_CONVERSATION = "/v1/conversations/{id}"
_ITEM = _CONVERSATION + "/items/{item}"
_PAGE = (
    in_query("order", choice("asc", "desc")),
    in_query("limit", whole(1, MAX_PAGE_ITEMS)),
    in_query("after", TEXT, "The id of the last item that the client has."),
)
_ITEMS: Shape = members(
    {"object": constant("list"), "data": list_of(OBJECT), "first_id": TEXT, "last_id": TEXT, "has_more": TRUTH}
)
_METADATA: Shape = {
    "type": ["object", "null"],
    "maxProperties": 16,
    "additionalProperties": {"type": "string", "maxLength": 512},
}
_KEPT: Shape = members({"id": TEXT, "object": constant("conversation"), "created_at": WHOLE, "metadata": OBJECT})
_ADDED: Shape = {"type": "array", "items": {"type": "object"}, "maxItems": 20}


def _operation(
    method: str, path: str, summary: str, answer: Shape | Answer, *parameters: Parameter, body: Body | None = None
) -> Operation:
    names: Sequence[Parameter] = (
        *((in_path("id", "An id that this credential was answered."),) if "{id}" in path else ()),
        *((in_path("item", "An item's id."),) if "{item}" in path else ()),
    )
    refusals, names = MODEL_REFUSALS, (*names, *parameters, _OF_MODEL)
    return operation("tenant", method, path, summary, answer, *names, body=body, refusals=refusals, carries=True)


OPERATIONS = (
    _operation(
        "POST",
        "/v1/responses/compact",
        "Compact a conversation for a client that carries it itself.",
        members({"id": TEXT, "object": TEXT, "output": list_of(OBJECT), "usage": OBJECT}),
        body=Body(RESPONSES_BODY),
    ),
    _operation(
        "GET",
        _RESPONSE,
        "Show a stored response.",
        Answer({JSON: members({"id": TEXT}), EVENTS: ANYTHING}),
        in_query("stream", choice("true", "false")),
        in_query("starting_after", whole(0, 10**15 - 1), "With stream=true: the number of an event."),
    ),
    _operation("DELETE", _RESPONSE, "Delete a stored response.", members({"id": TEXT, "deleted": TRUTH})),
    _operation("POST", f"{_RESPONSE}/cancel", "Cancel one that is made in the background.", OBJECT),
    _operation("GET", f"{_RESPONSE}/input_items", "List the items of its request.", _ITEMS, *_PAGE),
    _operation(
        "POST",
        "/v1/conversations",
        "Make a conversation.",
        _KEPT,
        body=Body(members({}, {"items": _ADDED, "metadata": _METADATA}), required=False),
    ),
    _operation("GET", _CONVERSATION, "Show a conversation.", _KEPT),
    _operation("POST", _CONVERSATION, "Replace its metadata.", _KEPT, body=Body(members({"metadata": _METADATA}))),
    _operation(
        "DELETE",
        _CONVERSATION,
        "Delete a conversation with its items.",
        members({"id": TEXT, "object": constant("conversation.deleted"), "deleted": TRUTH}),
    ),
    _operation("GET", f"{_CONVERSATION}/items", "List its items.", _ITEMS, *_PAGE),
    _operation("POST", f"{_CONVERSATION}/items", "Add items.", _ITEMS, body=Body(members({"items": _ADDED}))),
    _operation("GET", _ITEM, "Show an item.", members({"id": TEXT, "type": TEXT})),
    _operation("DELETE", _ITEM, "Delete an item.", _KEPT),
)
