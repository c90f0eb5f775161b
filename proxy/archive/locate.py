"""Finding a stored conversation: by id or name, and whether the caller may see it; and what all of the room share.

Whose a conversation is, is asked once, by ``pipeline/stored_conversation.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

from proxy.archive.access import ArchiveAccess
from proxy.compaction.writer import ChooseSummarizer
from proxy.core.conversation.messages import ModelRequest
from proxy.core.conversation.records import StoredConversation
from proxy.core.conversation.summary import PrefixSummary, SummaryRecipe
from proxy.core.errors import ModelNotFound
from proxy.core.ports import Caller, ConversationStore, RequestHeads, TurnStore, Upstream
from proxy.pipeline.pipeline import Pipeline
from proxy.pipeline.stored_conversation import Read, StoredConversationReader, request_of, request_read

NOBODY = Caller(b"", ())
"""In whose name the operator looks: the admin token goes to no upstream."""


class Turn(Protocol):
    """What is stored of one turn, as far as it is needed here."""

    @property
    def created_at(self) -> float:
        """Unix time, seconds."""
        ...

    @property
    def first(self) -> int:
        """Position of the first message that it added."""
        ...

    @property
    def last(self) -> int:
        """Position of the last one that it covered."""
        ...

    @property
    def systems(self) -> Sequence[tuple[int, bytes]]:
        """How many messages stand before a system message, and its digest."""
        ...

    @property
    def model(self) -> str:
        """Who was asked."""
        ...

    @property
    def summarized(self) -> int:
        """How many messages a summary stood for."""
        ...

    @property
    def usage(self) -> Mapping[str, object]:
        """What the provider counted, in OpenAI's words; empty where it told nothing."""
        ...

    @property
    def complete(self) -> bool:
        """Whether an answer came."""
        ...

    @property
    def beyond(self) -> int:
        """How many messages after ``last`` it covered that are a parent's only: the conversation forked off before."""
        ...


class Lists(Protocol):
    """The lists of conversations."""

    async def newest(
        self, owner: str | None, limit: int, before: tuple[float, str] | None = None
    ) -> Sequence[tuple[float, str]]:
        """When they were used last, and the ids, the newest first; None for everybody's."""
        ...

    async def drop(self, owner: str, conversation: str, name: str) -> None:
        """Take a conversation off the lists."""
        ...


class ArchiveStore(ConversationStore, Protocol):
    """What this needs of the store beside ``ConversationStore``. Raises ``StoreUnavailable``."""

    @property
    def listing(self) -> Lists:
        """The lists."""
        ...

    async def all_turns(self, conversation: str) -> Sequence[Turn]:
        """What was done in each turn, oldest first."""
        ...

    async def summaries(self, conversation: str, *, standing: bool = False) -> Sequence[PrefixSummary]:
        """All summaries of a conversation, oldest first, or those only that stand for a beginning of it."""
        ...

    async def message_ids(self, conversation: str, stop: int) -> Sequence[str]:
        """The ids of a conversation's messages up to position ``stop``, oldest first."""
        ...

    async def system_messages(self, conversation: str) -> Mapping[bytes, bytes]:
        """Every system message that was ever sent in a conversation: digest to the client's bytes."""
        ...

    async def named(self, owner: str, name: str) -> str | None:
        """The id of the conversation that a credential's client calls by a name."""
        ...

    @property
    def turns(self) -> TurnStore:
        """The turns of stored history."""
        ...

    async def forget(self, conversation: str, owner: str, name: str, now: float) -> bool:
        """Delete all that is stored of a conversation; whether there was one."""
        ...


class ConversationLocator:
    """Takes ports only; holds no state of its own."""

    def __init__(
        self,
        *,
        store: ArchiveStore,
        heads: RequestHeads,
        road: Pipeline,
        upstream: Upstream,
        choose: ChooseSummarizer,
        read: Read,
    ) -> None:
        self.store = store
        self.heads = heads
        self.road = road
        self.upstream = upstream
        self.readback = StoredConversationReader(store)
        self._access = ArchiveAccess(store, upstream)
        self._choose = choose
        self.read = read

    async def record(self, conversation: str, caller: Caller | None) -> StoredConversation:
        """A conversation by its id, or by what the caller's client calls it.

        :param caller: None for the operator, who sees all, by id
        :raises ConversationNotFound: there is none, or it is somebody else's
        """
        return await self._access.record(conversation, caller)

    async def summaries(self, record: StoredConversation) -> Sequence[PrefixSummary]:
        """Those that stand for a beginning of a conversation, oldest first: the road uses no others."""
        return await self.store.summaries(record.id, standing=True)

    async def in_use(self, record: StoredConversation) -> PrefixSummary | None:
        """The summary that the next request would use; of a model that is not served, the longest there is."""
        made = [one for one in await self.summaries(record) if one.covered < record.message_count]
        if not made:
            return None
        recipe: SummaryRecipe | None = None
        try:
            route = await self.upstream.resolve(record.model)
            request = request_of(record.model, self.read([b'{"role":"user","content":""}']))
            recipe = self._choose(await self.road.profile(request, NOBODY), route).recipe
        except ModelNotFound:
            pass
        usable = [one for one in made if recipe is None or one.recipe == recipe]
        return max(usable, key=lambda one: (one.covered, one.created_at), default=None)

    async def request(self, model: str, raws: Sequence[bytes]) -> ModelRequest:
        """Messages as the request that a client would send them in."""
        return await request_read(self.read, model, raws)
