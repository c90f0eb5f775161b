"""``/tidemark/conversations/{id}/summaries`` and ``receipts``: changes of the summary in use, and what each lost.

A tenant reaches its own conversations with its credential; the admin token reaches all (docs/history.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.members import checked_model
from tidemark.dialects.raw_json import decode_value, read_members
from tidemark.features.conversations.conversation_json import receipt_page, summary_in_use, summary_preview
from tidemark.features.conversations.paging import page_of
from tidemark.features.summaries.receipts import ReceiptReader
from tidemark.features.summaries.summary_changes import PreviewOptions, SummaryChanges
from tidemark.server.access import ConversationAccess
from tidemark.server.encodings import read_plain_body
from tidemark.server.responses import to_json, with_error_envelope

MAX_SUMMARY_BYTES = 1_048_576
"""The largest body; an edited text is its longest member."""
PREVIEW_MEMBERS = ("model", "strategy", "template")
CHANGE_MEMBERS = ("text", "version", "preview")


@dataclass(frozen=True, slots=True)
class SummaryEndpoints:
    """Serves changes of summaries, and their receipts."""

    changes: SummaryChanges
    receipts: ReceiptReader
    access: ConversationAccess

    def routes(self) -> list[BaseRoute]:
        """Return a route for each path and method."""
        conversation = "/tidemark/conversations/{id}"
        summaries = f"{conversation}/summaries"
        return [
            Route(f"{conversation}/receipts", with_error_envelope(self._receipts), methods=["GET"]),
            Route(summaries, with_error_envelope(self._change), methods=["POST"]),
            Route(f"{summaries}/preview", with_error_envelope(self._preview), methods=["POST"]),
        ]

    async def _receipts(self, request: Request) -> Response:
        caller, page = self.access.caller(request), page_of(request)
        return to_json(receipt_page(await self.receipts.receipts(request.path_params["id"], caller, page)))

    async def _preview(self, request: Request) -> Response:
        caller = self.access.caller(request)
        values = await _members(request, PREVIEW_MEMBERS)
        model, strategy, template = (values.get(name) for name in PREVIEW_MEMBERS)
        options = PreviewOptions(
            request.path_params["id"],
            None if model is None else checked_model(model),
            _text("strategy", strategy),
            _text("template", template),
        )
        return to_json(summary_preview(await self.changes.preview(options, caller)))

    async def _change(self, request: Request) -> Response:
        caller, conversation = self.access.caller(request), request.path_params["id"]
        values = await _members(request, CHANGE_MEMBERS)
        text, version, preview = (_text(name, values.get(name)) for name in CHANGE_MEMBERS)
        if (text is None) == (preview is None):
            raise InvalidRequest("Send either 'text' or 'preview'.", param="text", code="missing_required_parameter")
        if text is not None:
            changed = await self.changes.save(conversation, text, version, caller)
        elif version is not None:
            raise InvalidRequest("'version' goes with 'text'; a preview knows what it replaces.", param="version")
        else:
            changed = await self.changes.use(conversation, preview or "", caller)
        return to_json(summary_in_use(changed))


async def _members(request: Request, allowed: Sequence[str]) -> Mapping[str, JsonValue]:
    """Read the members of a body, which may be empty.

    :raises InvalidRequest: a member is unknown
    """
    body = await read_plain_body(request, MAX_SUMMARY_BYTES)
    fields = read_members(body) if body.strip() else {}
    unknown = next((name for name in fields if name not in allowed), None)
    if unknown is not None:
        raise InvalidRequest(
            f"Unknown parameter: {unknown[:80]!r}; use {', '.join(allowed)}.",
            param=unknown[:80],
            code="unknown_parameter",
        )
    return {name: decode_value(raw, name) for name, raw in fields.items()}


def _text(name: str, value: JsonValue) -> str | None:
    if value is not None and not isinstance(value, str):
        raise InvalidRequest(f"'{name}' must be a string.", param=name, code="invalid_type")
    return value
