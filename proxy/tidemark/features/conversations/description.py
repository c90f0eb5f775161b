"""Describes the endpoints of stored conversations, for ``/openapi.json``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidemark.core.bill import BillFigures, bill_json
from tidemark.features.conversations.paging import MAX_PAGE_ENTRIES
from tidemark.server.describing import (
    ANYTHING,
    NUMBER,
    NUMBER_OR_NULL,
    OBJECT,
    TEXT,
    TEXT_OR_NULL,
    TRUTH,
    WHOLE,
    WHOLE_OR_NULL,
    Answer,
    Body,
    Operation,
    Parameter,
    Shape,
    constant,
    in_path,
    in_query,
    list_of,
    members,
    operation,
    text,
    whole,
)

CONVERSATIONS = "/tidemark/conversations"
CONVERSATION = CONVERSATIONS + "/{id}"
NAMED = in_path("id", "A conversation's id, or the client's own name of it.")
PAGE = (
    in_query("limit", whole(1, MAX_PAGE_ENTRIES)),
    in_query("cursor", TEXT, "The next_cursor of the page before."),
)
_MOST_CHARACTERS = 1000
BILL: Shape = members(dict.fromkeys(bill_json(BillFigures()), NUMBER_OR_NULL))
_HEAD: Mapping[str, Shape] = {
    "object": constant("conversation"),
    "id": TEXT,
    "name": TEXT_OR_NULL,
    "model": TEXT,
    "client": TEXT_OR_NULL,
    "dialect": TEXT_OR_NULL,
    "messages": WHOLE,
    "tokens": WHOLE,
    "turns": WHOLE,
    "summaries": WHOLE,
    "last_summary_at": NUMBER_OR_NULL,
    "created_at": NUMBER_OR_NULL,
    "updated_at": NUMBER_OR_NULL,
    "parent": TEXT_OR_NULL,
    "parent_messages": WHOLE_OR_NULL,
}
_MESSAGE: Mapping[str, Shape] = {
    "position": WHOLE,
    "id": TEXT,
    "state": TEXT,
    "tokens": WHOLE,
    "created_at": NUMBER_OR_NULL,
    "message": ANYTHING,
}
_MORE_OF_MESSAGE: Mapping[str, Shape] = {
    "input_tokens": WHOLE_OR_NULL,
    "output_tokens": WHOLE_OR_NULL,
    "source": ANYTHING,
    "original": ANYTHING,
}
_SUMMARY: Mapping[str, Shape] = {
    "prefix": TEXT,
    "previous": TEXT_OR_NULL,
    "summarized_messages": WHOLE,
    "text": TEXT,
    "tokens": WHOLE,
    "strategy": TEXT,
    "created_at": NUMBER,
    "in_use": TRUTH,
    "version": TEXT,
    "kept": OBJECT,
    "unsupported": OBJECT,
    "edited": TRUTH,
    "written_with": TEXT,
    "versions": list_of(OBJECT),
}


def paged(entry: Shape) -> Mapping[str, Shape]:
    """Return the shapes of the members that every page of a list has."""
    return {"data": list_of(entry), "has_more": TRUTH, "next_cursor": TEXT_OR_NULL}


def of_conversations(
    method: str,
    path: str,
    summary: str,
    answer: Shape | Answer,
    *parameters: Parameter,
    status: int = 200,
    body: Body | None = None,
    refusals: Sequence[int] = (404,),
) -> Operation:
    """Return the description of an operation on a tenant's conversations."""
    names = (NAMED, *parameters) if "{id}" in path else parameters
    return operation("tenant", method, path, summary, answer, *names, body=body, status=status, refusals=refusals)


_LIST = constant("list")
_FILTER = text(0, _MOST_CHARACTERS)
_FOUND = members({**_HEAD, "summarized_messages": WHOLE, "usage_percent": NUMBER_OR_NULL})
_LISTED: Mapping[str, Shape] = {"object": _LIST, **paged(members(_HEAD))}
OPERATIONS = (
    of_conversations(
        "GET",
        CONVERSATIONS,
        "List the caller's conversations.",
        members(_LISTED, {"unreadable": list_of(TEXT)}),
        *PAGE,
        in_query("client", _FILTER, "The beginning of the name of the newest request's program."),
        in_query("dialect", _FILTER, "The dialect of the newest request: chat, messages or responses."),
    ),
    of_conversations(
        "POST",
        f"{CONVERSATIONS}/search",
        "Find the caller's conversations.",
        members({"object": _LIST, **paged(_FOUND), "searched": WHOLE}, {"unreadable": list_of(TEXT)}),
        *PAGE,
        body=Body(
            members({}, dict.fromkeys(("query", "model", "state", "client", "dialect"), _FILTER), only=True),
            required=False,
        ),
    ),
    of_conversations(
        "POST",
        f"{CONVERSATIONS}/import",
        "Store lines of JSON as a conversation.",
        members({"id": TEXT}),
        in_query("model", text(1, 256), required=True),
        in_query("name", text(1, 256)),
        status=201,
        body=Body(TEXT, ("application/jsonl",)),
        refusals=(404, 409, 429, 502, 507),
    ),
    of_conversations(
        "GET",
        CONVERSATION,
        "Show a conversation with a page of its messages.",
        members(
            {
                **_HEAD,
                "summarized_messages": WHOLE,
                "usage": OBJECT,
                "bill": {"anyOf": [{**BILL}, {"type": "null"}]},
                **paged(members(_MESSAGE, _MORE_OF_MESSAGE)),
            }
        ),
        *PAGE,
    ),
    of_conversations(
        "DELETE",
        CONVERSATION,
        "Delete a conversation.",
        members({"object": constant("conversation.deleted"), "id": TEXT, "deleted": TRUTH}),
    ),
    of_conversations(
        "GET",
        f"{CONVERSATION}/context",
        "Show what the model would see now, or saw at a message.",
        members(
            {
                "object": constant("conversation.context"),
                "conversation": TEXT,
                "at": WHOLE,
                "exact": TRUTH,
                "model": TEXT,
                "messages": list_of(ANYTHING),
                "summarized_messages": WHOLE,
            },
            {"tokens": WHOLE, "limit": WHOLE},
        ),
        in_query("at", whole(1, 10**9)),
        refusals=(404, 502, 504),
    ),
    of_conversations(
        "GET",
        f"{CONVERSATION}/summaries",
        "List a conversation's summaries.",
        members({"object": _LIST, "conversation": TEXT, **paged(members(_SUMMARY))}),
        *PAGE,
    ),
    of_conversations(
        "GET",
        f"{CONVERSATION}/search",
        "Search all messages of a conversation.",
        members(
            {
                "object": _LIST,
                "conversation": TEXT,
                **paged(members({**_MESSAGE, "snippet": TEXT, "score": NUMBER}, _MORE_OF_MESSAGE)),
            }
        ),
        in_query("q", text(1, _MOST_CHARACTERS), required=True),
        *PAGE,
    ),
    of_conversations(
        "GET",
        f"{CONVERSATION}/results/{{handle}}",
        "Show a message by the handle of a model's search.",
        Answer({"text/plain": TEXT}),
        in_path("handle", "The handle."),
    ),
    of_conversations(
        "GET", f"{CONVERSATION}/export", "Export a conversation as lines of JSON.", Answer({"application/jsonl": TEXT})
    ),
)
