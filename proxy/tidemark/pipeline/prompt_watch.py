"""Finds changes that clients make to earlier parts of their requests: a provider's prompt cache breaks there.

The step ``identify`` asks for each request. A request is compared by digests, which the store has with the
conversation. So every worker knows which changes were reported. An earlier message is compared only if a request leaves
its conversation and has at least two messages after that place: a person who asks something else has one. The other
branches that went on from there are compared, too.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import chain as joined
from itertools import islice

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.echoes import ChangedEcho
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.prefix import PrefixChain
from tidemark.core.conversation.prompt_changes import PromptChange, SentPrompt, first_change
from tidemark.core.conversation.records import ConversationState
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.sent_prompts import (
    NO_NEWS,
    PromptNews,
    is_told,
    message_digest,
    news_of,
    packed,
    system_digests,
    told_news,
    tool_digests,
)
from tidemark.core.errors import InvalidRequest, StoreError
from tidemark.core.events import Listener, StoreDegraded
from tidemark.core.ports import ConversationStore
from tidemark.pipeline.changed_echoes import ReadStored
from tidemark.pipeline.history_reader import offloaded

MOST_CACHED = 64
"""Members whose digests a process keeps; a conversation's tools are the same bytes in each request."""
MOST_CACHED_BYTES = 131_072
"""Larger members are digested with each request, in a thread."""
MOST_COMPARED = 64
"""Messages of each branch after the place where a request leaves its conversation."""


class PromptWatch:
    """Finds the change that a request's client must hear of. Its state is digests of the newest members.

    :param read: reads stored messages of any dialect; without it no message is compared
    """

    def __init__(self, store: ConversationStore, read: ReadStored | None, emit: Listener) -> None:
        self._store = store
        self._read = read
        self._emit = emit
        self._tools: BoundedCache[bytes, bytes] = BoundedCache(MOST_CACHED)
        self._systems: BoundedCache[bytes, bytes] = BoundedCache(MOST_CACHED)

    async def look(
        self, request: ModelRequest, stored: ConversationState, chain: PrefixChain, *, has_earlier: bool = True
    ) -> PromptNews:
        """Return the change to report, and what the turn stores of it; nothing while nothing could be stored.

        :param stored: after answers that the request repeats in other words were recognized
        :param chain: the request's
        :param has_earlier: whether the client sent the earlier messages itself
        """
        if stored.degraded or stored.unwritable or stored.full:
            return NO_NEWS
        prompt = await self._prompt_of(request)
        if stored.conversation is None:
            return PromptNews(b"\n" + prompt)
        if not stored.prompt_record and stored.echo is not None:
            return NO_NEWS
        news = news_of(stored.prompt_record, prompt, is_fork=stored.diverges)
        if not stored.prompt_record or not has_earlier or is_told(stored.prompt_record, "message"):
            return news
        change = None
        if stored.diverges:
            change = await self._edited(request, stored, stored.conversation, chain)
        elif stored.echo is not None:
            change = _shortened(request, stored.echo)
        return news if change is None else told_news(news, change)

    async def _prompt_of(self, request: ModelRequest) -> bytes:
        """Return what is stored of a request's tools and its leading system text."""
        billed, dialect, tools, systems = request.billed_members, request.dialect, b"", b""
        if billed:
            for name in dialect.tool_members:
                if name in billed:
                    tools += await _digests(request, name, self._tools, tool_digests)
            if dialect.system_member in billed:
                systems = await _digests(request, dialect.system_member, self._systems, system_digests)
        for message in request.messages:
            if not message.is_system:
                break
            systems += message_digest(message.digest)
        return packed(tools, systems)

    async def _edited(
        self, request: ModelRequest, stored: ConversationState, conversation: str, chain: PrefixChain
    ) -> PromptChange | None:
        """Return the first message that a request has otherwise than its conversation, if later ones stayed."""
        shared, read = stored.stored_count, self._read
        if read is None or not 0 < shared < len(chain) - 1:
            return None
        others = (message.digest for message in request.messages if not message.is_system)
        now = tuple(islice(others, shared, shared + MOST_COMPARED))
        try:
            records = await self._store.messages(conversation, start=shared + 1, stop=shared + MOST_COMPARED)
            branches = (await self._store.branches(chain, conversation, shared)).branches
        except StoreError as error:
            self._emit(StoreDegraded("messages", error.internal or str(error)))
            return None
        rests = [[record.raw for record in records], *[branch.raws[:MOST_COMPARED] for branch in branches]]

        def change() -> PromptChange | None:
            for rest in rests:
                with suppress(InvalidRequest):  # written by a dialect that is not served any more, or unreadable
                    earlier = tuple([message.digest for message in read(rest)])
                    changed = first_change(SentPrompt((), (), earlier), SentPrompt((), (), now))
                    if changed is not None:
                        return PromptChange("message", shared + changed.index)
            return None

        return await offloaded(change, list(joined.from_iterable(rests)))


def _shortened(request: ModelRequest, echo: ChangedEcho) -> PromptChange | None:
    """Return the first question or result that a request repeats in part; an answer in other words is no change."""
    others = [message for message in request.messages if not message.is_system]
    places = (position - 1 for position in echo.positions if others[position - 1].role != "assistant")
    first = next(places, None)
    return None if first is None else PromptChange("message", first)


async def _digests(
    request: ModelRequest, name: str, cached: BoundedCache[bytes, bytes], digest: Callable[[JsonValue], bytes]
) -> bytes:
    """Return the digests of a member, from the cache if its bytes are known."""
    raw, content = request.fields.get(name, b""), request.billed_members[name]
    if len(raw) > MOST_CACHED_BYTES:
        return await asyncio.to_thread(digest, content)
    digests = cached.get(raw) if raw else None
    if digests is None:
        digests = digest(content)
        if raw:
            cached.put(raw, digests)
    return digests
