"""Exports a whole store to a file, while it is in use: ``tidemark store export``.

Each conversation is as it was at one instant between the beginning and the end of the export; what stays unchanged
meanwhile is in the file for sure. A run that was interrupted leaves a part of the file, and the next one goes on after
its last checkpoint.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from tidemark import __version__
from tidemark.codings.frames import BrokenFrame, FrameWriter, read_frames
from tidemark.core.errors import ConfigError
from tidemark.features.upkeep.export_lines import (
    FORMAT,
    Checkpoint,
    Checksum,
    End,
    ExportedKey,
    Header,
    Line,
    PendingEntry,
    Record,
    StreamGroup,
    read_lines,
    write_line,
)
from tidemark.store import keys
from tidemark.store.elements import KeyPage, read_pages
from tidemark.store.places import KeyPlace, place_of
from tidemark.store.schema import SCHEMA
from tidemark.store.scripts import lua
from tidemark.store.whole_store import KeyScan, ScanState, WholeStore

FRAME_BYTES = 1_048_576
"""Content of a frame, after which it ends with a checkpoint. One conversation is never cut, and may be longer."""
AT_ONCE = 8
"""Conversations and keys that are read side by side, and so are in memory at once."""
_READ, _GROUPS = lua(__file__, "upkeep_read"), lua(__file__, "upkeep_groups")


class StoreExport:
    """Writes one file. Mutable: the counts, and the checksum.

    :param part: the file; what an earlier run left there is gone on with, if it is of the same store
    :param clock: Unix time, seconds
    """

    def __init__(self, store: WholeStore, part: Path, clock: Callable[[], float]) -> None:
        self._store = store
        self._part = part
        self._clock = clock
        self._records = self._keys = 0
        self._checksum = Checksum()
        self.resumed_records = 0
        """Records of an earlier run that are in the file already."""
        self.end: End | None = None
        """The counts and the checksum, once the file is complete."""

    async def run(self) -> AsyncIterator[int]:
        """Write the file; yield after each page of keys how many these were.

        :raises StoreUnavailable: a server does not answer; what is written stays
        :raises ConfigError: the file cannot be written
        """
        epoch = await self._store.models_epoch()
        state = self._resume(epoch)
        try:
            with self._part.open("r+b" if state else "wb") as file:
                file.seek(0, os.SEEK_END)
                writer = FrameWriter(file)
                if state is None:
                    self._part.chmod(0o600)
                    number, _, digests = (await self._store.call("GET", keys.SCHEMA) or b"%d" % SCHEMA).partition(b":")
                    header = Header(FORMAT, int(number), __version__, round(self._clock(), 3), epoch, digests.decode())
                    self._add(writer, write_line(header))
                scan = KeyScan(self._store, state)
                async for names in scan.pages():
                    if writer.size >= FRAME_BYTES or (writer.size and not self._records):
                        self._end_frame(writer, scan.state)
                    await self._write_page(writer, names)
                    yield len(names)
                end = End(self._records, self._keys, self._checksum.end_frame())
                writer.add(write_line(end))
                writer.end()
                os.fsync(file.fileno())
                self.end = end
        except OSError as error:
            raise ConfigError(f"{self._part} cannot be written: {error.strerror}.") from error

    def _resume(self, epoch: str) -> ScanState | None:
        """Cut the file after its last checkpoint, and return how far it is; None without one."""
        checkpoint, end = None, 0
        try:
            with self._part.open("r+b") as file:
                checkpoint, end = _last_checkpoint(file, epoch)
                if checkpoint is not None:
                    file.truncate(end)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise ConfigError(f"{self._part} cannot be written: {error.strerror}.") from error
        if checkpoint is None:
            return None
        self._records, self._keys = checkpoint.records, checkpoint.keys
        self.resumed_records = checkpoint.records
        self._checksum = Checksum(checkpoint.sha256)
        return checkpoint.scan

    def _end_frame(self, writer: FrameWriter, state: ScanState) -> None:
        writer.add(write_line(Checkpoint(self._records, self._keys, self._checksum.end_frame(), state)))
        writer.end()

    def _add(self, writer: FrameWriter, line: bytes) -> None:
        self._checksum.add(line)
        writer.add(line)

    async def _write_page(self, writer: FrameWriter, names: Sequence[bytes]) -> None:
        for start in range(0, len(names), AT_ONCE):
            for records in await asyncio.gather(*map(self._read_key, names[start : start + AT_ONCE])):
                for record in records:
                    self._add(writer, write_line(record))
                    self._records += 1
                    self._keys += len(record.keys)

    async def _read_key(self, name: bytes) -> list[Record]:
        """Return the records that a key stands for; a conversation's record stands for all its parts."""
        place = place_of(name)
        if place is None or place.is_temporary:
            return []
        if place.is_conversation:
            if place.kind == keys.CONVERSATION_KINDS[0]:
                parts = await self._read_whole(place, [place.part(kind) for kind in keys.CONVERSATION_KINDS])
                return [Record(parts, place.rest.decode(errors="replace"))] if parts else []
            if await self._store.call("EXISTS", place.part(keys.CONVERSATION_KINDS[0])):
                return []
        records = [Record([key]) async for key in self._read_pages(name)]
        if len(records) > 1 and records[0].keys[0].type == "list":  # a list has no pages that could be merged
            return [Record(await self._read_whole(place, [name]))]
        return records

    async def _read_whole(self, place: KeyPlace, names: Sequence[bytes]) -> list[ExportedKey]:
        answer = await self._store.call("EVAL", _READ, 1, place.beginning, *names)
        return [ExportedKey(_text(name), kind.decode(), items, self._expiry(ttl)) for name, kind, ttl, items in answer]

    async def _read_pages(self, name: bytes) -> AsyncIterator[ExportedKey]:
        kind = ""
        async for page in read_pages(self._store, name):
            kind = page.type
            if kind != "none":
                yield self._exported(name, page)
        if kind == "stream":
            last, groups = await self._store.call("EVAL", _GROUPS, 1, name) or (b"0-0", ())
            yield ExportedKey(_text(name), kind, groups=[_group(*group) for group in groups], last_id=last.decode())

    def _exported(self, name: bytes, page: KeyPage) -> ExportedKey:
        expires_at = self._expiry(page.ttl_milliseconds)
        if page.type == "stream":
            entries = [(element.place.decode(), element.fields) for element in page.elements]
            return ExportedKey(_text(name), page.type, expires_at=expires_at, entries=entries)
        if page.type in ("hash", "zset"):
            items = [piece for element in page.elements for piece in (element.place, element.value)]
        else:
            items = [element.place if page.type == "set" else element.value for element in page.elements]
        return ExportedKey(_text(name), page.type, items, expires_at)

    def _expiry(self, ttl_milliseconds: int) -> int:
        return round(self._clock() * 1000) + ttl_milliseconds if ttl_milliseconds >= 0 else 0


def _group(name: bytes, last: bytes, waiting: int, pending: Sequence[Any]) -> StreamGroup:
    entries = [PendingEntry(id_.decode(), consumer.decode(), idle, count) for id_, consumer, idle, count in pending]
    return StreamGroup(name.decode(), last.decode(), waiting, entries)


def _text(name: bytes) -> str:
    return name.decode("latin-1")


def _is_of(line: Line, epoch: str) -> bool:
    return isinstance(line, Header) and line.format == FORMAT and line.store == epoch


def _last_checkpoint(file: BinaryIO, epoch: str) -> tuple[Checkpoint | None, int]:
    """Return the last checkpoint of a file and the byte after it; None for one of another store."""
    checkpoint, end, is_first = None, 0, True
    try:
        for frame in read_frames(file):
            lines = [line for _, line in read_lines(frame.content)]
            if is_first and not _is_of(lines[0], epoch):
                return None, 0
            is_first = False
            if not isinstance(lines[-1], Checkpoint):
                break
            checkpoint, end = lines[-1], frame.end
    except (BrokenFrame, ValueError, IndexError):
        return checkpoint, end
    return checkpoint, end
