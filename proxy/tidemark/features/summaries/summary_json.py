"""Renders summaries, previews and receipts as JSON (docs/history.md)."""

from __future__ import annotations

from tidemark.core.conversation.messages import JsonValue
from tidemark.features.conversations.conversation_json import (
    JsonObject,
    counts_by_kind,
    paged,
    unsupported_by_kind,
)
from tidemark.features.conversations.pages import SummaryInUse, SummaryPreview
from tidemark.features.summaries.receipts import ReceiptPage, SummaryReceipt
from tidemark.features.summaries.summarize import ManualSummary

NOTHING_TO_SUMMARIZE = "nothing_to_summarize"
"""``outcome`` of an answer if no summary was made, because every message has to stay (FR-2.2.1)."""


def receipt_page(page: ReceiptPage) -> JsonObject:
    """Return a page of receipts as JSON."""
    receipts = [_receipt(entry) for entry in page.receipts]
    return {"object": "list", "conversation": page.conversation, **paged(receipts, page.next_cursor)}


def _receipt(entry: SummaryReceipt) -> JsonObject:
    """Return what became of all that was said, and the first details that were lost, as JSON."""
    losses = sum(count.shortened_count + count.dropped_count for count in entry.receipt)
    return {
        "object": "summary.receipt",
        "prefix": entry.summary.prefix.hex(),
        "version": entry.summary.version,
        "summarized_messages": entry.summary.covered,
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
