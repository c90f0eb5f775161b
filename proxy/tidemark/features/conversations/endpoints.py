"""``/tidemark/conversations``: stored conversations, listed, shown, searched, exported, imported, compacted, deleted.

A tenant reaches its own conversations with its credential; the admin token reaches all (docs/history.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, Route

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.members import checked_model
from tidemark.dialects.raw_json import decode_value, read_members
from tidemark.features.conversations.context import ContextView
from tidemark.features.conversations.conversation_json import (
    context_snapshot,
    conversation_list,
    conversation_page,
    deleted_conversation,
    found_conversations,
    imported_conversation,
    search_page,
    summary_page,
)
from tidemark.features.conversations.finding import ConversationFinder, Wanted
from tidemark.features.conversations.paging import number_of, page_of
from tidemark.features.conversations.reading import ConversationReader
from tidemark.features.conversations.transfer import Transfer
from tidemark.features.summaries.summarize import ManualCompaction, ManualSummary, SummarizeRequest
from tidemark.server.access import ConversationAccess
from tidemark.server.encodings import read_plain_body
from tidemark.server.headers import conversation_name, report_lines
from tidemark.server.responses import to_json, with_error_envelope

MAX_QUERY_CHARACTERS = 1000
"""The longest text that a search takes."""
JSON_LINES = "application/jsonl"
MAX_SUMMARIZE_BYTES = 65_536
"""The largest body of ``POST .../summarize``."""
SEARCH_MEMBERS = ("query", "model", "state")
"""Members that the body of ``POST /tidemark/conversations/search`` may have."""
SUMMARIZE_MEMBERS = ("retention_tokens", "regenerate", "model")
"""Members that the body of ``POST .../summarize`` may have; any other is an error, so that a typing error shows."""
NOTHING_TO_SUMMARIZE = "nothing_to_summarize"
"""``outcome`` of an answer where no summary was made, because every message has to stay (FR-2.2.1)."""


@dataclass(frozen=True, slots=True)
class ConversationEndpoints:
    """Serves stored conversations.

    ``{id}`` is Tidemark's id or the client's own name; a conversation whose name has a slash is reached by its id.
    """

    reading: ConversationReader
    finding: ConversationFinder
    contexts: ContextView
    transfer: Transfer
    manual: ManualCompaction
    access: ConversationAccess
    max_body_bytes: int

    def routes(self) -> list[BaseRoute]:
        """Return a route for each path and method."""
        conversations, conversation = "/tidemark/conversations", "/tidemark/conversations/{id}"
        return [
            Route(conversations, with_error_envelope(self._list), methods=["GET"]),
            Route(f"{conversations}/import", with_error_envelope(self._import), methods=["POST"]),
            Route(f"{conversations}/search", with_error_envelope(self._find), methods=["POST"]),
            Route(conversation, with_error_envelope(self._describe), methods=["GET"]),
            Route(conversation, with_error_envelope(self._delete), methods=["DELETE"]),
            Route(f"{conversation}/context", with_error_envelope(self._context), methods=["GET"]),
            Route(f"{conversation}/summaries", with_error_envelope(self._summaries), methods=["GET"]),
            Route(f"{conversation}/search", with_error_envelope(self._search), methods=["GET"]),
            Route(f"{conversation}/export", with_error_envelope(self._export), methods=["GET"]),
            Route(f"{conversation}/summarize", with_error_envelope(self._summarize), methods=["POST"]),
        ]

    async def _list(self, request: Request) -> Response:
        return to_json(
            conversation_list(await self.reading.conversations(self.access.caller(request), page_of(request)))
        )

    async def _find(self, request: Request) -> Response:
        body = await read_plain_body(request, MAX_SUMMARIZE_BYTES)
        wanted = _wanted(read_members(body) if body.strip() else {})
        return to_json(
            found_conversations(await self.finding.find(self.access.caller(request), page_of(request), wanted))
        )

    async def _describe(self, request: Request) -> Response:
        caller = self.access.caller(request)
        return to_json(
            conversation_page(await self.reading.conversation(request.path_params["id"], caller, page_of(request)))
        )

    async def _context(self, request: Request) -> Response:
        at = number_of(request, "at", least=1, most=10**9)
        caller = self.access.caller(request)
        return to_json(context_snapshot(await self.contexts.context(request.path_params["id"], caller, at)))

    async def _summaries(self, request: Request) -> Response:
        caller = self.access.caller(request)
        return to_json(summary_page(await self.reading.summaries(request.path_params["id"], caller, page_of(request))))

    async def _search(self, request: Request) -> Response:
        query = request.query_params.get("q", "").strip()
        if not query or len(query) > MAX_QUERY_CHARACTERS:
            raise InvalidRequest(f"'q' must be 1 to {MAX_QUERY_CHARACTERS} characters to search for.", param="q")
        caller = self.access.caller(request)
        return to_json(
            search_page(await self.reading.search(request.path_params["id"], caller, query, page_of(request)))
        )

    async def _export(self, request: Request) -> Response:
        lines = await self.transfer.export_lines(request.path_params["id"], self.access.caller(request))
        return StreamingResponse(lines, media_type=JSON_LINES)

    async def _import(self, request: Request) -> Response:
        caller = self.access.credential_caller(request)
        model, name = request.query_params.get("model", ""), request.query_params.get("name")
        if not model:
            raise InvalidRequest(
                "Missing required parameter: 'model'.", param="model", code="missing_required_parameter"
            )
        checked_model(model)
        body = await read_plain_body(request, self.max_body_bytes)
        trusted = self.access.is_operator(request)
        imported = await self.transfer.import_lines(body, caller, model, conversation_name(name), trusted=trusted)
        return to_json(imported_conversation(imported), 201)

    async def _delete(self, request: Request) -> Response:
        caller = self.access.caller(request)
        return to_json(deleted_conversation(await self.reading.delete(request.path_params["id"], caller)))

    async def _summarize(self, request: Request) -> Response:
        caller = self.access.caller(request)
        body = await read_plain_body(request, MAX_SUMMARIZE_BYTES)
        order = _summarize_request(request.path_params["id"], read_members(body) if body.strip() else {})
        done = await self.manual.summarize(order, caller)
        response = to_json(_summarize_answer(done))
        response.raw_headers.extend(report_lines(done.report))
        return response


def _summarize_request(conversation: str, fields: Mapping[str, bytes]) -> SummarizeRequest:
    """Read the body of ``POST .../summarize``.

    :raises InvalidRequest: a member is unknown or of another type
    """
    _check_members(fields, SUMMARIZE_MEMBERS)
    values = {name: decode_value(raw, name) for name, raw in fields.items()}
    retention, regenerate, model = (values.get(name) for name in SUMMARIZE_MEMBERS)
    if retention is not None and (isinstance(retention, bool) or not isinstance(retention, int) or retention < 0):
        raise _wrong_type("retention_tokens", "a whole number of tokens, 0 or more")
    if regenerate is not None and not isinstance(regenerate, bool):
        raise _wrong_type("regenerate", "true or false")
    return SummarizeRequest(conversation, retention, bool(regenerate), None if model is None else checked_model(model))


def _check_members(fields: Mapping[str, bytes], names: Sequence[str]) -> None:
    unknown = next((name for name in fields if name not in names), None)
    if unknown is not None:
        raise InvalidRequest(
            f"Unknown parameter: {unknown[:80]!r}; use {', '.join(names)}.",
            param=unknown[:80],
            code="unknown_parameter",
        )


def _wanted(fields: Mapping[str, bytes]) -> Wanted:
    """Read the body of ``POST /tidemark/conversations/search``.

    :raises InvalidRequest: a member is unknown, of another type or too long
    """
    _check_members(fields, SEARCH_MEMBERS)
    texts: dict[str, str] = {}
    for name, raw in fields.items():
        value = decode_value(raw, name)
        if not isinstance(value, str):
            raise _wrong_type(name, "a string")
        if len(value) > MAX_QUERY_CHARACTERS:
            raise InvalidRequest(f"'{name}' must be at most {MAX_QUERY_CHARACTERS} characters.", param=name)
        texts[name] = value.strip()
    return Wanted(texts.get("model", ""), texts.get("state", ""), texts.get("query", ""))


def _wrong_type(name: str, expected: str) -> InvalidRequest:
    return InvalidRequest(f"'{name}' must be {expected}.", param=name, code="invalid_type")


def _summarize_answer(done: ManualSummary) -> dict[str, JsonValue]:
    """Return the JSON object that answers ``POST .../summarize``."""
    report, summary = done.report, done.summary
    facts: dict[str, JsonValue] = {
        "conversation": report.conversation,
        "summary": summary.text if summary else "",
        "strategy": report.strategy,
        "summarized_messages": report.summarized,
        "tokens_before": report.tokens_before,
        "tokens_after": report.tokens_after,
    }
    if report.action != "forced":
        facts["outcome"] = NOTHING_TO_SUMMARIZE
    if report.warning:
        facts["warning"] = report.warning
    return facts
