"""What the store's tests say: messages, turns, summaries, and a client that sends as the pipeline does."""

from __future__ import annotations

import itertools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tidemark.core.conversation.messages import Message, Role, digest_of
from tidemark.core.conversation.prefix import PrefixChain, chain_of, conversation_id
from tidemark.core.conversation.records import ConversationState, TurnRecord
from tidemark.core.conversation.summary import PrefixSummary, SummaryRecipe, inner_systems
from tidemark.pipeline.changed_echoes import EchoFinder, may_repeat
from tidemark.store.conversations import RedisStore

RECIPE = SummaryRecipe("extractive", "general", 1)
_clock = itertools.count(1_700_000_000)


def say(role: Role, text: str) -> Message:
    """A message of few words."""
    raw = json.dumps({"role": role, "content": text}).encode()
    return Message(raw=raw, role=role, text=text, digest=digest_of(role.encode(), text.encode()))


def user(text: str) -> Message:
    """What a user says."""
    return say("user", text)


def assistant(text: str) -> Message:
    """What a model answers."""
    return say("assistant", text)


def system(text: str) -> Message:
    """What the operator says."""
    return say("system", text)


def dialogue(count: int, words: str = "message") -> list[Message]:
    """``count`` messages in turn, the first a user's."""
    return [(user, assistant)[i % 2](f"{words} {i + 1}") for i in range(count)]


def read_said(raws: Sequence[bytes]) -> list[Message]:
    """The messages of ``say`` again, read from their bytes."""
    return [say(message["role"], message["content"]) for message in map(json.loads, raws)]


def counted(messages: Sequence[Message]) -> list[int]:
    """Made-up tokens: one for each character."""
    return [len(message.text) for message in messages]


def raws(messages: Sequence[Message]) -> list[bytes]:
    """The bytes of the non-system messages."""
    return [message.raw for message in messages if not message.is_system]


def summary_of(
    chain: PrefixChain,
    covered: int,
    text: str = "so far",
    recipe: SummaryRecipe = RECIPE,
    absorbed: Sequence[Message] = (),
) -> PrefixSummary:
    """A summary of the first ``covered`` messages of a chain, and of these system messages."""
    return PrefixSummary(
        prefix=chain.at(covered),
        covered=covered,
        text=text,
        recipe=recipe,
        made_by=recipe.strategy,
        cause="automatic",
        created_at=float(next(_clock)),
        tokens=7,
        absorbed=tuple(sorted(one.digest for one in absorbed)),
    )


def turn_of(
    tenant: str,
    messages: Sequence[Message],
    *,
    known: int = 0,
    conversation: str | None = None,
    complete: bool = True,
    created_at: float | None = None,
    name: str = "",
) -> TurnRecord:
    """The record of a turn whose request and reply are ``messages``."""
    chain = chain_of(tenant, messages)
    return TurnRecord(
        tenant=tenant,
        conversation=conversation or conversation_id(chain, known),
        chain=chain,
        stored_count=known,
        messages=messages,
        tokens=counted(messages),
        complete=complete,
        model="gpt-4o",
        action="none",
        tokens_before=100,
        tokens_after=50,
        summarized=3,
        created_at=created_at if created_at is not None else float(next(_clock)),
        usage={"prompt_tokens": 90},
        name=name,
    )


async def listed(store: RedisStore, owner: str, limit: int = 100) -> list[str]:
    """The ids on an owner's list, last used first; some may have expired."""
    return [conversation for _, conversation in await store.listing.newest(owner, limit)]


@dataclass
class Client:
    """Sends requests through a store as the pipeline does: recall, then record with the reply."""

    store: RedisStore
    tenant: str
    told: list[str] = field(default_factory=list)

    async def recall(self, messages: Sequence[Message]) -> ConversationState:
        """What the store knows of a request."""
        return await self.store.recall(chain_of(self.tenant, messages), RECIPE, inner_systems(messages))

    async def identify(self, messages: Sequence[Message]) -> ConversationState:
        """What the store knows of a request that may repeat answers in other words."""
        stored = await self.recall(messages)
        others = [message for message in messages if not message.is_system]
        if not may_repeat(stored, len(others)):
            return stored
        return await EchoFinder(self.store, read_said).find(stored, messages, chain_of(self.tenant, messages))

    async def go_on(self, messages: Sequence[Message], reply: Message | None) -> str:
        """One turn of a client that may repeat answers in other words."""
        return await self.finish(messages, reply, await self.identify(messages))

    async def send(self, messages: Sequence[Message], reply: Message | None) -> str:
        """One turn; returns the id of the conversation that holds it."""
        memory = await self.recall(messages)
        return await self.finish(messages, reply, memory)

    async def finish(self, messages: Sequence[Message], reply: Message | None, memory: ConversationState) -> str:
        """The end of a turn whose beginning was ``memory``."""
        chain = chain_of(self.tenant, messages)
        goes_on = memory.conversation is not None and not memory.diverges
        told = memory.conversation if goes_on and memory.conversation else conversation_id(chain, memory.stored_count)
        self.told.append(told)
        whole = [*messages, reply] if reply else list(messages)
        turn = turn_of(self.tenant, whole, known=memory.stored_count, conversation=told, complete=reply is not None)
        return await self.store.record(replace(turn, echo=memory.echo))

    async def read(self, conversation: str) -> list[bytes]:
        """All messages of a conversation, as bytes."""
        return [message.raw for message in await self.store.messages(conversation)]
