"""Reading an answer beside the bytes that carry it: at once where it is small, in a thread where it is large.

Below the relay, which carries the bytes and may not fail for what is read of them. A large answer takes the event
loop's time from all other requests, so it is read in a thread; one thing after another, also where the client leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from proxy.dialects.chat.reply import Reply
from proxy.dialects.chat.stream import StreamFold

LARGE_BYTES = 2**17
"""An answer beyond this is read and counted in a thread: counting so much text takes some 20 ms."""


class AnswerFold:
    """Folds an answer as far as it can be read: reading never raises, and is given up at the first failure.

    :param read: what was said, to be called once
    :param failed: told why nothing more is read
    """

    def __init__(self, read: Callable[[], Reply | None], failed: Callable[[Exception], None]) -> None:
        """Nothing is read yet."""
        self._read = read
        self._failed = failed
        self._reply: Reply | None = None
        self._over = False
        self._size = 0
        self._reading: asyncio.Task[None] | None = None
        """What a thread takes in; it goes on where whoever waits for it leaves."""

    @property
    def large(self) -> bool:
        """Whether so much has come that the rest of the work is one for a thread."""
        return self._size > LARGE_BYTES

    def take(self, fold: StreamFold, chunk: bytes) -> Awaitable[None] | None:
        """Take in a stream's next bytes; what is returned is to be waited for, a thread takes them in."""
        self._size += len(chunk)
        if self._size > LARGE_BYTES and fold.may_end_large(chunk):
            return self._take_aside(fold.feed, chunk)
        if not self._over:
            try:
                fold.feed(chunk)
            except Exception as error:  # noqa: BLE001 - see the class
                self._over = True
                self._failed(error)
        return None

    async def _take_aside(self, feed: Callable[[bytes], None], chunk: bytes) -> None:
        if not self._over:
            self._reading = asyncio.create_task(asyncio.to_thread(feed, chunk))
            await asyncio.wait([self._reading])
            self._note_failure()

    async def reply_aside(self) -> Reply | None:
        """What was said, put together in a thread."""
        if self._reading is not None:
            await asyncio.wait([self._reading])
            self._note_failure()
        if not self._over:
            self._over = True
            try:
                self._reply = await asyncio.to_thread(self._read)
            except Exception as error:  # noqa: BLE001 - see the class
                self._failed(error)
        return self._reply

    def _note_failure(self) -> None:
        """Give up where a thread could not read."""
        reading, self._reading = self._reading, None
        error = reading.exception() if reading is not None else None
        if isinstance(error, Exception) and not self._over:
            self._over = True
            self._failed(error)

    def reply(self) -> Reply | None:
        """What was said, once and for all; None where the bytes cannot be read."""
        if not self._over:
            self._over = True
            try:
                self._reply = self._read()
            except Exception as error:  # noqa: BLE001 - see the class
                self._failed(error)
        return self._reply
