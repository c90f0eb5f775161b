"""Redacts messages in threads of its own, within a time: the adapter of ``Redactor``.

No request waits for it but one that needs a summary. A pattern or a hook that takes too long fails, and what it was to
examine is not stored.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TypeVar

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import Message, ToolCall, digest_of
from tidemark.core.errors import RedactionFailed
from tidemark.privacy.json_texts import redact_raw, redact_text
from tidemark.privacy.patterns import Redact

T = TypeVar("T")
MOST_THREADS = 8
"""Threads that may be at work, while others wait; a hook that never ends blocks one for good."""
GRACE_SECONDS = 0.5
"""A pattern is stopped in time, and its thread may wait for the interpreter."""
UNCHANGED = 20_000
"""Digests of messages in which nothing is to be redacted, such as the system prompt of every turn; some 2 MB."""
_FAILED = "What was to be stored could not be redacted (privacy), so it is not stored."


class TextRedactor:
    """Redacts by patterns, then by a hook. Mutable: which messages need nothing, and how many threads are free.

    :param seconds: the longest that one call may take
    """

    def __init__(self, patterns: Redact, hook: Callable[[str], str] | None = None, *, seconds: float = 5.0) -> None:
        self._patterns = patterns
        self._hook = hook
        self._seconds = seconds
        self._unchanged: BoundedCache[bytes, bool] = BoundedCache(UNCHANGED)
        self._free = asyncio.Semaphore(MOST_THREADS)

    async def messages(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Return redacted messages with the digests that they had."""
        digests = [digest_of(message.raw, message.text.encode("utf-8", "surrogatepass")) for message in messages]
        waiting = [place for place, digest in enumerate(digests) if digest not in self._unchanged]
        if not waiting:
            return messages
        chosen = [messages[place] for place in waiting]
        redacted = [*messages]
        for place, message in zip(
            waiting, await self._run(lambda text: [_message(one, text) for one in chosen]), strict=True
        ):
            if message is messages[place]:
                self._unchanged.put(digests[place], value=True)
            redacted[place] = message
        return redacted

    async def raws(self, raws: Sequence[bytes]) -> Sequence[bytes]:
        return await self._run(lambda text: [redact_raw(raw, text) for raw in raws]) if raws else raws

    async def texts(self, texts: Sequence[str]) -> Sequence[str]:
        return await self._run(lambda text: [redact_text(one, text) for one in texts]) if any(texts) else texts

    async def _run(self, work: Callable[[Callable[[str], str]], T]) -> T:
        """Return what a work makes in a thread, if one is free and it ends in time.

        :raises RedactionFailed: it does not, or the hook raises
        """
        try:
            async with asyncio.timeout(self._seconds):
                await self._free.acquire()
        except TimeoutError as error:
            internal = f"privacy: {MOST_THREADS} calls have not ended for {self._seconds:g} s"
            raise RedactionFailed(_FAILED, internal=internal) from error
        done = asyncio.get_running_loop().create_future()
        threading.Thread(target=self._work, args=(work, done), name="privacy", daemon=True).start()
        try:
            async with asyncio.timeout(self._seconds + GRACE_SECONDS):
                result: T = await done
                return result
        except TimeoutError as error:
            raise RedactionFailed(_FAILED, internal=f"privacy.hook did not end within {self._seconds:g} s") from error

    def _work(self, work: Callable[[Callable[[str], str]], T], done: asyncio.Future[T]) -> None:
        """Do a work in this thread, and settle its future in the loop's."""
        loop = done.get_loop()

        def settle(outcome: T | RedactionFailed) -> None:
            self._free.release()
            if done.done():  # nobody waits any more
                return
            if isinstance(outcome, RedactionFailed):
                done.set_exception(outcome)
            else:
                done.set_result(outcome)

        outcome: T | RedactionFailed
        try:
            outcome = work(partial(self._redact, end=time.monotonic() + self._seconds))
        except BaseException as error:  # noqa: BLE001 - whatever a hook raises is a failure of the hook
            # Of a foreign error the kind only: its words may quote the text.
            outcome = RedactionFailed(_FAILED, internal=f"privacy: {type(error).__name__}")
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, outcome)

    def _redact(self, text: str, *, end: float) -> str:
        redacted = self._patterns(text, end)
        if self._hook is not None:
            redacted = self._hook(redacted)
            if not isinstance(redacted, str):
                raise TypeError(redacted)
        return redacted


def _message(message: Message, redact: Callable[[str], str]) -> Message:
    """Return a message with redacted texts; the same object if nothing changes."""
    known: dict[str, str] = {}

    def once(text: str) -> str:
        """Return a redacted text; the text of most messages stands in their JSON as well."""
        if text not in known:
            known[text] = redact(text)
        return known[text]

    raw = redact_raw(message.raw, once) if message.raw else message.raw
    text = redact_text(message.text, once)
    calls = tuple(ToolCall(call.id, call.name, redact_text(call.arguments, once)) for call in message.calls)
    if raw is message.raw and text == message.text and calls == message.calls:
        return message
    return Message(
        raw,
        message.role,
        text,
        message.digest,
        name=message.name,
        calls=calls,
        answers=message.answers,
        media=message.media,
    )
