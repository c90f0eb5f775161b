"""What leaves the context when a summary is put into use: exactly which messages, and the document that tells of them.

Beside the road of a request, right after a summary has found its place and before anything is forwarded (S0-4). A flush
is a value: others queue it and deliver it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from proxy.core.conversation.messages import Message, digest_of
from proxy.core.conversation.prefix import PrefixChain
from proxy.core.conversation.summary import PrefixSummary

VERSION = 1
"""Of the document. A field that is added leaves it as it is."""
_ONE_LINE = bytes.maketrans(b"\n\r", b"  ")


@dataclass(frozen=True, slots=True)
class Leaving:
    """One message that leaves."""

    position: int
    """Of a client's message, from 1; of a system message that the summary took in, the one of the message after it."""
    message: Message
    tokens: int


@dataclass(frozen=True, slots=True)
class Flush:
    """What leaves the context at once, and what stands for it from now on."""

    tenant: str
    conversation: str
    model: str
    chain: PrefixChain
    summary: PrefixSummary
    first: int
    """Position of the first client message that leaves; beyond ``summary.covered`` where none does."""
    leaving: tuple[Leaving, ...]
    stored: bool = True
    """Whether the summary is kept; if not, it stands for one request only, and the messages come back with the next."""

    @property
    def key(self) -> str:
        """The idempotency key, 32 hex characters.

        The prefix is a hash over the tenant, the client's name of the conversation and all messages so far, so equal
        keys mean that the same messages left; where they began to leave adds nothing to that.
        """
        return flush_key(self.chain.family, self.summary.prefix, self.summary.covered, self.summary.absorbed)

    @property
    def size(self) -> int:
        """Bytes of the messages."""
        return sum(len(one.message.raw) for one in self.leaving)

    def after(self, known: PrefixSummary) -> Flush:
        """The same without what had left when ``known`` took its place."""
        absorbed = set(known.absorbed)
        left = tuple(one for one in self.leaving if not _had_left(one, known.covered, absorbed))
        return replace(self, first=max(self.first, known.covered + 1), leaving=left)


def flush_key(family: str, prefix: bytes, covered: int, absorbed: Sequence[bytes] = ()) -> str:
    """The idempotency key of what leaves for a summary of that prefix, which says nothing of system messages.

    :param absorbed: digests of those that it took in: they leave with a later summary of the same prefix
    """
    return digest_of(b"flush", family.encode(), prefix, str(covered).encode(), *sorted(absorbed)).hex()


def leaving(
    messages: Sequence[Message], tokens: Sequence[int], summary: PrefixSummary, in_use: PrefixSummary | None
) -> tuple[int, tuple[Leaving, ...]]:
    """The position of the first client message that leaves when ``summary`` takes its place, and all that leave.

    Client messages that the summary in use stood for have left before. A system message leaves where the summary took
    it in, for then it is not forwarded any more.

    :param messages: of the request, as the client sent it
    :param tokens: of each of them
    :param in_use: the summary that stood before, of the same prefix or a shorter one; None for a first one
    """
    start = in_use.covered if in_use else 0
    absorbed, before = set(summary.absorbed), set(in_use.absorbed if in_use else ())
    gone, position = [], 0
    for message, counted in zip(messages, tokens, strict=True):
        if position >= summary.covered and not message.is_system:
            break
        if not message.is_system:
            position += 1
            gone.append(Leaving(position, message, counted))
        elif position and message.digest in absorbed:
            gone.append(Leaving(position + 1, message, counted))
    return start + 1, tuple(one for one in gone if not _had_left(one, start, before))


def _had_left(one: Leaving, covered: int, absorbed: set[bytes]) -> bool:
    """Whether a message left with a summary; a system message only where that summary took it in."""
    if one.message.is_system:
        return one.position - 1 <= covered and one.message.digest in absorbed
    return one.position <= covered


def document(flush: Flush, at: float) -> bytes:
    """The flush as every consumer gets it: one line of JSON, the messages in the client's own bytes.

    A JSON text has a line end only where white space may stand, so blanks in their place change no message.

    :param at: Unix time in seconds at which the messages left
    """
    summary = flush.summary
    head = {
        "key": flush.key,
        "version": VERSION,
        "at": at,
        "tenant": flush.tenant,
        "conversation": flush.conversation,
        "model": flush.model,
        "first": flush.first,
        "last": summary.covered,
        "tokens": {"messages": sum(one.tokens for one in flush.leaving), "summary": summary.tokens},
        "summary": {
            "text": summary.text,
            "covered": summary.covered,
            "strategy": summary.made_by,
            "cause": summary.cause,
            "created_at": summary.created_at,
        },
    }
    messages = b",".join(one.message.raw.translate(_ONE_LINE) for one in flush.leaving)
    return json.dumps(head, ensure_ascii=True).encode()[:-1] + b', "messages": [' + messages + b"]}"
