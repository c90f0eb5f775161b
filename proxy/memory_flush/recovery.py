"""Recovery: what was about to leave when its process died is queued by whoever delivers.

Beside the outbox. The note that went to the store together with the summary says what left; the messages stand in the
conversation's history, for an answer's last byte is released only when its turn is stored.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from proxy.core.conversation.flush import Flush, Leaving, document
from proxy.core.conversation.messages import Message, digest_of
from proxy.core.conversation.prefix import PrefixChain
from proxy.core.events import FlushDropped, FlushQueued, Listener
from proxy.core.ports import ConversationStore, FlushEntry, FlushQueue

SETTLED_SECONDS = 60.0
"""A note that is younger may still be its own process's: a request whose client waits, or a store that was away."""
GIVEN_UP_SECONDS = 86_400.0
"""A note whose messages have not come into the history for so long is given up."""


class History(ConversationStore, Protocol):
    """What this needs of the store."""

    async def system_messages(self, conversation: str) -> Mapping[bytes, bytes]:
        """Every system message of a conversation: digest to the client's bytes."""
        ...


def note_of(flush: Flush, at: float) -> bytes:
    """What is noted of a flush: all but the messages and the summary, which the store keeps anyway.

    It knows system messages by the digest of their bytes.
    """
    systems = [
        (digest_of(one.message.raw).hex(), one.position, one.tokens) for one in flush.leaving if one.message.is_system
    ]
    told = {
        "tenant": flush.tenant,
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
    return json.dumps(told).encode()


class Recovery:
    """Queues what notes tell of; holds no state.

    :param clock: Unix time in seconds, the same as the one that notes were written by
    """

    def __init__(self, queue: FlushQueue, store: History, *, emit: Listener, clock: Callable[[], float]) -> None:
        self._queue = queue
        self._store = store
        self._emit = emit
        self._clock = clock

    async def sweep(self, settled_seconds: float = SETTLED_SECONDS) -> int:
        """Look through all notes; how many entries that brought.

        :raises StoreUnavailable: the store did not answer in time
        """
        added = 0
        for key, packed in (await self._queue.intents()).items():
            note = _read(packed)
            age = self._clock() - note.get("at", 0.0)
            if note and age < settled_seconds:
                continue
            entry = await self._entry(key, note) if note else None
            if entry is not None:
                if await self._queue.add(entry) and entry.body:
                    added += 1
                    messages = int(note["last"]) - int(note["first"]) + 1 + len(note["systems"])
                    self._emit(FlushQueued(entry.conversation, key, messages, age))
            elif age > GIVEN_UP_SECONDS:
                if await self._kept(note):
                    self._emit(FlushDropped(note["conversation"], "its messages never came into the history"))
                await self._queue.forget_intent(key)
        return added

    async def _kept(self, note: Mapping[str, Any]) -> bool:
        """Whether the summary was put into use at all; if not, nothing left."""
        kept = await self._store.summaries(note["conversation"]) if note else ()
        return any(one.prefix.hex() == note["prefix"] for one in kept)

    async def _entry(self, key: str, note: Mapping[str, Any]) -> FlushEntry | None:
        """The entry; None where the history does not hold all of it, or the summary was never kept."""
        conversation, first, last = note["conversation"], int(note["first"]), int(note["last"])
        tenant, at = note["tenant"], float(note["at"])
        if first > last and not note["systems"]:
            return FlushEntry(key, tenant, conversation, b"", at)
        prefix = bytes.fromhex(note["prefix"])
        summaries = [one for one in await self._store.summaries(conversation) if one.prefix == prefix]
        kept = await self._store.messages(conversation, start=first, stop=last) if first <= last else []
        if not summaries or [one.position for one in kept] != list(range(first, last + 1)):
            return None
        if kept and kept[-1].message_id != note["prefix"]:
            return None
        systems: Mapping[bytes, bytes] = await self._store.system_messages(conversation) if note["systems"] else {}
        if not {bytes.fromhex(digest) for digest, _, _ in note["systems"]} <= systems.keys():
            return None
        said = [Leaving(one.position, _message(one.raw), one.tokens) for one in kept]
        taken_in = [
            Leaving(position, _message(systems[bytes.fromhex(digest)]), tokens)
            for digest, position, tokens in note["systems"]
        ]
        left = sorted((*taken_in, *said), key=lambda one: one.position)  # stable: a system message goes first
        chain = PrefixChain(bytes.fromhex(note["family"]), (), named=True)
        summary = replace(summaries[-1], absorbed=tuple(map(bytes.fromhex, note["absorbed"])))  # the key is of these
        flush = Flush(tenant, conversation, note["model"], chain, summary, first, tuple(left))
        return FlushEntry(key, tenant, conversation, document(flush, at), at)


def _message(raw: bytes) -> Message:
    """The bytes are all that is told of it."""
    return Message(raw=raw, role="user", text="", digest=digest_of(raw))


def _read(packed: bytes) -> Mapping[str, Any]:
    """A note; one that nobody can read is empty, and so given up."""
    try:
        read: Mapping[str, Any] = json.loads(packed)
    except ValueError:
        return {}
    return read
