"""``/console/conversations``: stored conversations, and one of them with its whole history and its summary in place.

It shows what ``archive/`` returns to the JSON endpoints, as the operator sees it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from starlette.responses import Response, StreamingResponse

from proxy.archive import ConversationFinder, ConversationReader, Page, Transfer
from proxy.archive.finding import CRITICAL_PERCENT, STATES, WARNING_PERCENT, Wanted
from proxy.archive.pages import ConversationPage, MessageEntry
from proxy.archive.summarize import ManualCompaction, SummarizeRequest
from proxy.console.pages import HOME, Answer
from proxy.console.visit import Visit, go_to
from proxy.core.cursors import cursor_of
from proxy.core.errors import InvalidRequest, TidemarkError
from proxy.server.errors import status_of

LIST = f"{HOME}/conversations"
LIST_ENTRIES = 25
MESSAGES = 5000
"""Messages of one page of a conversation; a browser lays out only those that are in view."""
MESSAGES_BYTES = 4_000_000
"""Bytes of the messages of one page; one message at least is shown."""
LARGE = 200
"""More messages are rendered in a thread, so that no request waits for them."""
SUMMARIES = 50
HITS = 100
MAX_WORDS = 1000
"""Characters of a search; what is longer is cut."""
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


@dataclass(frozen=True, slots=True)
class ShownMessage:
    """A message as the page shows it."""

    entry: MessageEntry
    role: str
    text: str
    parts: Sequence[str]
    """What is folded or only named: calls, results, images."""


class NoticeSettings(Protocol):
    """Says whether pages show notices of compactions (FR-3.1.3)."""

    @property
    def shows_notices(self) -> bool:
        """Whether the operator wants them."""
        ...


@dataclass(frozen=True, slots=True)
class ConversationPages:
    """Shows conversations, and carries out what their forms ask for."""

    reading: ConversationReader
    finding: ConversationFinder
    transfer: Transfer
    manual: ManualCompaction
    settings: NoticeSettings
    models: Sequence[str]
    """The names of configured models, by which the list is filtered."""

    def answers(self) -> Sequence[tuple[str, str, Answer]]:
        """Return the method, path and answer of each page and form."""
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
        wanted = Wanted(visit.parameter("model"), visit.parameter("state"))
        newer = visit.parameter("newer")
        return await self._conversations(visit, wanted, newer or visit.parameter("cursor"), newer=bool(newer))

    async def _find(self, visit: Visit) -> Response:
        """Search; the words come in a form, so that none stands in an address."""
        form = visit.form
        wanted = Wanted(form.get("model", ""), form.get("state", ""), form.get("words", "").strip()[:MAX_WORDS])
        if not wanted.words:
            return go_to(LIST, **_filters(wanted))
        return await self._conversations(visit, wanted, form.get("cursor", ""))

    async def _conversations(self, visit: Visit, wanted: Wanted, cursor: str, *, newer: bool = False) -> Response:
        page = await self.finding.find(None, Page(LIST_ENTRIES, cursor or None), wanted, newer=newer)
        filters = _filters(wanted)
        return visit.page(
            "conversations.html",
            page=page,
            wanted=wanted,
            models=sorted({*self.models, *([wanted.model] if wanted.model else [])}),
            states=STATE_NAMES,
            newer=urlencode({**filters, "newer": page.newer_cursor or ""}),
            older=urlencode({**filters, "cursor": page.older_cursor or ""}),
            notices=self.settings.shows_notices,
            note=NOTES.get(visit.parameter("done"), ""),
        )

    async def _show(self, visit: Visit) -> Response:
        return await self._conversation(visit, note=NOTES.get(visit.parameter("done"), ""))

    async def _search(self, visit: Visit) -> Response:
        words = visit.form.get("words", "").strip()[:1000]
        if not words:
            return await self._conversation(visit, words=words, error="Enter words to search for.", status=400)
        found = await self.reading.search(visit.request.path_params["id"], None, words, Page(HITS))
        return await self._conversation(visit, words=words, hits=[shown(hit.entry) for hit in found.hits])

    async def _summarize(self, visit: Visit) -> Response:
        """Summarize by hand (FR-2.1, FR-2.2)."""
        text = visit.form.get("retention", "").strip().replace(",", "")
        if text and not (text.isascii() and text.isdigit() and len(text) < 12):
            message = "'Tokens to retain' must be a whole number of tokens, 0 or more, or empty."
            return await self._conversation(visit, retention=text[:40], error=message, status=400)
        order = SummarizeRequest(visit.request.path_params["id"], int(text) if text else None)
        try:
            done = await self.manual.summarize(order, None)
        except TidemarkError as error:
            return await self._conversation(visit, retention=text, error=str(error), status=status_of(error))
        return go_to(_address(visit), done="nothing" if done.summary is None else "summarized")

    async def _export(self, visit: Visit) -> Response:
        lines = await self.transfer.export_lines(visit.request.path_params["id"], None)
        headers = {"content-disposition": 'attachment; filename="conversation.jsonl"'}
        return StreamingResponse(lines, headers=headers, media_type="application/jsonl")

    async def _ask_to_forget(self, visit: Visit) -> Response:
        page = await self.reading.conversation(visit.request.path_params["id"], None, Page(1))
        return visit.page("forget_conversation.html", record=page.record, address=_address(visit))

    async def _forget(self, visit: Visit) -> Response:
        await self.reading.delete(visit.request.path_params["id"], None)
        return go_to(LIST, done="forgotten")

    async def _conversation(self, visit: Visit, *, status: int = 200, **more: Any) -> Response:
        identifier = visit.request.path_params["id"]
        cursor = None if visit.request.method == "POST" else visit.parameter("cursor") or None
        page = await self.reading.conversation(identifier, None, Page(MESSAGES, cursor))
        summaries = await self.reading.summaries(identifier, None, Page(SUMMARIES))
        present = next((entry for entry in reversed(summaries.summaries) if entry.in_use), None)
        left, right = visit.parameter("left"), visit.parameter("right")
        compared = [
            entry for entry in summaries.summaries if entry.summary.prefix.hex() in (left, right) and left != right
        ]
        entries, next_cursor = within_bytes(page)
        address = _address(visit)
        facts: dict[str, Any] = {"words": "", "hits": None, "error": "", "note": "", "retention": ""} | more
        values = {
            "conversation": page,
            "next_cursor": next_cursor,
            "is_first": cursor is None,
            "present": present,
            "earlier": [entry for entry in summaries.summaries if entry is not present],
            "compared": compared if len(compared) > 1 else [],
            "listed": await self.finding.listed(page.record),
            "address": address,
            "notices": self.settings.shows_notices,
            **facts,
            "path": address,
        }

        def rendered() -> Response:
            return visit.page("conversation.html", status, messages=[shown(entry) for entry in entries], **values)

        return await asyncio.to_thread(rendered) if len(entries) > LARGE else rendered()


def within_bytes(page: ConversationPage) -> tuple[Sequence[MessageEntry], str | None]:
    """Return as many messages as a page may have bytes of, and the cursor of the next one."""
    sizes = accumulate(len(entry.shown) for entry in page.messages)
    count = max(sum(size <= MESSAGES_BYTES for size in sizes), 1)
    if count >= len(page.messages):
        return page.messages, page.next_cursor
    return page.messages[:count], cursor_of(page.messages[count].message.position)


def _filters(wanted: Wanted) -> dict[str, str]:
    """Return the filters of the list that are set, as parameters of its address."""
    return {name: value for name, value in (("model", wanted.model), ("state", wanted.state)) if value}


def shown(entry: MessageEntry) -> ShownMessage:
    """Return a stored message as the page shows it: its text, and the other things by their kinds."""
    if entry.state == "unreadable":
        return ShownMessage(entry, "unreadable", "This message cannot be read.", ())
    message = json.loads(entry.shown)
    content = message.get("content")
    texts = [content] if isinstance(content, str) else []
    parts: list[str] = []
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif isinstance(part, dict):
            parts.append(_described(part))
    for call in message.get("tool_calls") or ():
        function = call.get("function") or call.get("custom") or {}
        parts.append(f"{function.get('name')}({function.get('arguments', function.get('input', ''))})")
    return ShownMessage(entry, str(message.get("role")), "\n".join(texts), parts)


def _described(part: Mapping[str, Any]) -> str:
    """Name a part that is no text by its type and size; it is never loaded."""
    kind = str(part.get("type") or "part")
    size = len(json.dumps(part, ensure_ascii=False))
    return f"{kind.replace('_', ' ')}, {size:,} characters"


def _address(visit: Visit) -> str:
    identifier = visit.request.path_params["id"]
    if not isinstance(identifier, str) or not identifier:
        raise InvalidRequest("The address names no conversation.")
    return f"{LIST}/{quote(identifier, safe='')}"
