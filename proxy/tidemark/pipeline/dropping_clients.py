"""The step ``dropping_clients``: goes on with the conversation of a client that drops its oldest messages.

Chat front ends send their newest messages only: the last twenty, or as many as fit. Each of their requests has another
beginning, so to the store it is another conversation. A summary was prepared after every turn, which nobody used; on a
local model that takes longer than the answer. If that part of the talk was longer than the window, every request waited
for a summary of its own.

So each process remembers what its clients sent. It prepares nothing for a client that drops messages, as long as its
requests fit. If they do not, and the client has dropped messages more than once, those that the summary of its last
request stands for are read from the store, and the conversation goes on (docs/adr/0052).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidemark.core.bounded import SizedCache
from tidemark.core.conversation.dropping import PROOF, dropped_messages
from tidemark.core.conversation.messages import digest_of
from tidemark.core.conversation.records import REDACTED
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import StoreError
from tidemark.core.frozen import frozen
from tidemark.core.ports import ConversationStore, Upstream
from tidemark.dialects.message_formats import MessageFormats
from tidemark.pipeline.history_reader import offloaded
from tidemark.pipeline.identify import tenant_of
from tidemark.pipeline.values import Exchange, Result
from tidemark.pipeline.walk import Walk

MAX_DIGESTS = 50_000
"""Of the messages of all remembered requests; each takes some 60 bytes."""
LEAST_MESSAGES = PROOF + 2
"""A shorter request shows nothing."""
LOOKED_BACK = 8
"""Messages that may have come since the remembered request."""
OFTEN = 2
"""So many requests that drop messages show a habit. One alone may be a person who deletes something."""
PATIENCE = 3
"""After so many requests that drop none, it is no habit any more."""


@frozen
class _EarlierRequest:
    """What is remembered of a request."""

    digests: tuple[bytes, ...]
    conversation: str
    head: int
    """How many first messages of the conversation it had before those that it did not have."""
    missing: int
    """How many it did not have."""
    summarized: int
    """How many its summary stood for."""
    drops: int
    """How many requests have dropped messages, up to this one."""
    whole_requests: int
    """How many have come since, which dropped none."""


_Remembered = SizedCache[bytes, _EarlierRequest]
"""By the two newest messages of a request, and by the two before the newest."""


class ComparedRequest:
    """A request beside the one before it. It is remembered when its reply begins."""

    def __init__(
        self, remembered: _Remembered, keys: Sequence[bytes], digests: tuple[bytes, ...], before: _EarlierRequest | None
    ) -> None:
        self._remembered = remembered
        self._keys = keys
        self._digests = digests
        self._drops = self._whole_requests = 0
        self.conversation = ""
        """The conversation that the request goes on with, although it has dropped messages; empty for most."""
        self.head = self.missing = 0
        """How many of the conversation's first messages it has, and how many behind them it has not."""
        if before is not None:
            self._compare(before)

    def _compare(self, before: _EarlierRequest) -> None:
        summarized, head = before.summarized - before.missing, before.head if before.missing else None
        dropped = dropped_messages(before.digests, self._digests, summarized, head=head)
        whatever_follows = dropped or dropped_messages(before.digests, self._digests, head=head)
        if whatever_follows is not None and whatever_follows.count:
            self._drops = before.drops + 1
        elif before.whole_requests < PATIENCE:
            self._drops, self._whole_requests = before.drops, before.whole_requests + 1
        if dropped is None or self._drops < OFTEN:
            return
        missing = before.missing + dropped.count
        if missing and dropped.head + missing <= before.summarized:
            self.conversation, self.head, self.missing = before.conversation, dropped.head, missing

    def leave_alone(self) -> None:
        """Note that the missing messages cannot be added, so that another conversation begins."""
        self.conversation, self.head, self.missing = "", 0, 0

    async def settle(self, result: Result) -> Result:
        """Remember the request, and prepare no summary of what its client is about to drop."""
        if not isinstance(result, Exchange) or result.reply.status >= 400:
            return result
        report = result.report
        request = _EarlierRequest(
            self._digests,
            report.conversation,
            self.head,
            self.missing,
            report.summarized,
            self._drops,
            self._whole_requests,
        )
        for key in self._keys:
            self._remembered.put(key, request)
        if self._drops and not report.summarized:
            return replace(result, turn=replace(result.turn, prepare=None))
        return result

    async def abandon(self) -> None:
        """Do nothing: the next request finds the one before this one."""


class DroppingClients:
    """The step. Its state is what was sent; losing it costs a summary or two."""

    def __init__(self, upstream: Upstream, store: ConversationStore, formats: MessageFormats) -> None:
        self._upstream = upstream
        self._store = store
        self._formats = formats
        self._remembered: _Remembered = SizedCache(MAX_DIGESTS, lambda request: len(request.digests))

    async def __call__(self, walk: Walk) -> Walk:
        """Add the messages that a client has dropped, if a summary stands for them."""
        request = walk.request
        if (
            len(request.messages) < LEAST_MESSAGES
            or walk.place is not None
            or walk.controls.history == "stored"
            or walk.controls.mode != "auto"
            or request.continuation is not None
            or request.left_to_upstream
        ):
            return walk
        compared = await self._compared(walk)
        if compared is None:
            return walk
        walk.obligations.append(compared)
        if compared.conversation:
            whole = await self._whole(request, compared)
            if whole is None:
                compared.leave_alone()
            else:
                walk.request = whole
        return walk

    async def _compared(self, walk: Walk) -> ComparedRequest | None:
        """Return a request beside the one before it, which the same client sent to the same model."""
        request = walk.request
        digests = tuple([message.digest for message in request.messages if not message.is_system])
        if len(digests) < LEAST_MESSAGES:
            return None
        tenant = tenant_of(walk.caller, await self._upstream.resolve(request.model))
        owner = digest_of(tenant.encode(), request.model.encode(), (walk.controls.conversation or "").encode())
        stop = len(digests)
        keys = [_key(owner, digests, end) for end in range(stop, max(stop - LOOKED_BACK, 2), -1)]
        before = next((self._remembered[key] for key in keys if key in self._remembered), None)
        return ComparedRequest(self._remembered, keys[:2], digests, before)

    async def _whole(self, request: ModelRequest, compared: ComparedRequest) -> ModelRequest | None:
        """Return a request with the messages that its client has dropped; None if the store has them not as sent."""
        dialect = request.dialect
        first, stop = compared.head + 1, compared.head + compared.missing
        try:
            records = await self._store.messages(compared.conversation, start=first, stop=stop)
        except StoreError:
            return None
        raws = [record.raw for record in records]
        if len(raws) != compared.missing or any(record.unreadable or record.scheme == REDACTED for record in records):
            return None
        if not all(self._formats.is_native(raw, dialect) for raw in raws):
            return None
        dropped = await offloaded(lambda: self._formats.sendable(raws, dialect), raws)
        own = [message.raw for message in request.messages]
        place = [place for place, message in enumerate(request.messages) if not message.is_system][compared.head]
        body = dialect.body_with_raw(request, [*own[:place], *dropped, *own[place:]])
        return await dialect.parse(body, bounded=False)


def _key(owner: bytes, digests: Sequence[bytes], end: int) -> bytes:
    """Return the name of a request by the two messages up to a place.

    One name is not enough: a client may send its newest message in other words later, without what it had looked up
    for it, or may have moved a note between the others.
    """
    return digest_of(owner, *digests[end - 2 : end])
