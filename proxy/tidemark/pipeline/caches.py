"""Caches of pure results: prefix chains and budgets that an earlier request needed too. Losing them costs time only.

The step ``identify`` looks here before it asks the core, so that a turn hashes its new messages only.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.core.bounded import BoundedCache, SizedCache
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import PrefixChain, chain_of, linked, seed_of
from tidemark.core.planning.budget import Budget, ModelProfile, budget_for

MAX_LINKS = 100_000
"""Of all cached chains together; each link takes about 110 bytes."""
SHORT = 16
"""A chain of fewer messages is made as quickly as it is looked up."""
_Chain = tuple[list[bytes], tuple[bytes, ...]]
"""Digests of the messages, and the hashes of the prefixes."""
MAX_BUDGETS = 256
"""Clients choose the length of the reply and the retention, so there must be a bound."""


class ChainCache:
    """Caches the digests and hashes of the newest chains by their beginning; the oldest go first.

    :param links: the most links of all chains together
    """

    def __init__(self, links: int = MAX_LINKS) -> None:
        self._chains: SizedCache[tuple[bytes, bytes], _Chain] = SizedCache(links, lambda chain: len(chain[0]))

    def of(self, tenant: str, messages: Sequence[Message], *, conversation: str | None = None) -> PrefixChain:
        """Return the same chain as ``chain_of``."""
        if len(messages) < SHORT:
            return chain_of(tenant, messages, conversation=conversation)
        digests = [message.digest for message in messages if not message.is_system]
        if len(digests) < SHORT:
            return chain_of(tenant, messages, conversation=conversation)
        seed = seed_of(tenant, conversation)
        key = (seed, digests[0])
        before, hashes = self._chains.take(key) or ([], ())
        equal = len(before)
        if digests[:equal] != before:
            equal = next(place for place, digest in enumerate(before) if digests[place : place + 1] != [digest])
        hashes = (*hashes[:equal], *linked(hashes[equal - 1] if equal else seed, digests[equal:]))
        self._chains.put(key, (digests, hashes))
        return PrefixChain(seed, hashes, conversation is not None)


class BudgetCache:
    """Caches budgets by profile, reply length and retention: most requests for a model ask for the same."""

    def __init__(self) -> None:
        self._budgets: BoundedCache[tuple[int, int | None, int | None], tuple[ModelProfile, Budget]] = BoundedCache(
            MAX_BUDGETS
        )
        """With the profile itself, so that its ``id`` is not given to another one."""

    def of(self, profile: ModelProfile, max_output_tokens: int | None, retention: int | None) -> Budget:
        """Return the same budget as ``budget_for``."""
        key = (id(profile), max_output_tokens, retention)
        cached = self._budgets.get(key)
        if cached is not None:
            return cached[1]
        budget = budget_for(profile, max_output_tokens, retention)
        self._budgets.put(key, (profile, budget))
        return budget
