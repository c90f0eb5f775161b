"""Exports all that is kept of a tenant, as lines of JSON or one page to read.

The store may be in use. The export goes by the same traces as an erasure (``traces.py``). A page of keys, or of the
elements of a key, is in memory at a time, and the ids of the conversations.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Literal

from tidemark import __version__
from tidemark.core.conversation.prefix import owner_of, split_id
from tidemark.core.errors import ConfigError, RecordUnreadable
from tidemark.core.frozen import frozen
from tidemark.delivery.daily_lines import opened_line
from tidemark.features.tenants.export_page import HEAD, TAIL, fragment
from tidemark.features.tenants.export_values import READERS, JsonObject, ValueReader, exported, exported_whole, json_of
from tidemark.features.tenants.traces import OwnKeys, Traces, traces_of
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.elements import Element, read_pages
from tidemark.store.places import KeyPlace, place_of
from tidemark.store.whole_store import WholeStore

Format = Literal["jsonl", "html"]
MEDIA_TYPES: dict[Format, str] = {"jsonl": "application/jsonl", "html": "text/html; charset=utf-8"}
AT_ONCE = 32
"""Elements of a key that are in memory at a time; each may be a long message."""
_CONVERSATION_KINDS = ("c", "y", *(kind for kind in keys.CONVERSATION_KINDS if kind not in ("c", "y")))
_SECRET_FIELDS = frozenset({"digest", "former_digest"})


@frozen(kw_only=True)
class ExportParts:
    """What an export reads."""

    store: WholeStore
    codec: Codec
    flush_folder: Path
    """The folder of the daily files."""
    fingerprint_of: Callable[[str], bytes]
    """Returns the fingerprint of a tenant that has keys of the application, by its name."""
    clock: Callable[[], float] = time.time


class TenantExport:
    """Exports one tenant. Mutable: the number of objects so far.

    :param owner: the whole fingerprint
    """

    def __init__(self, parts: ExportParts, owner: str) -> None:
        self._parts = parts
        self._owner = owner
        self.objects = 0

    async def write(self, form: Format) -> AsyncIterator[bytes]:
        """Yield the export, page by page. One without its last line or words is not complete.

        :raises StoreUnavailable: a server does not answer
        :raises EncryptionKeyLost: the tenant's key cannot be had
        """
        if form == "html":
            yield HEAD
        async for page in self._pages():
            yield await asyncio.to_thread(_write_page, form, page)
        if form == "html":
            yield TAIL

    async def _pages(self) -> AsyncIterator[Sequence[JsonObject]]:
        at = datetime.fromtimestamp(self._parts.clock(), UTC).isoformat(timespec="seconds")
        yield [{"type": "export", "format": 1, "tenant": self._owner, "created_at": at, "version": __version__}]
        traces = await traces_of(self._parts.store, self._owner)
        for source in (self._keys(), self._conversations(traces), self._rest(traces), self._files(traces)):
            async for page in source:
                self.objects += len(page)
                yield page
        yield [{"type": "end", "objects": self.objects}]

    async def _keys(self) -> AsyncIterator[Sequence[JsonObject]]:
        """Yield the tenant's keys of the application, without what recognizes them."""
        name = keys.models_part("a")
        async for page in read_pages(self._parts.store, name.encode()):
            own: list[JsonObject] = []
            for element in page.elements:
                try:
                    fields = self._parts.codec.unpack_json(element.value, name, element.place)
                    is_own = owner_of(self._parts.fingerprint_of(fields["tenant"])) == self._owner
                except (RecordUnreadable, KeyError, TypeError, AttributeError):
                    continue  # nobody can use it, and nothing says whose it is
                if is_own:
                    shown = {field: value for field, value in fields.items() if field not in _SECRET_FIELDS}
                    own.append({"type": "key", **shown})
            yield own

    async def _conversations(self, traces: Traces) -> AsyncIterator[Sequence[JsonObject]]:
        """Yield the conversations, each with all its parts behind it."""
        for conversation in sorted(traces.conversations):
            family, own = split_id(conversation)
            for kind in _CONVERSATION_KINDS:
                async for page in self._key(f"{keys.family_prefix(family)}:{kind}:{own}".encode()):
                    yield page

    async def _rest(self, traces: Traces) -> AsyncIterator[Sequence[JsonObject]]:
        """Yield what is of no conversation alone."""
        own, done = OwnKeys(self._parts.store, traces), set[bytes]()
        async for page in own.pages():
            for name, place in page:
                is_done = place.is_conversation and place.family + place.rest.decode() in traces.conversations
                reader = READERS.get((place.area, place.kind))
                if is_done or reader is None or name in done:
                    continue
                if await own.owns(name, place):
                    done.add(name)
                    async for objects in self._key(name):
                        yield objects
                else:
                    async for entries in own.entries(name, place):
                        if entries:
                            done.add(name)
                            yield await self._read(reader, entries, place)

    async def _key(self, name: bytes) -> AsyncIterator[Sequence[JsonObject]]:
        """Yield what a key holds."""
        place = place_of(name)
        reader = None if place is None else READERS.get((place.area, place.kind))
        if place is None or reader is None:
            return
        whole: list[Element] = []
        base = await self._base(place) if place.is_conversation and place.kind == "m" else 0
        async for page in read_pages(self._parts.store, name, AT_ONCE):
            elements = page.elements
            if reader.is_whole:
                whole += elements
                continue
            if page.type == "list":
                elements = [Element(b"%d" % (base + 1 + int(entry.place)), entry.value) for entry in elements]
            yield await self._read(reader, elements, place)
        if whole:
            yield [exported_whole(self._parts.codec, reader, whole, place)]

    async def _base(self, place: KeyPlace) -> int:
        """Return how many messages of its parents a conversation goes on from."""
        base: bytes | None = await self._parts.store.call("HGET", place.part("c"), "base")
        return int(base) if base and base.isdigit() else 0

    async def _read(self, reader: ValueReader, elements: Sequence[Element], place: KeyPlace) -> Sequence[JsonObject]:
        def read() -> list[JsonObject]:
            objects = (exported(self._parts.codec, reader, element, place) for element in elements)
            return [fields for fields in objects if fields is not None]

        return await asyncio.to_thread(read)

    async def _files(self, traces: Traces) -> AsyncIterator[Sequence[JsonObject]]:
        """Yield the lines of the daily files of this machine."""
        for tenant in sorted(traces.tenants):
            folder = self._parts.flush_folder / tenant
            for path in sorted(folder.glob("*.jsonl")) if tenant.isalnum() else ():
                with path.open("rb") as file:
                    while lines := await asyncio.to_thread(partial(_next_lines, file)):
                        yield await asyncio.to_thread(partial(list, self._lines(path.name, lines)))

    def _lines(self, file: str, lines: Sequence[bytes]) -> Iterator[JsonObject]:
        for line in lines:
            try:
                yield {"type": "daily_file", "file": file, "flush": json_of(opened_line(self._parts.codec, line))}
            except (RecordUnreadable, ValueError) as error:
                yield {"type": "daily_file", "file": file, "unreadable": str(error)}


async def write_export(export: TenantExport, form: Format, path: Path) -> None:
    """Write an export to a file that its owner alone may read; it is replaced once the export is complete.

    :raises ConfigError: the file cannot be written
    """
    part = path.with_name(f"{path.name}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            part.chmod(0o600)
            async for page in export.write(form):
                await asyncio.to_thread(file.write, page)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except OSError as error:
        raise ConfigError(f"{part} cannot be written: {error.strerror}.") from error


def _next_lines(file: BinaryIO) -> Sequence[bytes]:
    return [*islice(file, AT_ONCE)]


def _write_page(form: Format, page: Sequence[JsonObject]) -> bytes:
    if form == "html":
        return "".join(map(fragment, page)).encode("utf-8", "replace")
    # A half of a surrogate pair, which a client may send, stands as JSON escapes it.
    return "".join(f"{json.dumps(fields, ensure_ascii=False)}\n" for fields in page).encode("utf-8", "backslashreplace")
