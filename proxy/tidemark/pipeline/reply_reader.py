"""Reads a reply beside the bytes that carry it. A large reply is read in a thread.

The relay carries the bytes, and no failure to read them may stop it. A large reply would take the event loop's time
from all other requests, so a thread reads it; the steps stay in order, even if the client leaves.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tidemark.core.conversation.reply import Reply, ReplyFold

LARGE_BYTES = 2**17
"""A larger reply is read and counted in a thread: to count so much text takes some 20 ms."""


class ReplyReader:
    """Reads a reply as far as possible: it never raises, and gives up at the first failure.

    :param read: returns the whole reply; called once
    :param on_failure: takes the reason why nothing more is read
    """

    def __init__(self, read: Callable[[], Reply | None], on_failure: Callable[[Exception], None]) -> None:
        self._read = read
        self._on_failure = on_failure
        self._reply: Reply | None = None
        self._over = False
        self._size = 0
        self._reading: asyncio.Task[None] | None = None
        """What a thread takes in; it goes on if its waiter leaves."""

    @property
    def is_large(self) -> bool:
        """Whether the rest of the work is one for a thread."""
        return self._size > LARGE_BYTES

    def feed(self, fold: ReplyFold, chunk: bytes) -> Awaitable[None] | None:
        """Take in a stream's next bytes; wait for what is returned, because a thread takes them in then."""
        self._size += len(chunk)
        if self._size > LARGE_BYTES and fold.may_end_large(chunk):
            return self._feed_in_thread(fold.feed, chunk)
        if not self._over:
            try:
                fold.feed(chunk)
            except Exception as error:  # noqa: BLE001 - see the class
                self.give_up(error)
        return None

    async def _feed_in_thread(self, feed: Callable[[bytes], None], chunk: bytes) -> None:
        if not self._over:
            self._reading = asyncio.create_task(asyncio.to_thread(feed, chunk))
            await asyncio.wait([self._reading])
            self._note_failure()

    async def reply_from_thread(self) -> Reply | None:
        if self._reading is not None:
            await asyncio.wait([self._reading])
            self._note_failure()
        if not self._over:
            self._over = True
            try:
                self._reply = await asyncio.to_thread(self._read)
            except Exception as error:  # noqa: BLE001 - see the class
                self.give_up(error)
        return self._reply

    def reply(self) -> Reply | None:
        """Return the reply, the same at every call; None if the bytes cannot be read."""
        if not self._over:
            self._over = True
            try:
                self._reply = self._read()
            except Exception as error:  # noqa: BLE001 - see the class
                self.give_up(error)
        return self._reply

    def _note_failure(self) -> None:
        """Give up if a thread could not read."""
        reading, self._reading = self._reading, None
        error = reading.exception() if reading is not None else None
        if isinstance(error, Exception) and not self._over:
            self.give_up(error)

    def give_up(self, error: Exception) -> None:
        """Read nothing more, for this reason."""
        self._over = True
        self._on_failure(error)
