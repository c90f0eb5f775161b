"""Imports an exported store into another one, while that is in use: ``tidemark store import``.

Each frame of the file is checked before anything of it is stored. What the store has already is not overwritten, but
for a conversation that is newer in the file. The store notes how far an import is, so a later run goes on there; a
record that comes twice changes nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import msgspec

from tidemark.codings.frames import BrokenFrame, Frame, read_frames
from tidemark.core.errors import StoreError
from tidemark.features.upkeep.export_lines import (
    FORMAT,
    Checkpoint,
    Checksum,
    End,
    ExportedKey,
    Header,
    Line,
    Record,
    read_lines,
)
from tidemark.store import keys
from tidemark.store.connection.pipelined import Argument
from tidemark.store.places import place_of, printable
from tidemark.store.schema import SCHEMA
from tidemark.store.scripts import lua
from tidemark.store.whole_store import WholeStore

AT_ONCE = 16
"""Records that are stored side by side."""
RESUMED_SECONDS = 7 * 86_400
"""How long an import that was interrupted can go on where it was."""
MOST_NAMES = 20
"""Keys with another content in the store that are named."""
_WRITE = lua(__file__, "upkeep_write")


class ImportCounts(msgspec.Struct):
    """What became of the records of a file so far."""

    records: int = 0
    added: int = 0
    replaced: int = 0
    unchanged: int = 0
    differing: int = 0
    """The store has something else there, which may be newer."""
    expired: int = 0
    """Their time was over since the export."""


class _Progress(msgspec.Struct):
    offset: int
    keys: int
    sha256: str
    counts: ImportCounts
    is_complete: bool
    """Whether the last line was read."""


class StoreImport:
    """Reads one file into a store. Mutable: the counts, the checksum, and how far it is.

    :param replace: let the file replace what the store has, newer or not
    :param clock: Unix time, seconds
    """

    def __init__(self, store: WholeStore, path: Path, clock: Callable[[], float], *, replace: bool = False) -> None:
        self._store = store
        self._path = path
        self._clock = clock
        self._replace = replace
        self._checksum = Checksum()
        self._keys = 0
        self._progress_key = ""
        self._changes_models = False
        self._is_complete = False
        self.counts = ImportCounts()
        self.differing_names: list[str] = []
        """The first names of keys that the store has otherwise."""
        self.resumed_records = 0
        """Records that an earlier run has imported."""

    async def run(self) -> AsyncIterator[int]:
        """Store all records; yield after each frame how many bytes of the file it is.

        :raises StoreError: the file is damaged or cut, or no export that this version reads
        :raises StoreUnavailable: a server does not answer; what is stored stays
        """
        with self._path.open("rb") as file:
            first = next(self._frames(file, 0), None)
            if first is None:
                raise StoreError(f"{self._path} is empty, and no exported store.")
            start = await self._begin(first)
            if start:
                yield start
            for frame in self._frames(file, start):
                if self._is_complete:
                    raise self._broken(frame.start, "more follows its last line")
                await self._import(frame)
                yield frame.end - frame.start
        if not self._is_complete:
            size = self._path.stat().st_size
            raise self._broken(size, "it ends there without its last line")
        await self._finish()

    def _frames(self, file: BinaryIO, start: int) -> Iterator[Frame]:
        frames = read_frames(file, start)
        while True:
            try:
                yield next(frames)
            except StopIteration:
                return
            except BrokenFrame as error:
                words = "it ends within the piece that begins there" if error.is_cut else f"damaged: {error}"
                raise self._broken(error.start, words) from error

    async def _begin(self, frame: Frame) -> int:
        """Read the header and what an earlier run has noted; return the byte to go on at."""
        lines = self._lines(frame)
        text, header = lines[0]
        if not isinstance(header, Header):
            raise StoreError(f"{self._path} is no exported store: its first line is no header.")
        if header.format > FORMAT or header.schema > SCHEMA:
            raise StoreError(
                f"{self._path} was exported by Tidemark {header.version}, with format {header.format} and schema "
                f"{header.schema}; this version reads {FORMAT} and {SCHEMA}. Import it with that version."
            )
        number, _, digests = (await self._store.call("GET", keys.SCHEMA) or b"0").partition(b":")
        if digests.decode() != header.digests:
            raise StoreError(
                f"{self._path} has other digests than this store, so nothing of it would be found here: "
                "encryption.keyed_digests or TIDEMARK_SECRET differs. Import it into a store that began with the same."
            )
        if int(number) < header.schema:  # before what older versions cannot read
            await self._store.call("SET", keys.SCHEMA, str(header.schema), "XX")
        mode = b"replace" if self._replace else b""
        self._progress_key = keys.IMPORT + hashlib.sha256(text + mode).hexdigest()
        packed = await self._store.call("GET", self._progress_key)
        if packed is None:
            return 0
        done = msgspec.json.decode(packed, type=_Progress)
        self.counts, self._keys, self._checksum = done.counts, done.keys, Checksum(done.sha256)
        self._is_complete = done.is_complete
        self.resumed_records = done.counts.records
        return done.offset

    async def _import(self, frame: Frame) -> None:
        """Check one frame, store its records, and note how far the import is."""
        lines = self._lines(frame)
        records = [line for _, line in lines if isinstance(line, Record)]
        foreign = next((_name(key) for record in records for key in record.keys if not _is_own(key)), None)
        if foreign is not None:
            raise self._broken(frame.start, f"it has the key {printable(foreign)}, which is none of Tidemark's")
        for text, line in lines:
            if isinstance(line, Record | Header):
                self._checksum.add(text)
        last = lines[-1][1]
        if not isinstance(last, Checkpoint | End):
            raise self._broken(frame.start, "the piece that begins there has no checkpoint")
        exported_keys = self._keys + sum([len(record.keys) for record in records])
        stated = (last.records, last.keys, last.sha256)
        if stated != (self.counts.records + len(records), exported_keys, self._checksum.end_frame()):
            raise self._broken(frame.start, "the piece that begins there does not fit its checksum")
        for start in range(0, len(records), AT_ONCE):
            part = records[start : start + AT_ONCE]
            for record, outcome in zip(part, await asyncio.gather(*map(self._write, part)), strict=True):
                self._count(record, outcome)
        self._keys = exported_keys
        self._is_complete = isinstance(last, End)
        progress = _Progress(frame.end, self._keys, last.sha256, self.counts, self._is_complete)
        await self._store.call("SET", self._progress_key, msgspec.json.encode(progress), "EX", RESUMED_SECONDS)

    async def _write(self, record: Record) -> str:
        name = _name(record.keys[0])
        place = place_of(name)
        beginning = place.beginning if place and record.conversation else name
        arguments: list[Argument] = [int(self._replace), record.conversation, round(self._clock() * 1000)]
        for key in record.keys:
            arguments += _arguments(key)
        outcome: bytes = await self._store.call_large("EVAL", _WRITE, 1, beginning, *arguments)
        if place and place.area == "models" and outcome in (b"added", b"replaced"):
            self._changes_models = True
        return outcome.decode()

    def _count(self, record: Record, outcome: str) -> None:
        self.counts.records += 1
        setattr(self.counts, outcome, getattr(self.counts, outcome) + 1)
        if outcome == "differing" and len(self.differing_names) < MOST_NAMES:
            self.differing_names.append(printable(_name(record.keys[0])))

    async def _finish(self) -> None:
        """Let all workers read the registry again, and forget how far the import was."""
        if self._changes_models:
            epoch = await self._store.models_epoch()
            change = uuid.uuid4().hex
            await self._store.call("SET", keys.models_part("v"), f"{epoch or change}:{change}")
        await self._store.call("DEL", self._progress_key)

    def _lines(self, frame: Frame) -> Sequence[tuple[bytes, Line]]:
        try:
            lines = read_lines(frame.content)
        except (msgspec.MsgspecError, ValueError) as error:
            raise self._broken(frame.start, f"the piece that begins there is no export: {error}") from error
        if not lines:
            raise self._broken(frame.start, "the piece that begins there is empty")
        return lines

    def _broken(self, offset: int, cause: str) -> StoreError:
        return StoreError(
            f"{self._path} is not complete at byte {offset:,}: {cause}. The {self.counts.records:,} records before it "
            "are imported; with a complete file the same command goes on after them."
        )


def _is_own(key: ExportedKey) -> bool:
    """Tell whether a key is Tidemark's. A store may be shared with other programs, whose keys no file may write."""
    return key.key.startswith(keys.PREFIX)


def _name(key: ExportedKey) -> bytes:
    return key.key.encode("latin-1")


def _arguments(key: ExportedKey) -> list[Argument]:
    """Return a key as the script takes it.

    The groups of a stream follow as keys of types of their own.
    """
    name = _name(key)
    if key.type != "stream":
        return [name, key.type, key.expires_at, len(key.items), *key.items]
    items: list[Argument] = []
    for id_, fields in key.entries:
        items += (id_, len(fields), *fields)
    arguments: list[Argument] = [name, "stream", key.expires_at, len(items), *items]
    for group in key.groups:
        about: list[Argument] = [group.name, group.last_id, group.waiting]
        for entry in group.pending:
            about += (entry.id, entry.consumer, entry.idle_milliseconds, entry.deliveries)
        arguments += (name, "group", 0, len(about), *about)
    if key.last_id:
        arguments += (name, "last", 0, 1, key.last_id)
    return arguments
