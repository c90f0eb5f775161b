"""``/console/requests``: the newest requests, and both forms of one: as its client sent it, and as it was forwarded.

The list shows what ``GET /tidemark/requests`` returns, with the names of conversations: to the operator of all, to a
tenant of its own, to an auditor without a name. The forms are made of the stored conversation, since the log has no
text. They are opened, refused and noted in the audit log as the page of that conversation is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import get_args
from urllib.parse import urlencode

from starlette.responses import Response

from tidemark.console.messages import MessageContent, content_of
from tidemark.console.pages import HOME, Answer
from tidemark.console.texts import shortened
from tidemark.console.visit import Visit
from tidemark.core.conversation.records import ConversationRecord
from tidemark.core.errors import ConversationNotFound, InvalidRequest
from tidemark.core.frozen import frozen
from tidemark.features.conversations.context import ContextView
from tidemark.features.conversations.conversation_reader import ConversationReader
from tidemark.features.conversations.finding import ConversationFinder
from tidemark.features.conversations.pages import RequestForms
from tidemark.features.request_log.feature import FILTERS, conditions_of
from tidemark.features.request_log.reader import LoggedRequest, RequestConditions, RequestLogReader
from tidemark.store.request_facts import CHANGES, MOVED, Kind, RequestFacts

REQUESTS = f"{HOME}/requests"
ENTRIES = 50
MAX_SHOWN = 100
"""The most messages of one part of a form."""
MAX_COMPARED = 250_000
"""Pairs of messages that are compared; of more only the common beginning and end are found."""
DIALECTS: Mapping[str, str] = {
    "/v1/chat/completions": "Chat",
    "/v1/responses": "Responses",
    "/v1/messages": "Messages",
}
"""What a path is called in the list; another one is called by its end."""
KINDS: Mapping[Kind, str] = {
    "as_is": "Forwarded as it came",
    "reused": "Earlier summary used",
    "compacted": "Compacted",
    "forced": "Compacted on request",
    "bypassed": "Not compacted, as asked",
    "no_summary": "Summary failed",
    "own": "Answered by Tidemark",
    "carried": "Passed through",
    "refused": "Refused by Tidemark",
    "provider_error": "Error of the provider",
    "failed": "Failed",
    "cut_short": "Answer cut short",
    "left": "Client left",
}
"""What became of a request, in words."""
BAD_KINDS: frozenset[Kind] = frozenset({"no_summary", "refused", "provider_error", "failed", "cut_short"})
CHANGED_KINDS: frozenset[Kind] = frozenset({"compacted", "forced", "reused"})
STATUSES: Mapping[str, str] = {"2xx": "2xx, answered", "4xx": "4xx, refused", "5xx": "5xx, failed"}


@frozen
class ShownPart:
    """Messages of both forms that belong together."""

    is_same: bool
    client: Sequence[MessageContent]
    """Role, text and other parts of each message."""
    client_count: int
    forwarded: Sequence[MessageContent]
    forwarded_count: int


@frozen
class RequestPages:
    """Shows requests."""

    log: RequestLogReader
    conversations: ConversationReader
    finding: ConversationFinder
    contexts: ContextView
    models: Sequence[str]
    """The names of configured models, which the filter offers."""

    def answers(self) -> Sequence[tuple[str, str, Answer]]:
        return [("GET", REQUESTS, self._list), ("GET", f"{REQUESTS}/{{request}}", self._show)]

    async def _list(self, visit: Visit) -> Response:
        role, query = visit.visitor.role, visit.request.query_params
        conditions, cursor = conditions_of(query), visit.parameter("cursor") or None
        if not set(conditions.kinds) <= {*get_args(Kind)}:
            raise InvalidRequest("'kind' names no kind of request.", param="kind")
        page = await self.log.page(ENTRIES, cursor, conditions, visit.visitor.owner if role == "tenant" else None)
        filters = _filters(conditions)
        return visit.page(
            "requests.html",
            page=page,
            rows={f"request-{request.id}": request for request in page.requests},
            names=await self._names(visit, page.requests),
            conditions=conditions,
            models=sorted({*self.models, *(request.facts.model for request in page.requests)} - {""}),
            kinds=KINDS,
            statuses={
                **STATUSES,
                **({} if conditions.status in ("", *STATUSES) else {conditions.status: conditions.status}),
            },
            bad_kinds=BAD_KINDS,
            changed_kinds=CHANGED_KINDS,
            dialect_of=dialect_of,
            first=f"{REQUESTS}?{urlencode(filters)}" if filters else REQUESTS,
            older=urlencode({**filters, "cursor": page.next_cursor or ""}),
            is_first=cursor is None,
            events="" if cursor else f"{REQUESTS}?{urlencode(filters)}",
        )

    async def _show(self, visit: Visit) -> Response:
        role, identifier = visit.visitor.role, visit.request.path_params["request"]
        request = await self.log.request(identifier, visit.visitor.owner if role == "tenant" else None)
        if request is None:
            raise ConversationNotFound("There is no request of this id in the log: it was replaced by newer ones.")
        facts, forms = request.facts, None
        if facts.conversation and role != "auditor":
            await visit.announce(facts.conversation, request.owner)
            forms = await self._forms(visit, facts)
        names = await self._names(visit, [request])

        def rendered() -> Response:
            return visit.page(
                "request.html",
                request=request,
                facts=facts,
                names=names,
                kinds=KINDS,
                bad_kinds=BAD_KINDS,
                changed_kinds=CHANGED_KINDS,
                dialect_of=dialect_of,
                parts_of_forms=parts_of(forms) if forms else (),
                forms=forms,
                is_summary_moved=facts.changes & MOVED,
                changes=[words for bit, words in CHANGES.items() if facts.changes & bit],
            )

        return await asyncio.to_thread(rendered)

    async def _names(self, visit: Visit, requests: Sequence[LoggedRequest]) -> Mapping[str, str]:
        """Return what the conversations are called, as their list calls them; no auditor sees a name."""
        records = await records_of(self.conversations, visit, requests)
        openings = await self.finding.openings([record for record in records if not record.name])
        return {record.id: shortened(record.name or openings[record.id]) for record in records}

    async def _forms(self, visit: Visit, facts: RequestFacts) -> RequestForms | None:
        try:
            return await self.contexts.forms(facts.conversation, visit.caller, facts.position, facts.newest)
        except ConversationNotFound:
            return None


async def records_of(
    reading: ConversationReader, visit: Visit, requests: Sequence[LoggedRequest]
) -> Sequence[ConversationRecord]:
    """Return the conversations of requests, as far as they are stored; none to an auditor, for whom a name is text."""
    if visit.visitor.role == "auditor":
        return ()
    return await reading.records({request.facts.conversation for request in requests} - {""}, visit.caller)


def dialect_of(path: str) -> str:
    """Return what the format of a request is called."""
    return DIALECTS.get(path) or path.rstrip("/").rpartition("/")[2][:40] or path


def parts_of(forms: RequestForms) -> Sequence[ShownPart]:
    """Return both forms side by side: messages that are the same, and those that take the place of others."""
    client, forwarded = forms.client_messages, forms.forwarded.messages
    first = 0
    while first < min(len(client), len(forwarded)) and client[first] == forwarded[first]:
        first += 1
    last = 0
    while last < min(len(client), len(forwarded)) - first and client[-1 - last] == forwarded[-1 - last]:
        last += 1
    replaced, replacement = client[first : len(client) - last], forwarded[first : len(forwarded) - last]
    parts = [_part(client[:first], forwarded[:first], is_same=True)]
    if len(replaced) * len(replacement) <= MAX_COMPARED:
        for word, begin, end, other, until in SequenceMatcher(
            None, replaced, replacement, autojunk=False
        ).get_opcodes():
            parts.append(_part(replaced[begin:end], replacement[other:until], is_same=word == "equal"))
    else:
        parts.append(_part(replaced, replacement, is_same=False))
    parts.append(_part(client[len(client) - last :], forwarded[len(forwarded) - last :], is_same=True))
    return [part for part in parts if part.client_count or part.forwarded_count]


def _part(client: Sequence[bytes], forwarded: Sequence[bytes], *, is_same: bool) -> ShownPart:
    shown = () if is_same else [content_of(raw) for raw in forwarded[:MAX_SHOWN]]
    return ShownPart(is_same, [content_of(raw) for raw in client[:MAX_SHOWN]], len(client), shown, len(forwarded))


def _filters(conditions: RequestConditions) -> dict[str, str]:
    """Return the conditions that are set, as parameters of an address."""
    texts = {name: getattr(conditions, name) for name in FILTERS}
    return {name: text for name, text in texts.items() if text} | ({"warnings": "true"} if conditions.warnings else {})
