"""Queues flushes that a process could not queue before it died.

The worker that delivers runs it. A note, which is stored together with the summary, says which messages left. The
messages are in the conversation's history, because an answer's last byte is sent only after its turn is stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tidemark.core.conversation.flush import Flush, LeavingMessage, document
from tidemark.core.conversation.messages import Message, digest_of
from tidemark.core.conversation.prefix import PrefixChain
from tidemark.core.events import Listener
from tidemark.core.flush_events import FlushDropped, FlushQueued
from tidemark.core.frozen import frozen
from tidemark.core.ports import FlushEntry
from tidemark.delivery.queue import RedisFlushQueue
from tidemark.store.conversations import RedisStore

SETTLED_SECONDS = 60.0
"""A younger note may still belong to a live process: its client waits, or the store did not answer."""
ABANDON_SECONDS = 86_400.0
"""A note is dropped when its messages have not come into the history for so long."""


def note_of(flush: Flush, at: float) -> bytes:
    """Return the note of a flush: everything but the messages and the summary, which the store has anyway.

    It names system messages by the digest of their bytes.
    """
    systems = [
        (digest_of(leaving.message.raw).hex(), leaving.position, leaving.tokens)
        for leaving in flush.leaving
        if leaving.message.is_system
    ]
    fields = {
        "tenant": flush.tenant,
        "owner": flush.owner,
        "conversation": flush.conversation,
        "model": flush.model,
        "family": flush.chain.family,
        "prefix": flush.summary.prefix.hex(),
        "first": flush.first,
        "last": flush.summary.covered,
        "systems": systems,
        "absorbed": [digest.hex() for digest in flush.summary.absorbed],
        "at": at,
    }
    return json.dumps(fields).encode()


@frozen
class Recovery:
    """Queues the flushes that notes describe; holds no state.

    :param clock: Unix time in seconds, the clock by which notes are written
    """

    queue: RedisFlushQueue
    store: RedisStore
    emit: Listener
    clock: Callable[[], float]

    async def sweep(self, settled_seconds: float = SETTLED_SECONDS) -> int:
        """Read all notes, and return how many entries were queued for them.

        :param settled_seconds: the age from which a note is acted on

        :raises StoreUnavailable: the store did not answer in time
        """
        added = 0
        for key, packed in (await self.queue.intents()).items():
            note = _read(packed)
            age = self.clock() - note.get("at", 0.0)
            if note and age < settled_seconds:
                continue
            entry = await self._entry(key, note) if note else None
            if entry is not None:
                if await self.queue.add(entry) and entry.body:
                    added += 1
                    messages = int(note["last"]) - int(note["first"]) + 1 + len(note["systems"])
                    self.emit(FlushQueued(entry.conversation, key, messages, age))
            elif age > ABANDON_SECONDS:
                if await self._was_used(note):
                    self.emit(FlushDropped(note["conversation"], "its messages never came into the history"))
                await self.queue.forget_intent(key)
        return added

    async def _was_used(self, note: Mapping[str, Any]) -> bool:
        """Return whether the note's summary was put into use; if it was not, no message left the context."""
        summaries = await self.store.summaries(note["conversation"]) if note else ()
        return any(summary.prefix.hex() == note["prefix"] and summary.masked is None for summary in summaries)

    async def _entry(self, key: str, note: Mapping[str, Any]) -> FlushEntry | None:
        """Return the entry of a note; None if the history lacks a message, or the summary was never stored."""
        conversation, first, last = note["conversation"], int(note["first"]), int(note["last"])
        tenant, owner, at = note["tenant"], note.get("owner", ""), float(note["at"])
        if first > last and not note["systems"]:
            return FlushEntry(key, tenant, conversation, b"", at, owner=owner)
        prefix = bytes.fromhex(note["prefix"])
        summaries = [
            summary  # with masked results, the messages still stand
            for summary in await self.store.summaries(conversation)
            if summary.prefix == prefix and summary.masked is None
        ]
        stored = await self.store.messages(conversation, start=first, stop=last) if first <= last else []
        if not summaries or [message.position for message in stored] != list(range(first, last + 1)):
            return None
        if stored and (stored[-1].message_id != note["prefix"] or any(message.unreadable for message in stored)):
            return None
        systems: Mapping[bytes, bytes] = await self.store.system_messages(conversation) if note["systems"] else {}
        if not {bytes.fromhex(digest) for digest, _, _ in note["systems"]} <= systems.keys():
            return None
        messages = [LeavingMessage(message.position, _message(message.raw), message.tokens) for message in stored]
        absorbed = [
            LeavingMessage(position, _message(systems[bytes.fromhex(digest)]), tokens)
            for digest, position, tokens in note["systems"]
        ]
        # The sort is stable, so that a system message comes before the message at its position.
        leaving = sorted((*absorbed, *messages), key=lambda entry: entry.position)
        chain = PrefixChain(bytes.fromhex(note["family"]), (), has_seed_family=True)
        # The flush's key depends on the absorbed messages.
        summary = replace(summaries[-1], absorbed=tuple(map(bytes.fromhex, note["absorbed"])))
        flush = Flush(tenant, conversation, note["model"], chain, summary, first, tuple(leaving))
        return FlushEntry(key, tenant, conversation, document(flush, at), at, owner=owner)


def _message(raw: bytes) -> Message:
    """Return a message of which only the bytes and their digest count."""
    return Message(raw=raw, role="user", text="", digest=digest_of(raw))


def _read(packed: bytes) -> Mapping[str, Any]:
    """Return a note; an empty one if it cannot be read, which is then dropped."""
    try:
        note: Mapping[str, Any] = json.loads(packed)
    except ValueError:
        return {}
    return note
