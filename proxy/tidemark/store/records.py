"""Reads stored conversations back: records, messages, turns, summaries and system messages.

Features read through it, and so do stored history and recovery. One broken record, or one of a newer version,
hides no other: it is left out or marked, and the event ``RecordBroken`` names its place.

Scripts write the fields of a conversation's record themselves, so they are plain fields of a hash and not packed by
``codec.py``; the client's texts among them are sealed one by one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from tidemark.core.conversation.prefix import PrefixChain, split_id
from tidemark.core.conversation.records import ConversationRecord, MessageRecord
from tidemark.core.conversation.sent_prompts import told_changes
from tidemark.core.conversation.summary import PrefixSummary, SummaryRecipe
from tidemark.core.errors import RecordUnreadable
from tidemark.core.events import Listener, RecordBroken
from tidemark.store import keys, scripts
from tidemark.store.codec import Codec, TurnEntry, clipped, unreadable
from tidemark.store.commands import Ask, CommandSender
from tidemark.store.references import recipe_digest

_PAGE = 500
"""Messages of one read."""
Number = TypeVar("Number", int, float)


class RecordReader:
    """Reads conversations. It holds no state of its own.

    :param emit: receives an event for each record that cannot be read
    """

    def __init__(self, sender: CommandSender, codec: Codec, emit: Listener) -> None:
        self._sender = sender
        self._codec = codec
        self._emit = emit
        self.ask: Ask = sender.ask
        """Send one command; the other adapters share the connection through this."""

    async def conversation(self, conversation: str) -> ConversationRecord | None:
        """Return a conversation's record, or None; the id that a client was told may lead to another conversation.

        :raises RecordUnreadable: there is one, and its number of messages cannot be read
        """
        try:
            answer = await self._sender.read(scripts.DESCRIBE, conversation)
            return self.described(split_id(conversation)[0], answer)
        except RecordUnreadable as error:
            self._emit(RecordBroken(conversation, "conversation", error.internal))
            raise

    def described(self, family: str, answer: Sequence[Any]) -> ConversationRecord | None:
        """Return a conversation's record from a script's answer; a field that cannot be read is 0 or empty."""
        record = read_conversation(family, answer, self._codec.open_text)
        if record is not None and record.broken:
            self._emit(RecordBroken(record.id, "conversation", f"no numbers: {', '.join(record.broken)}"))
        return record

    async def messages(self, conversation: str, *, start: int = 1, stop: int | None = None) -> Sequence[MessageRecord]:
        messages: list[MessageRecord] = []
        last = math.inf if stop is None else stop
        for holder, base, count in await self._path(conversation):
            for first in range(max(start, base + 1), int(min(last, count)) + 1, _PAGE):
                page = min(last, count, first + _PAGE - 1)
                messages += await self._page(holder, base, first, int(page))
            last = min(last, base)
        messages.sort(key=lambda message: message.position)
        for message in messages:
            if message.unreadable:
                self._emit(RecordBroken(conversation, f"message {message.position}", message.unreadable))
        return messages

    async def first_messages(self, conversation: str, count: int, most_bytes: int) -> Sequence[MessageRecord]:
        """Return the first messages of a conversation, as far as they can be read and none is too large."""
        answer = await self._sender.read(scripts.OPENING, conversation, str(count), str(most_bytes))
        unpack, family = self._codec.readable_message, split_id(conversation)[0]
        pairs = zip(answer[::2], answer[1::2], strict=True)
        messages = [unpack(entry, place, digest, family) for place, (digest, entry) in enumerate(pairs, 1) if entry]
        return [message for message in messages if not message.unreadable]

    async def originals(self, conversation: str) -> Mapping[int, MessageRecord]:
        originals: dict[int, MessageRecord] = {}
        last = sys.maxsize
        for holder, base, _ in await self._path(conversation):
            for field, entry in (await self.ask("HGETALL", keys.answer_hash(holder))).items():
                position = int(field)
                if position <= last and position not in originals:
                    originals[position] = self._codec.readable_message(entry, position, b"", split_id(holder)[0])
            last = min(last, base)
        return originals

    async def message_ids(self, conversation: str, stop: int) -> Sequence[str]:
        pages: list[list[str]] = []
        for holder, base, count in await self._path(conversation):
            stop, last = min(stop, base), min(stop, count)
            if last > base:
                hashes = await self.ask("GETRANGE", keys.hash_string(holder), 0, 16 * (last - base) - 1)
                pages.append([hashes[i : i + 16].hex() for i in range(0, len(hashes), 16)])
        return [message_id for page in reversed(pages) for message_id in page]

    async def summary(
        self,
        chain: PrefixChain,
        covered: int,
        recipe: SummaryRecipe,
        *,
        absorbed: Sequence[bytes] = (),
        waiting: bool = False,
    ) -> PrefixSummary | None:
        digest, prefix = recipe_digest(recipe), chain.at(covered)
        packed = await self.ask("GET", keys.summary(chain.family, digest, prefix, absorbed, waiting=waiting))
        return self._codec.readable_summary(packed, chain.family) if packed else None

    async def summaries(self, conversation: str, *, standing: bool = False) -> Sequence[PrefixSummary]:
        """Return all summaries of a conversation, oldest first.

        :param standing: only those of a prefix of the stored messages; a turn that was never recorded may have left
            another one
        """
        records = await self._sender.read(scripts.SUMMARIES, conversation, *(["standing"] if standing else []))
        readable = self._readable(records, conversation)
        return sorted(readable, key=lambda summary: (summary.created_at, summary.covered))

    async def summary_versions(self, conversation: str) -> Sequence[PrefixSummary]:
        """Return the summaries of a conversation that others replaced, oldest first.

        :raises StoreUnavailable: the store did not answer in time
        """
        records = await self.ask("LRANGE", keys.version_list(conversation), 0, -1)
        return self._readable(records, conversation)

    async def all_turns(self, conversation: str) -> Sequence[TurnEntry]:
        """Return all turns of a conversation, oldest first; of a fork's parents those that it shares."""
        turns: list[TurnEntry] = []
        last = sys.maxsize
        for holder, base, _ in await self._path(conversation):
            entries = await self.ask("LRANGE", keys.turn_list(holder), 0, -1)
            turns += [clipped(turn, last) for turn in self._turns(holder, entries) if turn.first <= last]
            last = min(last, base)
        return sorted(turns, key=lambda turn: turn.created_at)

    async def latest_turn(self, conversation: str) -> TurnEntry | None:
        """Return the last turn of a conversation; None without one, and for one that cannot be read.

        :raises StoreUnavailable: the store did not answer in time
        """
        entry = await self.ask("LINDEX", keys.turn_list(conversation), -1)
        return self._codec.readable_turn(entry, split_id(conversation)[0]) if entry else None

    async def system_messages(self, conversation: str) -> Mapping[bytes, bytes]:
        """Return every system message that a conversation ever had: digest to the client's bytes."""
        messages: dict[bytes, bytes] = {}
        for holder, _, _ in await self._path(conversation):
            for digest, sealed in (await self.ask("HGETALL", keys.system_hash(holder))).items():
                try:
                    messages[digest] = self._codec.open(sealed, "y", split_id(holder)[0], digest)
                except RecordUnreadable as error:
                    self._emit(RecordBroken(holder, f"system message {digest.hex()}", error.internal))
        return messages

    def _readable(self, records: Sequence[bytes], conversation: str) -> list[PrefixSummary]:
        read, family = self._codec.readable_summary, split_id(conversation)[0]
        return [summary for record in records if (summary := read(record, family)) is not None]

    def _turns(self, holder: str, entries: Sequence[bytes]) -> list[TurnEntry]:
        turns: list[TurnEntry] = []
        for place, entry in enumerate(entries, 1):
            try:
                turns.append(self._codec.unpack_turn(entry, split_id(holder)[0]))
            except RecordUnreadable as error:
                self._emit(RecordBroken(holder, f"turn {place}", error.internal))
        return turns

    async def _path(self, conversation: str) -> list[tuple[str, int, int]]:
        family, _ = split_id(conversation)
        return read_path(family, await self._sender.read(scripts.PATH, conversation))

    async def _page(self, holder: str, base: int, first: int, last: int) -> list[MessageRecord]:
        low, high = first - base - 1, last - base - 1
        entries = await self.ask("LRANGE", keys.message_list(holder), low, high)
        hashes = await self.ask("GETRANGE", keys.hash_string(holder), 16 * low, 16 * high + 15)
        unpack, family = self._codec.readable_message, split_id(holder)[0]
        return [unpack(entry, first + i, hashes[16 * i : 16 * i + 16], family) for i, entry in enumerate(entries)]


def read_conversation(family: str, answer: Sequence[Any], open_text: Callable[..., str]) -> ConversationRecord | None:
    """Return a conversation's record from what ``describe.lua`` answers; without a turn it counts no messages.

    A field that cannot be read is 0 or empty, and ``broken`` names it.

    :param open_text: ``Codec.open_text``
    :raises RecordUnreadable: the number of its messages is not a number, and could not be counted
    """
    own, flat = answer or (b"", ())
    pairs = [piece.decode(errors="replace") for piece in flat]
    fields = dict(zip(pairs[::2], pairs[1::2], strict=True))
    if not fields or "stem" in fields:  # a forgotten conversation keeps only what its forks share with it
        return None
    parent = fields.get("parent")
    last_summary = fields.get("last_summary")
    broken: list[str] = []

    def number(name: str, kind: type[Number]) -> Number:
        try:
            return kind(fields.get(name, 0))
        except ValueError:
            broken.append(name)
            return kind()

    def text(name: str) -> str:
        try:
            return open_text(fields.get(name, ""), "c", family, name)
        except RecordUnreadable:
            broken.append(name)
            return ""

    count = number("count", int)
    if broken:
        raise unreadable("its number of messages is none")
    return ConversationRecord(
        id=family + own.decode(),
        tenant=fields.get("tenant", ""),
        model=text("model"),
        message_count=count,
        total_tokens=number("tokens", int),
        summary_count=number("summaries", int),
        turn_count=number("turns", int),
        created_at=number("created", float),
        updated_at=number("updated", float),
        last_summary_at=number("last_summary", float) if last_summary else None,
        parent=family + parent if parent else None,
        parent_messages=number("base", int),
        owner=fields.get("owner", ""),
        name=text("name"),
        sender=text("sender"),
        cache_breaks=tuple(told_changes(fields.get("sent", "").encode(errors="replace"))),
        lost_reply_position=number("unheard", int),
        broken=tuple(broken),
    )


def read_path(family: str, flat: Sequence[Any]) -> list[tuple[str, int, int]]:
    """Return a conversation and its ancestors from what ``path.lua`` answers: id, base, last position."""
    return [(family + flat[i].decode(), int(flat[i + 1]), int(flat[i + 2])) for i in range(0, len(flat), 3)]
