"""``/console/conversations``: stored conversations, and one of them with its whole history and its summary in place.

It shows what the JSON endpoints of ``features/conversations/`` return: to the operator all, to a tenant its own.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

from starlette.responses import Response, StreamingResponse

from tidemark.console.differences import differences
from tidemark.console.messages import read_history, shown
from tidemark.console.pages import HOME, Answer
from tidemark.console.visit import Visit, go_to
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.cursors import cursor_of
from tidemark.core.errors import InvalidRequest, TidemarkError
from tidemark.core.frozen import frozen
from tidemark.core.http_headers import MAX_PROGRAM_CHARACTERS
from tidemark.features.conversations.conversation_reader import ConversationReader
from tidemark.features.conversations.finding import (
    CRITICAL_PERCENT,
    STATES,
    WARNING_PERCENT,
    ConversationFilter,
    ConversationFinder,
)
from tidemark.features.conversations.pages import Page, SummaryTexts
from tidemark.features.conversations.transfer import Transfer
from tidemark.features.settings.operator_settings import OperatorSettings
from tidemark.features.summaries.summarize import ManualCompaction, SummarizeRequest
from tidemark.server.errors import status_of

LIST = f"{HOME}/conversations"
LIST_ENTRIES = 25
LARGE = 200
"""More messages are rendered in a thread, so that no request waits for them."""
SUMMARIES = 50
HITS = 100
MAX_WORDS = 1000
"""Characters of a search; what is longer is cut."""
OWNER_DIGITS = 8
"""How much of an owner the pages show that has no name."""
SUMMARY_VIEW = "summaries"
VIEWS: Mapping[str, str] = {"": "What the model sees", "history": "Whole history", SUMMARY_VIEW: "Summaries"}
"""The views of a conversation by the parameter ``view`` of its address."""
_OWNER = re.compile("[0-9a-f]{16,64}", re.ASCII)
_PRODUCT = re.compile("[/ ]")
"""What a program's version follows."""
STATE_NAMES: Mapping[str, str] = dict(
    zip(
        STATES,
        (
            "Summarized",
            "Not summarized",
            f"Nearly full ({WARNING_PERCENT} to {CRITICAL_PERCENT - 1} %)",
            f"Full ({CRITICAL_PERCENT} % and more)",
        ),
        strict=True,
    )
)
"""The choices of the filter "State"."""
NOTES: Mapping[str, str] = {
    "summarized": "The history was summarized.",
    "nothing": "There was nothing to summarize: every message has to stay.",
    "forgotten": "The conversation was forgotten.",
}
"""What a page says after a form, by the parameter ``done``."""


@frozen
class ConversationPages:
    """Shows conversations, and carries out what their forms ask for."""

    reading: ConversationReader
    finding: ConversationFinder
    transfer: Transfer
    manual: ManualCompaction
    settings: OperatorSettings
    models: Sequence[str]
    """The names of configured models, by which the list is filtered."""
    tenants: Callable[[], Mapping[str, str]]
    """Returns the names of tenants by owners, as far as they have any."""

    def answers(self) -> Sequence[tuple[str, str, Answer]]:
        conversation = f"{LIST}/{{id}}"
        return [
            ("GET", LIST, self._list),
            ("POST", LIST, self._find),
            ("GET", conversation, self._show),
            ("POST", f"{conversation}/search", self._search),
            ("POST", f"{conversation}/summarize", self._summarize),
            ("GET", f"{conversation}/export", self._export),
            ("GET", f"{conversation}/forget", self._ask_to_forget),
            ("POST", f"{conversation}/forget", self._forget),
        ]

    async def _list(self, visit: Visit) -> Response:
        """Show a page of the list; its address has filters and a place, and never words."""
        conditions = _conditions(visit, visit.request.query_params)
        newer = visit.parameter("newer")
        return await self._conversations(visit, conditions, newer or visit.parameter("cursor"), newer=bool(newer))

    async def _find(self, visit: Visit) -> Response:
        """Search; the words come in a form, so that none stands in an address."""
        form = visit.form
        conditions = replace(_conditions(visit, form), words=form.get("words", "").strip()[:MAX_WORDS])
        if not conditions.words:
            return go_to(LIST, **_filters(conditions))
        return await self._conversations(visit, conditions, form.get("cursor", ""))

    async def _conversations(
        self, visit: Visit, conditions: ConversationFilter, cursor: str, *, newer: bool = False
    ) -> Response:
        page = await self.finding.find(visit.caller, Page(LIST_ENTRIES, cursor or None), conditions, newer=newer)
        filters = _filters(conditions)
        records = [row.record for row in page.conversations]
        openings = await self.finding.openings([record for record in records if not record.name])
        return visit.page(
            "conversations.html",
            page=page,
            names={record.id: record.name or openings[record.id] for record in records},
            tenants=self._tenant_names(visit, [conditions.owner, *(record.owner for record in records)]),
            rows={f"row-{row.record.id}": row for row in page.conversations},
            conditions=conditions,
            models=sorted({*self.models, *([conditions.model] if conditions.model else [])}),
            states=STATE_NAMES,
            clients=sorted({_PRODUCT.split(record.client)[0] for record in records} - {""}),
            dialects=self.finding.dialects,
            newer=urlencode({**filters, "newer": page.newer_cursor or ""}),
            older=urlencode({**filters, "cursor": page.older_cursor or ""}),
            events="" if conditions.words else f"{LIST}?{visit.request.url.query}",
            notices=self.settings.shows_notices,
            note=NOTES.get(visit.parameter("done"), ""),
        )

    def _tenant_names(self, visit: Visit, owners: Sequence[str]) -> Mapping[str, str]:
        """Return what the operator's pages call owners; nothing for a tenant, who sees its own conversations only."""
        if visit.caller is not None:
            return {}
        names = self.tenants()
        return {owner: names.get(owner, owner[:OWNER_DIGITS]) for owner in owners if owner}

    async def _show(self, visit: Visit) -> Response:
        return await self._conversation(visit, note=NOTES.get(visit.parameter("done"), ""))

    async def _search(self, visit: Visit) -> Response:
        words = visit.form.get("words", "").strip()[:1000]
        if not words:
            return await self._conversation(visit, words=words, error="Enter words to search for.", status=400)
        found = await self.reading.search(visit.request.path_params["id"], visit.caller, words, Page(HITS))
        return await self._conversation(visit, words=words, hits=[shown(hit.entry) for hit in found.hits])

    async def _summarize(self, visit: Visit) -> Response:
        """Summarize by hand (FR-2.1, FR-2.2)."""
        text = visit.form.get("retention", "").strip().replace(",", "")
        if text and not (text.isascii() and text.isdigit() and len(text) < 12):
            message = "'Tokens to retain' must be a whole number of tokens, 0 or more, or empty."
            return await self._conversation(visit, retention=text[:40], error=message, status=400)
        order = SummarizeRequest(visit.request.path_params["id"], int(text) if text else None)
        try:
            done = await self.manual.summarize(order, visit.caller)
        except TidemarkError as error:
            return await self._conversation(visit, retention=text, error=str(error), status=status_of(error))
        return go_to(_address(visit), done="nothing" if done.summary is None else "summarized")

    async def _export(self, visit: Visit) -> Response:
        lines = await self.transfer.export_lines(visit.request.path_params["id"], visit.caller)
        headers = {"content-disposition": 'attachment; filename="conversation.jsonl"'}
        return StreamingResponse(lines, headers=headers, media_type="application/jsonl")

    async def _ask_to_forget(self, visit: Visit) -> Response:
        page = await self.reading.conversation(visit.request.path_params["id"], visit.caller, Page(1))
        name = page.record.name or (await self.finding.openings([page.record]))[page.record.id]
        return visit.page("forget_conversation.html", record=page.record, name=name, address=_address(visit))

    async def _forget(self, visit: Visit) -> Response:
        await self.reading.delete(visit.request.path_params["id"], visit.caller)
        return go_to(LIST, done="forgotten")

    async def _conversation(self, visit: Visit, *, status: int = 200, **more: Any) -> Response:
        identifier = visit.request.path_params["id"]
        is_form = visit.request.method == "POST"
        view = "" if is_form else _view(visit)
        cursor, before = (None if is_form else visit.parameter(name) or None for name in ("cursor", "before"))
        parts = visit.parts
        shown_mark = (parts.shown_marks or {}).get("messages", "")
        needs_messages = "hits" not in more and view != SUMMARY_VIEW and parts.are_wanted("messages")
        history = await read_history(
            self.reading,
            identifier,
            visit.caller,
            cursor,
            shown_mark,
            before=before,
            in_context=not view,
            is_wanted=needs_messages,
        )
        record = history.page.record
        texts = await self.reading.summary_texts(identifier, visit.caller, SUMMARIES)
        compared, mistake = _compared(visit, texts)
        address = _address(visit)
        is_summarized = visit.parameter("done") == "summarized" and texts.present is not None
        facts: dict[str, Any] = {"words": "", "hits": None, "error": mistake, "note": "", "retention": ""} | more
        place = {"view": view, "cursor": cursor_of(history.first) if needs_messages else cursor or ""}
        values = {
            "conversation": history.page,
            "name": record.name or (await self.finding.openings([record]))[record.id],
            "tenant": self._tenant_names(visit, [record.owner]).get(record.owner, ""),
            "view": view,
            "views": VIEWS,
            "history": history,
            "has_messages": needs_messages,
            "older": cursor_of(history.page.summarized_messages + 1),
            "beginning": cursor_of(1),
            "earlier": cursor_of(history.first),
            "is_opening": not (cursor or is_form or mistake or visit.parameter("done") or parts.are_asked_for),
            "texts": texts,
            "bill": await self.reading.bill(record.id),
            "present": texts.present,
            "compared": compared,
            "marked": await asyncio.to_thread(differences, *(text.text for text in compared)) if compared else (),
            "listed": await self.finding.listed(record),
            "has_figures": is_summarized and self.settings.shows_notices,
            "address": address,
            "events": _with(address, **place),
            "notices": self.settings.shows_notices,
            **facts,
            "path": address,
        }

        def rendered() -> Response:
            return visit.page(
                "conversation.html",
                400 if mistake else status,
                messages=[shown(entry) for entry in history.entries],
                **values,
            )

        return await asyncio.to_thread(rendered) if len(history.entries) > LARGE else rendered()


def _view(visit: Visit) -> str:
    """Return the view of a conversation that an address names; that of what the model sees if it names none."""
    if {"left", "right"} & set(visit.request.query_params):
        return SUMMARY_VIEW
    name = visit.parameter("view")
    return name if name in VIEWS else ""


def _owner(visit: Visit, text: str) -> str:
    """Return whose conversations the operator wants to see; empty for those of all."""
    return text if visit.caller is None and _OWNER.fullmatch(text) else ""


def _conditions(visit: Visit, fields: Mapping[str, str]) -> ConversationFilter:
    """Return the filters that an address or a form has."""
    return ConversationFilter(
        fields.get("model", ""),
        fields.get("state", ""),
        owner=_owner(visit, fields.get("tenant", "")),
        client=fields.get("client", "").strip()[:MAX_PROGRAM_CHARACTERS],
        dialect=fields.get("dialect", ""),
    )


def _with(address: str, **parameters: str) -> str:
    """Return an address with those parameters that have a value."""
    query = urlencode({name: value for name, value in parameters.items() if value})
    return f"{address}?{query}" if query else address


def _filters(conditions: ConversationFilter) -> dict[str, str]:
    """Return the filters of the list that are set, as parameters of its address."""
    filters = {
        "model": conditions.model,
        "state": conditions.state,
        "client": conditions.client,
        "dialect": conditions.dialect,
        "tenant": conditions.owner,
    }
    return {name: value for name, value in filters.items() if value}


def _compared(visit: Visit, texts: SummaryTexts) -> tuple[Sequence[PrefixSummary], str]:
    """Return the two texts that a page's address names, and what is wrong with the address; empty if nothing is."""
    if visit.request.method != "GET" or not {"left", "right"} & set(visit.request.query_params):
        return (), ""
    versions = {text.version: text for text in (*texts.earlier, *([texts.present] if texts.present else ()))}
    left, right = (versions.get(visit.parameter(side)) for side in ("left", "right"))
    if left is None or right is None:
        return (), "This address names no two summaries of this conversation. Choose two of those below."
    if left is right:
        return (), "These are the same summary. Choose another one to compare it with."
    return (left, right), ""


def _address(visit: Visit) -> str:
    identifier = visit.request.path_params["id"]
    if not isinstance(identifier, str) or not identifier:
        raise InvalidRequest("The address names no conversation.")
    return f"{LIST}/{quote(identifier, safe='')}"
