"""Identity: a hash chain over the non-system messages of a request.

On the road of a request after the catalog and before the store, which is asked with the chain. Equal chains mean equal
conversations, whoever sends them and through whichever worker; a fork or an edit changes every hash after it.
System messages are left out, because agents write clocks into them (docs/adr/0001).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from proxy.core.conversation.messages import DIGEST_BYTES, Message, digest_of, hashed
from proxy.core.values import value

CHAIN_VERSION = b"v1"
FAMILY_CHARACTERS = 32
"""Hex characters of a conversation id that lead to its family: a whole digest."""
OWN_CHARACTERS = 16
"""Hex characters of a conversation id that set it apart within its family: 64 bits."""

REMEMBERED_TENANTS = 4096
"""Seeds of conversations without a name, which are the tenant's alone."""
REMEMBERED_OWNERS = 4096
"""Each request asks, and a credential comes again and again."""
_FRAME = DIGEST_BYTES.to_bytes(8, "little")
_ID = re.compile(rf"[0-9a-f]{{{FAMILY_CHARACTERS + OWN_CHARACTERS}}}")


@value
class PrefixChain:
    """The hashes of all prefixes of one conversation, within one tenant.

    ``hashes[i]`` covers the first ``i + 1`` non-system messages, ``seed`` covers none.
    """

    seed: bytes
    """``h0``: the tenant, and the client's own conversation id where it gave one."""
    hashes: tuple[bytes, ...]
    named: bool = False
    """Whether the family is the seed's: the client named the conversation, or it began without a message."""

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def tip(self) -> bytes:
        """The hash over all messages."""
        return self.hashes[-1] if self.hashes else self.seed

    @property
    def family(self) -> str:
        """Hex; equal for all conversations that begin alike. The store's hash tag: 32 characters."""
        return (self.seed if self.named or not self.hashes else self.hashes[0]).hex()

    def at(self, covered: int) -> bytes:
        """The hash over the first ``covered`` messages, ``0 <= covered <= len(self)``."""
        return self.hashes[covered - 1] if covered else self.seed

    def extended(self, messages: Sequence[Message]) -> PrefixChain:
        """The chain of the same conversation, and family, with ``messages`` after it; system messages do not count."""
        hashes = self.hashes
        return PrefixChain(self.seed, (*hashes, *_links(self.tip, messages)), self.named or not hashes)


def chain_of(tenant: str, messages: Sequence[Message], *, conversation: str | None = None) -> PrefixChain:
    """The prefix chain of a request.

    :param tenant: hex id of the tenant; chains of two tenants share nothing (promise 8)
    :param conversation: the client's own name for the conversation (``X-Tidemark-Conversation``)
    """
    seed = seed_of(tenant, conversation)
    return PrefixChain(seed, tuple(_links(seed, messages)), conversation is not None)


def conversation_id(chain: PrefixChain, known: int) -> str:
    """The id of the conversation that begins where ``chain`` leaves what is known.

    :param known: number of leading messages that another conversation holds already
    :returns: 48 hex characters: the family, then the first hash of its own. It depends on content only, so
        a request that is sent again, or to another worker, gets the same id.
    """
    hashes = chain.hashes
    own = hashes[known if known < len(hashes) else -1] if hashes else chain.seed
    return chain.family + own.hex()[:OWN_CHARACTERS]


def split_id(conversation: str) -> tuple[str, str]:
    """A conversation's id as family and own part."""
    return conversation[:FAMILY_CHARACTERS], conversation[FAMILY_CHARACTERS:]


def is_id(conversation: str) -> bool:
    """Whether a text can be a conversation's id; ids come in from clients and become parts of keys."""
    return _ID.fullmatch(conversation) is not None


@lru_cache(maxsize=REMEMBERED_OWNERS)
def owner_of(fingerprint: bytes) -> str:
    """To whom belongs what is a credential's own, whichever upstream it is used for, by the caller's fingerprint.

    Calibrations, what overflows taught, lists and names of conversations; a tenant is a credential with an upstream.
    """
    # What is digested with it is in stored keys; they were a calibration's first.
    return digest_of(b"calibration", fingerprint).hex()


def seed_of(tenant: str, conversation: str | None) -> bytes:
    """Return ``h0``: the hash that a chain starts from."""
    if not conversation:
        return _tenant_seed(tenant)
    return digest_of(tenant.encode(), CHAIN_VERSION, conversation.encode())


@lru_cache(maxsize=REMEMBERED_TENANTS)
def _tenant_seed(tenant: str) -> bytes:
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
