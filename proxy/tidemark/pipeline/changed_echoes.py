"""Goes on with a stored conversation some of whose messages the client repeats in other words (docs/adr/0019).

The step ``identify`` comes here only if a request leaves its conversation and has more after that place. It costs one
more round trip to the store.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain as joined

from tidemark.core.conversation.echoes import (
    ChangedEcho,
    DivergingBranch,
    DivergingBranches,
    only_branch,
    repeated_branch,
)
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import PrefixChain
from tidemark.core.conversation.records import ConversationState
from tidemark.core.errors import InvalidRequest
from tidemark.core.frozen import frozen
from tidemark.core.ports import ConversationStore
from tidemark.pipeline.history_reader import offloaded

ReadStored = Callable[[Sequence[bytes]], Sequence[Message]]
"""Reads stored messages of any dialect, in any thread; raises ``InvalidRequest`` if one is of none."""


def may_repeat(stored: ConversationState, count: int) -> bool:
    """Return whether a request leaves its conversation, and has more after the place where it does.

    :param count: how many of the messages are no system messages
    """
    return stored.diverges and 0 < stored.stored_count < count - 1


@frozen
class EchoFinder:
    """Finds the conversation that is meant; holds no state."""

    store: ConversationStore
    read: ReadStored

    async def find(
        self, stored: ConversationState, messages: Sequence[Message], chain: PrefixChain
    ) -> ConversationState:
        """Return the state of the conversation that is meant, or ``stored`` itself.

        :raises StoreUnavailable: the store did not answer in time
        """
        others = _others(messages)
        shared, new = others[: stored.stored_count], others[stored.stored_count :]
        continuations = await self.store.branches(chain, stored.conversation or "", len(shared))
        raws = list(joined.from_iterable(branch.raws for branch in continuations.branches))
        echo = await offloaded(
            lambda: self._choose(shared, new, continuations, is_named=chain.has_seed_family),
            [*raws, *(message.raw for message in new)],
        )
        return stored if echo is None else stored.repeating(echo)

    def _choose(
        self, shared: Sequence[Message], new: Sequence[Message], continuations: DivergingBranches, *, is_named: bool
    ) -> ChangedEcho | None:
        """Return the branch that a request repeats in other words."""
        readable: list[tuple[DivergingBranch, Sequence[Message]]] = []
        for branch in continuations.branches:
            try:
                readable.append((branch, self.read(branch.raws)))
            except InvalidRequest:
                continue  # written by a dialect that is not served any more
        match = repeated_branch(new, [messages for _, messages in readable])
        if match is None and continuations.has_one_answer and len(readable) == len(continuations.branches):
            match = only_branch(shared, new, readable, is_named=is_named)
        if match is None:
            return None
        index, places = match
        branch = readable[index][0]
        positions = tuple([len(shared) + 1 + place for place in places])
        return ChangedEcho(branch.conversation, branch.count, branch.tip, positions)


def _others(messages: Sequence[Message]) -> list[Message]:
    """Return the messages that are no system messages."""
    return [message for message in messages if not message.is_system]
