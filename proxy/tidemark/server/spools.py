"""Keeps the beginnings of forms whose model is not known yet, in temporary files within one budget for a worker.

``endpoints/destinations.py`` fills them, because clients may send a form's fields after its file. The budget is shared
out by credential: if it is full, the credential that keeps most loses its largest form.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from tempfile import SpooledTemporaryFile

from tidemark.codings.sealing import Box
from tidemark.core.errors import BodyTooLarge, RequestTimedOut, ServerBusy
from tidemark.core.frozen import frozen

IN_MEMORY_BYTES = 65_536
"""A longer beginning goes to a temporary file. Every connection may have one."""
PIECE_BYTES = 65_536
"""The size of the pieces in which a temporary file is read."""
RETRY_SECONDS = 5.0
"""The ``Retry-After`` of a form that is refused because others fill the budget."""
_MEND = "Send the field 'model' before the file, name it in the query (?model=...), or"
_LATE_FIELD = "The first {bytes:,} bytes of the form have no field, only files. {mend} raise server.max_file_first_mb."
_LATE_MODEL = "The first {bytes:,} bytes of the form do not name its model. {mend} raise server.max_spool_mb."
_SLOW = "The form did not name its model within {seconds:g} seconds. {mend} raise server.form_seconds."
_FULL = (
    "Forms whose model is not known yet fill the {megabytes:,} MB of server.max_spools_mb, and this is the largest "
    "form of the credential that keeps most. {mend} try again in a moment."
)
_NOT_KEPT = (
    "The form cannot be kept until its model is known: its temporary file takes no more. {mend} free space in TMPDIR."
)


@frozen(kw_only=True)
class SpoolBounds:
    """The bounds of forms until their model is known."""

    all_bytes: int
    """Of all forms of a worker."""
    form_bytes: int
    """Of one form."""
    file_first_bytes: int
    """Of one form that has had no field yet, only files."""
    seconds: float
    """From the beginning of a form to its model."""


class Spools:
    """The kept beginnings of one worker. Mutable: how much each credential keeps, and each form.

    :param box: seals what is kept, with a key that this process alone has; None leaves it as it is
    """

    def __init__(self, bounds: SpoolBounds, box: Box | None = None) -> None:
        self.bounds = bounds
        self.box = box
        self.total = 0
        """The bytes of all forms."""
        self._forms: dict[KeptBeginning, int] = {}
        self._tenants: Counter[bytes] = Counter()

    def add(self, form: KeptBeginning, size: int) -> None:
        """Count more bytes of a form; if they do not fit, refuse a form.

        :raises ServerBusy: it is this form
        """
        self._forms[form] = self._forms.get(form, 0) + size
        self._tenants[form.tenant] += size
        self.total += size
        while self.total > self.bounds.all_bytes:
            refusable = [other for other in self._forms if other.is_collected or other is form]
            largest = max(refusable, key=lambda other: (self._tenants[other.tenant], self._forms[other]))
            self.release(largest)
            full = _FULL.format(megabytes=self.bounds.all_bytes // 2**20, mend=_MEND)
            refusal = ServerBusy(full, retry_after=RETRY_SECONDS)
            if largest is form:
                raise refusal
            largest.refuse(refusal)

    def release(self, form: KeptBeginning) -> None:
        """Forget a form that has been sent or refused."""
        size = self._forms.pop(form, 0)
        self.total -= size
        self._tenants[form.tenant] -= size
        if not self._tenants[form.tenant]:
            del self._tenants[form.tenant]


class KeptBeginning:
    """The beginning of a form whose destination is not known yet, in a temporary file if it is long.

    Mutable: what was kept, and whether more is awaited.

    :param tenant: whose form it is
    """

    def __init__(self, spools: Spools, tenant: bytes) -> None:
        self.tenant = tenant
        self.size = 0
        self._spools = spools
        self._file = SpooledTemporaryFile(max_size=IN_MEMORY_BYTES)  # noqa: SIM115 - closed by close()
        self._pieces: list[tuple[int, int, int]] = []
        """Of sealed pieces: where each begins, its length, and its length in the file."""
        self._timeout: asyncio.Timeout | None = None
        self._refusal: ServerBusy | None = None

    @property
    def is_collected(self) -> bool:
        """Whether more is awaited, so that the form can be refused."""
        return self._timeout is not None

    @asynccontextmanager
    async def collecting(self) -> AsyncIterator[None]:
        """Bound the time in which the form is collected.

        :raises RequestTimedOut: it is over
        :raises ServerBusy: the forms of others need its share
        """
        seconds = self._spools.bounds.seconds
        try:
            async with asyncio.timeout(seconds) as self._timeout:
                yield
        except TimeoutError as error:
            raise self._refusal or RequestTimedOut(_SLOW.format(seconds=seconds, mend=_MEND)) from error
        finally:
            self._timeout = None

    def refuse(self, refusal: ServerBusy) -> None:
        """End the collection with an error."""
        if self._timeout is not None and not self._timeout.expired():
            self._refusal = refusal
            self._timeout.reschedule(asyncio.get_running_loop().time())

    async def add(self, piece: bytes, *, has_field: bool = True) -> None:
        """Keep one more piece.

        :param has_field: whether the form has had a field that is no file
        :raises BodyTooLarge: the beginning is longer than its bound
        :raises ServerBusy: the budget is full, or the disk takes no more
        """
        bounds, box = self._spools.bounds, self._spools.box
        start = self.size
        self.size += len(piece)
        if self.size > bounds.form_bytes:
            raise BodyTooLarge(_LATE_MODEL.format(bytes=bounds.form_bytes, mend=_MEND))
        if not has_field and self.size > bounds.file_first_bytes:
            raise BodyTooLarge(_LATE_FIELD.format(bytes=bounds.file_first_bytes, mend=_MEND))
        self._spools.add(self, len(piece))
        if box is not None:
            sealed = box.seal(piece, b"%d" % start)
            self._pieces.append((start, len(piece), len(sealed)))
            piece = sealed
        try:
            if self.size > IN_MEMORY_BYTES:
                await asyncio.to_thread(self._file.write, piece)
            else:
                self._file.write(piece)
        except OSError as error:
            raise ServerBusy(_NOT_KEPT.format(mend=_MEND), internal=repr(error)) from error

    async def pieces(self, start: int, end: int, replacement: bytes) -> AsyncGenerator[bytes, None]:
        """Yield what was kept, with other bytes in the place of those from ``start`` to ``end``."""
        async for piece in self._stretch(0, start):
            yield piece
        if replacement:
            yield replacement
        async for piece in self._stretch(end, self.size):
            yield piece

    def close(self) -> None:
        """Delete the file, and give its share back; a second call does nothing."""
        self._spools.release(self)
        self._file.close()

    async def _sealed_stretch(self, box: Box, start: int, end: int) -> AsyncGenerator[bytes, None]:
        at = 0
        for begin, length, sealed_length in self._pieces:
            if begin < end and begin + length > start:
                self._file.seek(at)
                piece = box.open(await asyncio.to_thread(self._file.read, sealed_length), b"%d" % begin)
                yield piece[max(0, start - begin) : end - begin]
            at += sealed_length

    async def _stretch(self, start: int, end: int) -> AsyncGenerator[bytes, None]:
        if self._spools.box is not None:
            async for piece in self._sealed_stretch(self._spools.box, start, end):
                yield piece
            return
        self._file.seek(start)
        while start < end:
            size = min(PIECE_BYTES, end - start)
            is_on_disk = self.size > IN_MEMORY_BYTES
            piece = await asyncio.to_thread(self._file.read, size) if is_on_disk else self._file.read(size)
            start += len(piece)
            yield piece
