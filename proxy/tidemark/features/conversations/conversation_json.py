"""Renders what is read of stored conversations as JSON (docs/history.md); times are Unix times in seconds."""

from __future__ import annotations

import json
from collections.abc import Sequence

from tidemark.core.bill import bill_json
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.records import ConversationRecord
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.receipt import Receipt
from tidemark.features.conversations.finding import FoundConversations
from tidemark.features.conversations.pages import (
    ContextSnapshot,
    ConversationList,
    ConversationPage,
    ImportedConversation,
    MessageEntry,
    SearchPage,
    SummaryEntry,
    SummaryPage,
)

JsonObject = dict[str, JsonValue]


def conversation_list(page: ConversationList) -> JsonObject:
    """Return a page of conversations as JSON."""
    fields: JsonObject = {
        "object": "list",
        **paged([_conversation(record) for record in page.conversations], page.next_cursor),
    }
    if page.unreadable:
        fields["unreadable"] = list(page.unreadable)
    return fields


def found_conversations(page: FoundConversations) -> JsonObject:
    """Return a page of a search over conversations as JSON."""
    rows: list[JsonObject] = [
        {
            **_conversation(row.record),
            "summarized_messages": row.summarized_messages,
            "usage_percent": None if row.usage is None else row.usage.percent,
        }
        for row in page.conversations
    ]
    fields: JsonObject = {"object": "list", **paged(rows, page.older_cursor), "searched": page.searched}
    if page.unreadable:
        fields["unreadable"] = list(page.unreadable)
    return fields


def conversation_page(page: ConversationPage) -> JsonObject:
    """Return a conversation and a page of its messages as JSON."""
    usage: JsonObject = {
        "answers": page.usage.answers,
        "input_tokens": page.usage.input_tokens,
        "output_tokens": page.usage.output_tokens,
    }
    return {
        **_conversation(page.record),
        "summarized_messages": page.summarized_messages,
        "usage": usage,
        "bill": None if page.bill is None else {**bill_json(page.bill)},
        **paged([_message(entry) for entry in page.messages], page.next_cursor),
    }


def summary_page(page: SummaryPage) -> JsonObject:
    """Return a page of summaries as JSON."""
    summaries = [_summary(entry) for entry in page.summaries]
    return {"object": "list", "conversation": page.conversation, **paged(summaries, page.next_cursor)}


def search_page(page: SearchPage) -> JsonObject:
    """Return a page of a search as JSON."""
    hits = [{**_message(hit.entry), "snippet": hit.snippet, "score": hit.score} for hit in page.hits]
    return {"object": "list", "conversation": page.conversation, **paged(hits, page.next_cursor)}


def context_snapshot(snapshot: ContextSnapshot) -> JsonObject:
    """Return what a model sees, or saw, as JSON."""
    fields: JsonObject = {
        "object": "conversation.context",
        "conversation": snapshot.conversation,
        "at": snapshot.at,
        "exact": snapshot.exact,
        "model": snapshot.model,
        "messages": [json.loads(raw) for raw in snapshot.messages],
        "summarized_messages": snapshot.summarized_messages,
    }
    if snapshot.tokens is not None:
        fields |= {"tokens": snapshot.tokens, "limit": snapshot.limit}
    return fields


def imported_conversation(imported: ImportedConversation) -> JsonObject:
    """Return an imported conversation as JSON; its id only, if it was deleted at once."""
    return {"id": imported.id} if imported.record is None else _conversation(imported.record)


def deleted_conversation(conversation: str) -> JsonObject:
    """Return the answer to a deletion as JSON."""
    return {"object": "conversation.deleted", "id": conversation, "deleted": True}


def _conversation(record: ConversationRecord) -> JsonObject:
    """Return a conversation without its messages as JSON (S2-6)."""
    return {
        "object": "conversation",
        "id": record.id,
        "name": record.name or None,
        "model": record.model,
        "client": record.client or None,
        "dialect": record.dialect or None,
        "messages": record.message_count,
        "tokens": record.total_tokens,
        "turns": record.turn_count,
        "summaries": record.summary_count,
        "last_summary_at": record.last_summary_at,
        "created_at": record.created_at,
        "updated_at": record.updated_at,
        "parent": record.parent,
        "parent_messages": record.parent_messages,
    }


def _message(entry: MessageEntry) -> JsonObject:
    """Return a message as JSON; for one that cannot be read, its position only."""
    message, count = entry.message, entry.count
    fields: JsonObject = {"position": message.position, "id": message.message_id, "state": entry.state}
    if entry.state == "unreadable":
        return {**fields, "tokens": 0, "created_at": None, "message": None}
    fields |= {
        "tokens": message.tokens,
        "input_tokens": count.input_tokens if count else None,
        "output_tokens": count.output_tokens if count else None,
        "created_at": message.created_at,
        "message": json.loads(entry.shown),
    }
    if entry.shown != message.raw:  # of another dialect; of the Responses API, a message may be several items
        items = json.loads(b"[" + message.raw + b"]")
        fields["source"] = items if len(items) > 1 else items[0]
    if entry.original:
        fields["original"] = json.loads(entry.original)
    return fields


def _summary(entry: SummaryEntry) -> JsonObject:
    """Return a summary, the one that it continues, and the messages that it stands for, as JSON."""
    summary, ids = entry.summary, entry.message_ids
    last = summary.base.prefix.hex() if summary.base else None
    return {
        "prefix": summary.prefix.hex(),
        "previous": summary.previous.hex() if summary.previous else None,
        "summarized_messages": summary.summarized,
        "message_range": {"first": ids[0] if ids else None, "last": last},
        "summarized_message_ids": None if ids is None else list(ids),
        "last_summarized_message_id": last,
        "text": summary.text,
        "results": list(summary.results),
        "masked_results": [
            {"position": position + 1, "line": line}
            for position, line in (summary.masked.lines if summary.masked else ())
        ],
        "tokens": summary.tokens,
        "strategy": summary.made_by,
        "recipe": summary.recipe.key,
        "cause": summary.cause,
        "created_at": summary.created_at,
        "in_use": entry.in_use,
        "version": summary.version,
        "kept": counts_by_kind(summary.receipt),
        "unsupported": unsupported_by_kind(summary.receipt),
        "edited": summary.edited,
        "written_with": summary.written_with or summary.recipe.key,
        "versions": [_version(version) for version in entry.versions],
    }


def counts_by_kind(receipt: Receipt) -> JsonObject:
    """Return the numbers of a receipt by kind."""
    return {
        count.kind: {
            "total": count.total,
            "kept": count.verbatim_count,
            "shortened": count.shortened_count,
            "dropped": count.dropped_count,
        }
        for count in receipt
        if count.total
    }


def unsupported_by_kind(receipt: Receipt) -> JsonObject:
    """Return what a model's text names and nobody said, by kind."""
    return {count.kind: list(count.unsupported) for count in receipt if count.unsupported}


def _version(summary: PrefixSummary) -> JsonObject:
    """Return a text that was replaced as JSON."""
    return {
        "version": summary.version,
        "text": summary.text,
        "tokens": summary.tokens,
        "strategy": summary.made_by,
        "written_with": summary.written_with or summary.recipe.key,
        "edited": summary.edited,
        "created_at": summary.created_at,
    }


def paged(entries: Sequence[JsonObject], next_cursor: str | None) -> JsonObject:
    """Return the members that every page of a list has."""
    return {"data": list(entries), "has_more": next_cursor is not None, "next_cursor": next_cursor}
