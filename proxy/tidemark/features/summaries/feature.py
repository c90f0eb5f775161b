"""Plugs in summaries by hand: ``/tidemark/conversations/{id}/summarize``, ``summaries`` and ``receipts``.

Its endpoints show the summary in use, and what it lost. A tenant reaches its own conversations with its credential; the
admin token reaches all (docs/history.md).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cached_property

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.members import check_names, checked_model, wrong_type
from tidemark.dialects.raw_json import decode_value, read_members
from tidemark.features.conversations.access import ArchiveAccess
from tidemark.features.conversations.conversation_json import (
    JsonObject,
    counts_by_kind,
    paged,
    unsupported_by_kind,
)
from tidemark.features.conversations.feature import standing_summaries
from tidemark.features.conversations.pages import SummaryInUse, SummaryPreview
from tidemark.features.conversations.paging import page_of
from tidemark.features.feature import Feature
from tidemark.features.summaries.compaction_requests import CompactionRequests
from tidemark.features.summaries.receipts import ReceiptPage, ReceiptReader, SummaryReceipt
from tidemark.features.summaries.summarize import ManualCompaction, ManualSummary, SummarizeRequest
from tidemark.features.summaries.summary_changes import PreviewOptions, SummaryChanges
from tidemark.pipeline.history_reader import HistoryReader
from tidemark.server.encodings import read_plain_body
from tidemark.server.headers import report_lines
from tidemark.server.names import NamedRoute
from tidemark.server.responses import to_json, with_error_envelope
from tidemark.store.previews import RedisPreviews
from tidemark.summarizers.receipts import ReceiptWriter
from tidemark.worker.worker import Worker

MAX_SUMMARY_BYTES = 1_048_576
"""The largest body; an edited text is its longest member."""
MAX_SUMMARIZE_BYTES = 65_536
"""The largest body of ``POST .../summarize``."""
PREVIEW_MEMBERS = ("model", "strategy", "template")
CHANGE_MEMBERS = ("text", "version", "preview")
SUMMARIZE_MEMBERS = ("retention_tokens", "regenerate", "model")
"""Members that the body of ``POST .../summarize`` may have; any other is an error, so that a typing error shows."""
_QUOTING = frozenset({"lost", "unsupported"})
"""Members of a receipt that quote messages."""
NOTHING_TO_SUMMARIZE = "nothing_to_summarize"
"""``outcome`` of an answer if no summary was made, because every message has to stay (FR-2.2.1)."""


class SummariesFeature(Feature):
    """Summarizes stored conversations by hand, changes their summaries, and tells what each lost."""

    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._access, self._comparison = ArchiveAccess(worker.store, worker.upstream), ReceiptWriter()
        self._requests = CompactionRequests(
            pipeline=worker.pipeline,
            upstream=worker.upstream,
            heads=worker.request_heads,
            dialect=worker.chat,
            reader=HistoryReader(worker.store, worker.formats),
        )

    @cached_property
    def manual(self) -> ManualCompaction:
        worker = self._worker
        return ManualCompaction(
            access=self._access,
            requests=self._requests,
            fitter=worker.fitter,
            compactor=worker.compactor,
            store=worker.store,
            emit=worker.emit,
            quotas=worker.quotas,
        )

    @cached_property
    def changes(self) -> SummaryChanges:
        worker = self._worker
        return SummaryChanges(
            access=self._access,
            requests=self._requests,
            store=worker.store,
            replacement=worker.replacement,
            previews=RedisPreviews(worker.store.ask, worker.codec),
            compactor=worker.compactor,
            counter=worker.counter,
            comparison=self._comparison,
            choose=worker.summarizers.once,
            emit=worker.emit,
            clock=time.time,
            quotas=worker.quotas,
        )

    @cached_property
    def receipts(self) -> ReceiptReader:
        worker = self._worker
        return ReceiptReader(
            access=self._access,
            store=worker.store,
            summaries=standing_summaries(worker),
            formats=worker.formats,
            comparison=self._comparison,
        )

    def routes(self) -> Sequence[BaseRoute]:
        conversation = "/tidemark/conversations/{id}"
        summaries = f"{conversation}/summaries"
        return [
            NamedRoute(f"{conversation}/receipts", with_error_envelope(self._list_receipts), methods=["GET"]),
            NamedRoute(f"{conversation}/summarize", with_error_envelope(self._summarize), methods=["POST"]),
            NamedRoute(summaries, with_error_envelope(self._change), methods=["POST"]),
            NamedRoute(f"{summaries}/preview", with_error_envelope(self._preview), methods=["POST"]),
        ]

    async def _list_receipts(self, request: Request) -> Response:
        """Show receipts, to an auditor without what was lost: counts only."""
        is_auditor, page = self._worker.access.operator.is_auditor(request), page_of(request)
        caller = None if is_auditor else self._worker.access.caller(request)
        receipts = await self.receipts.receipts(request.path_params["id"], caller, page)
        return to_json(receipt_page(receipts, has_text=not is_auditor))

    async def _summarize(self, request: Request) -> Response:
        caller, conversation = self._worker.access.caller(request), request.path_params["id"]
        order = _summarize_request(conversation, await _members(request, SUMMARIZE_MEMBERS, MAX_SUMMARIZE_BYTES))
        done = await self.manual.summarize(order, caller)
        response = to_json(summarized(done))
        response.raw_headers.extend(report_lines(done.report))
        return response

    async def _preview(self, request: Request) -> Response:
        caller = self._worker.access.caller(request)
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
        caller, conversation = self._worker.access.caller(request), request.path_params["id"]
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


def _summarize_request(conversation: str, values: Mapping[str, JsonValue]) -> SummarizeRequest:
    """Read the body of ``POST .../summarize``.

    :raises InvalidRequest: a member is of another type
    """
    retention, regenerate, model = (values.get(name) for name in SUMMARIZE_MEMBERS)
    if retention is not None and (isinstance(retention, bool) or not isinstance(retention, int) or retention < 0):
        raise wrong_type("retention_tokens", "a whole number of tokens, 0 or more")
    if regenerate is not None and not isinstance(regenerate, bool):
        raise wrong_type("regenerate", "true or false")
    return SummarizeRequest(conversation, retention, bool(regenerate), None if model is None else checked_model(model))


async def _members(
    request: Request, allowed: Sequence[str], most_bytes: int = MAX_SUMMARY_BYTES
) -> Mapping[str, JsonValue]:
    """Read the members of a body, which may be empty.

    :raises InvalidRequest: a member is unknown
    """
    body = await read_plain_body(request, most_bytes)
    fields = read_members(body) if body.strip() else {}
    check_names(fields, allowed)
    return {name: decode_value(raw, name) for name, raw in fields.items()}


def _text(name: str, value: JsonValue) -> str | None:
    if value is not None and not isinstance(value, str):
        raise wrong_type(name, "a string")
    return value


def receipt_page(page: ReceiptPage, *, has_text: bool = True) -> JsonObject:
    """Return a page of receipts as JSON.

    :param has_text: also what was lost, and what no message supports; it quotes the messages
    """
    receipts = [_receipt(entry) for entry in page.receipts]
    if not has_text:
        receipts = [{name: receipt[name] for name in receipt if name not in _QUOTING} for receipt in receipts]
    return {"object": "list", "conversation": page.conversation, **paged(receipts, page.next_cursor)}


def _receipt(entry: SummaryReceipt) -> JsonObject:
    """Return what became of all that was said, and the first details that were lost, as JSON."""
    losses = sum(count.shortened_count + count.dropped_count for count in entry.receipt)
    return {
        "object": "summary.receipt",
        "prefix": entry.summary.prefix.hex(),
        "version": entry.summary.version,
        "summarized_messages": entry.summary.summarized,
        "strategy": entry.summary.made_by,
        "in_use": entry.in_use,
        "kept": counts_by_kind(entry.receipt),
        "unsupported": unsupported_by_kind(entry.receipt),
        "lost": [{"kind": loss.kind, "text": loss.text, "survival": loss.survival} for loss in entry.losses],
        "more_lost": losses - len(entry.losses) if entry.compared else None,
    }


def summary_in_use(shown: SummaryInUse) -> JsonObject:
    """Return a summary that a conversation uses, or could use, as JSON."""
    summary = shown.summary
    return {
        "conversation": shown.conversation,
        "version": summary.version,
        "summary": summary.text,
        "strategy": summary.made_by,
        "written_with": summary.written_with or summary.recipe.key,
        "edited": summary.edited,
        "summarized_messages": summary.covered,
        "text_tokens": shown.text_tokens,
        "max_text_tokens": shown.max_text_tokens,
        "tokens_before": shown.tokens_before,
        "tokens_after": shown.tokens_after,
    }


def summary_preview(preview: SummaryPreview) -> JsonObject:
    """Return a preview and the summary that it was made to replace as JSON."""
    shown = summary_in_use(preview.shown)
    del shown["version"]  # it has one when it is used
    return {"preview": preview.id, "expires_in": preview.seconds, **shown, "present": summary_in_use(preview.present)}


def summarized(done: ManualSummary) -> dict[str, JsonValue]:
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
