"""Prefix chains: hashes over the non-system messages of a request, which identify its conversation.

The step ``identify`` makes the chain and asks the store with it. Equal chains mean equal conversations, through
whichever worker; a fork or an edit changes every hash after it. System messages are left out, because agents write the
time of day into them (docs/adr/0001).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from tidemark.core.conversation.messages import DIGEST_BYTES, Message, digest_of, hashed
from tidemark.core.frozen import frozen

CHAIN_VERSION = b"v1"
FAMILY_CHARACTERS = 32
"""Hex characters of a conversation id that name its family: a whole digest."""
OWN_CHARACTERS = 16
"""Hex characters of a conversation id that distinguish it within its family: 64 bits."""

REMEMBERED_TENANTS = 4096
"""Entries of the cache of seeds; a conversation without a name has its tenant's seed."""
REMEMBERED_OWNERS = 4096
"""Entries of the cache of owners; every request needs its owner, and credentials repeat."""
_FRAME = DIGEST_BYTES.to_bytes(8, "little")
_ID = re.compile(rf"[0-9a-f]{{{FAMILY_CHARACTERS + OWN_CHARACTERS}}}")


@frozen
class PrefixChain:
    """The hashes of all prefixes of one conversation, within one tenant.

    ``hashes[i]`` covers the first ``i + 1`` non-system messages, ``seed`` covers none.
    """

    seed: bytes
    """``h0``: the tenant, and the client's own conversation id if it gave one."""
    hashes: tuple[bytes, ...]
    has_seed_family: bool = False
    """Whether the seed names the family: the client named the conversation, or it began without a message."""

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def tip(self) -> bytes:
        """Return the hash over all messages."""
        return self.hashes[-1] if self.hashes else self.seed

    @property
    def family(self) -> str:
        """Return 32 hex characters, equal for all conversations that begin alike; they are the store's hash tag."""
        return (self.seed if self.has_seed_family or not self.hashes else self.hashes[0]).hex()

    def at(self, covered: int) -> bytes:
        """Return the hash over the first ``covered`` messages, ``0 <= covered <= len(self)``."""
        return self.hashes[covered - 1] if covered else self.seed

    def extended(self, messages: Sequence[Message]) -> PrefixChain:
        """Return the chain of the same family with more messages; system messages do not count."""
        hashes = self.hashes
        return PrefixChain(self.seed, (*hashes, *_links(self.tip, messages)), self.has_seed_family or not hashes)


def chain_of(tenant: str, messages: Sequence[Message], *, conversation: str | None = None) -> PrefixChain:
    """Return the prefix chain of a request.

    :param tenant: hex id of the tenant; chains of two tenants share nothing (promise 8)
    :param conversation: the client's own name for the conversation (``X-Tidemark-Conversation``)
    """
    seed = seed_of(tenant, conversation)
    return PrefixChain(seed, tuple(_links(seed, messages)), conversation is not None)


def conversation_id(chain: PrefixChain, stored_count: int) -> str:
    """Return the id of the conversation that begins after the stored messages of a chain.

    :param stored_count: number of leading messages that another conversation has already
    :returns: 48 hex characters: the family, then the first hash of its own. It depends on content only, so
        a request that is sent again, or to another worker, gets the same id.
    """
    hashes = chain.hashes
    own = hashes[stored_count if stored_count < len(hashes) else -1] if hashes else chain.seed
    return chain.family + own.hex()[:OWN_CHARACTERS]


def split_id(conversation: str) -> tuple[str, str]:
    """Split a conversation's id into its family and its own part."""
    return conversation[:FAMILY_CHARACTERS], conversation[FAMILY_CHARACTERS:]


def is_id(conversation: str) -> bool:
    """Return whether a text has the form of a conversation id; clients send ids, and they become parts of keys."""
    return _ID.fullmatch(conversation) is not None


@lru_cache(maxsize=REMEMBERED_OWNERS)
def owner_of(fingerprint: bytes) -> str:
    """Return the owner of a fingerprint: the credential, whichever upstream it is used for.

    Calibrations, learned windows, lists and names of conversations belong to an owner; a tenant is a credential at one
    upstream. The function is pure, and the cache only saves time.
    """
    # Stored keys contain this digest. Its first use was the calibration, so that word is part of it.
    return digest_of(b"calibration", fingerprint).hex()


def seed_of(tenant: str, conversation: str | None) -> bytes:
    """Return ``h0``: the hash that a chain starts from."""
    if not conversation:
        return _tenant_seed(tenant)
    return digest_of(tenant.encode(), CHAIN_VERSION, conversation.encode())


@lru_cache(maxsize=REMEMBERED_TENANTS)
def _tenant_seed(tenant: str) -> bytes:
    """Return the seed of conversations without a name; a pure function, and the cache only saves time."""
    return digest_of(tenant.encode(), CHAIN_VERSION, b"")


def _links(previous: bytes, messages: Sequence[Message]) -> list[bytes]:
    digests: list[bytes] = []
    for message in messages:
        if not message.is_system:
            digests.append(message.digest)  # noqa: PERF401 - before Python 3.12 a comprehension is a call
    return linked(previous, digests)


def linked(previous: bytes, digests: Sequence[bytes]) -> list[bytes]:
    """Return the links after ``previous``; each is ``digest_of(previous, digest)``, written out because it is hot."""
    links: list[bytes] = []
    frame = len(previous).to_bytes(8, "little")
    for digest in digests:
        previous = hashed(frame + previous + _FRAME + digest)
        frame = _FRAME
        links.append(previous)
    return links
