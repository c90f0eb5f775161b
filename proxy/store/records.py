"""Reading back what is stored of a conversation: its record, messages, turns, summaries and system messages.

Below the adapter, which sends the commands. One broken record, or one of a newer version, hides no other: it is passed
over or marked, and told as a fact with its place (``RecordBroken``).
"""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

from proxy.core.conversation.prefix import split_id
from proxy.core.conversation.records import StoredConversation, StoredMessage
from proxy.core.conversation.summary import PrefixSummary
from proxy.core.errors import RecordUnreadable, StoreError
from proxy.core.events import Listener, RecordBroken
from proxy.store import codec, keys, scripts
from proxy.store.described import read_conversation, read_path

_PAGE = 500
"""Messages read at a time."""


class RecordReader:
    """Reads conversations. Its state is the listener.

    :param emit: told of what cannot be read
    """

    def __init__(self, emit: Listener) -> None:
        self._emit = emit

    @abstractmethod
    async def ask(self, *command: str | bytes | float, probe: bool = False, briefly: bool = False) -> Any:
        """Send one command."""

    @abstractmethod
    async def _read(self, script: scripts.Script, conversation: str, *more: str) -> Any:
        """Run a script over a conversation; nothing where the id is none."""

    async def conversation(self, conversation: str) -> StoredConversation | None:
        """A conversation's record; an id that was only told leads to the conversation that holds the turn.

        :raises RecordUnreadable: there is one, and nobody can tell how many messages it has
        """
        try:
            return self.described(split_id(conversation)[0], await self._read(scripts.DESCRIBE, conversation))
        except RecordUnreadable as error:
            self._emit(RecordBroken(conversation, "conversation", error.internal))
            raise

    def described(self, family: str, answer: Sequence[Any]) -> StoredConversation | None:
        """A conversation's record from what a script answers; numbers that are none are told and taken for 0."""
        record = read_conversation(family, answer)
        if record is not None and record.broken:
            self._emit(RecordBroken(record.id, "conversation", f"no numbers: {', '.join(record.broken)}"))
        return record

    async def messages(self, conversation: str, *, start: int = 1, stop: int | None = None) -> Sequence[StoredMessage]:
        """The original messages from ``start`` to ``stop``, both included, a fork's earlier ones too.

        One that cannot be read stands in its place without bytes, and ``unreadable`` says why.
        """
        read: list[StoredMessage] = []
        last = math.inf if stop is None else stop
        for holder, base, count in await self._path(conversation):
            for first in range(max(start, base + 1), int(min(last, count)) + 1, _PAGE):
                page = min(last, count, first + _PAGE - 1)
                read += await self._page(holder, base, first, int(page))
            last = min(last, base)
        read.sort(key=lambda message: message.position)
        for one in read:
            if one.unreadable:
                self._emit(RecordBroken(conversation, f"message {one.position}", one.unreadable))
        return read

    async def message_ids(self, conversation: str, stop: int) -> Sequence[str]:
        """The ids of the messages up to position ``stop``, a fork's earlier ones too, without the messages."""
        pages: list[list[str]] = []
        for holder, base, count in await self._path(conversation):
            stop, last = min(stop, base), min(stop, count)
            if last > base:
                hashes = await self.ask("GETRANGE", keys.hash_string(holder), 0, 16 * (last - base) - 1)
                pages.append([hashes[i : i + 16].hex() for i in range(0, len(hashes), 16)])
        return [one for page in reversed(pages) for one in page]

    async def summaries(self, conversation: str, *, standing: bool = False) -> Sequence[PrefixSummary]:
        """All summaries of a conversation, oldest first.

        :param standing: those only that stand for a beginning of what is stored; a turn that was never recorded may
            have left another one
        """
        packed = await self._read(scripts.SUMMARIES, conversation, *(["standing"] if standing else []))
        readable = [summary for one in packed if (summary := codec.readable_summary(one)) is not None]
        return sorted(readable, key=lambda summary: (summary.created_at, summary.covered))

    async def all_turns(self, conversation: str) -> Sequence[codec.StoredTurn]:
        """What was done in each turn up to now, those of what a fork rests on too, oldest first."""
        found: list[codec.StoredTurn] = []
        last = sys.maxsize
        for holder, base, _ in await self._path(conversation):
            packed = await self.ask("LRANGE", keys.turn_list(holder), 0, -1)
            found += [codec.clipped(turn, last) for turn in self._turns(holder, packed) if turn.first <= last]
            last = min(last, base)
        return sorted(found, key=lambda turn: turn.created_at)

    async def system_messages(self, conversation: str) -> Mapping[bytes, bytes]:
        """Every system message that was ever sent in a conversation: digest to the client's bytes."""
        found: dict[bytes, bytes] = {}
        for holder, _, _ in await self._path(conversation):
            found |= await self.ask("HGETALL", keys.system_hash(holder))
        return found

    def _turns(self, holder: str, packed: Sequence[bytes]) -> list[codec.StoredTurn]:
        turns: list[codec.StoredTurn] = []
        for place, one in enumerate(packed, 1):
            try:
                turns.append(codec.unpack_turn(one))
            except StoreError as error:
                self._emit(RecordBroken(holder, f"turn {place}", error.internal))
        return turns

    async def _path(self, conversation: str) -> list[tuple[str, int, int]]:
        family, _ = split_id(conversation)
        return read_path(family, await self._read(scripts.PATH, conversation))

    async def _page(self, holder: str, base: int, first: int, last: int) -> list[StoredMessage]:
        low, high = first - base - 1, last - base - 1
        entries = await self.ask("LRANGE", keys.message_list(holder), low, high)
        hashes = await self.ask("GETRANGE", keys.hash_string(holder), 16 * low, 16 * high + 15)
        return [
            codec.readable_message(entry, first + i, hashes[16 * i : 16 * i + 16]) for i, entry in enumerate(entries)
        ]
