"""Flushes: the messages that leave the context when a summary comes into use, and the document that lists them.

The compaction makes a flush after it has stored a summary and before the request is forwarded (S0-4). A flush is a
value; ``features/memory_flush/`` queues and delivers it.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from tidemark.core.conversation.messages import Message, digest_of
from tidemark.core.conversation.prefix import PrefixChain
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.frozen import frozen

VERSION = 1
"""Version of the document. A new field does not change it."""
_WITHOUT_LINE_ENDS = bytes.maketrans(b"\n\r", b"  ")


@frozen
class LeavingMessage:
    """One message that leaves the context."""

    position: int
    """The position of a client's message, from 1; an absorbed system message has that of the message after it."""
    message: Message
    tokens: int


@frozen
class Flush:
    """The messages that leave the context together, and the summary that replaces them."""

    tenant: str
    conversation: str
    model: str
    chain: PrefixChain
    summary: PrefixSummary
    first: int
    """Position of the first client message that leaves; greater than ``summary.covered`` if none does."""
    leaving: tuple[LeavingMessage, ...]
    stored: bool = True
    """Whether the summary is stored; if not, it holds for one request, and the next one sends the messages again."""
    owner: str = ""
    """Whose key seals it in the store; empty for the tenant's."""

    @property
    def key(self) -> str:
        """Return the idempotency key, 32 hex characters.

        The prefix is a hash over the tenant, the client's name of the conversation and all messages so far, so equal
        keys mean that the same messages left, from whichever position on.
        """
        return flush_key(self.chain.family, self.summary.prefix, self.summary.covered, self.summary.absorbed)

    @property
    def size(self) -> int:
        """Return the bytes of the messages."""
        return sum(len(leaving_message.message.raw) for leaving_message in self.leaving)

    def after(self, earlier: PrefixSummary) -> Flush:
        """Return the flush without the messages that an earlier summary had replaced before."""
        absorbed = set(earlier.absorbed)
        leaving = tuple(
            leaving_message
            for leaving_message in self.leaving
            if not _had_left(leaving_message, earlier.summarized, absorbed)
        )
        return replace(self, first=max(self.first, earlier.summarized + 1), leaving=leaving)


def flush_key(family: str, prefix: bytes, covered: int, absorbed: Sequence[bytes] = ()) -> str:
    """Return the idempotency key of a summary's flush.

    :param absorbed: digests of the system messages that the summary absorbed. The prefix leaves them out, and they may
        leave the context with a later summary of the same prefix
    """
    return digest_of(b"flush", family.encode(), prefix, str(covered).encode(), *sorted(absorbed)).hex()


def leaving(
    messages: Sequence[Message],
    tokens: Sequence[int],
    summary: PrefixSummary,
    in_use: PrefixSummary | None,
    left_out: int = 0,
) -> tuple[int, tuple[LeavingMessage, ...]]:
    """Return the position of the first client message that leaves, and all messages that leave.

    Client messages that the summary in use stands for have left before. A system message leaves if ``summary``
    absorbs it, because it is not forwarded any more.

    :param messages: the request's messages, as the client sent them
    :param tokens: the tokens of each message
    :param summary: the summary that comes into use
    :param in_use: the summary before it, of the same prefix or a shorter one; None if there was none
    :param left_out: how many client messages stand before ``messages``; the summary in use stands for them
    """
    start = in_use.summarized if in_use else 0
    absorbed, before = set(summary.absorbed), set(in_use.absorbed if in_use else ())
    candidates, position = [], left_out
    for message, count in zip(messages, tokens, strict=True):
        if position >= summary.summarized and not message.is_system:
            break
        if not message.is_system:
            position += 1
            candidates.append(LeavingMessage(position, message, count))
        elif position > left_out and message.digest in absorbed:
            candidates.append(LeavingMessage(position + 1, message, count))
    return start + 1, tuple(
        leaving_message for leaving_message in candidates if not _had_left(leaving_message, start, before)
    )


def _had_left(leaving_message: LeavingMessage, covered: int, absorbed: set[bytes]) -> bool:
    """Return whether a message left with an earlier summary; a system message only if that one absorbed it."""
    if leaving_message.message.is_system:
        return leaving_message.position - 1 <= covered and leaving_message.message.digest in absorbed
    return leaving_message.position <= covered


def document(flush: Flush, at: float) -> bytes:
    """Write a flush as consumers get it: one line of JSON, with the messages in the client's own bytes.

    A JSON text has line ends only where any white space is allowed, so a blank in place of one changes no message.

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
        "tokens": {
            "messages": sum(leaving_message.tokens for leaving_message in flush.leaving),
            "summary": summary.tokens,
        },
        "summary": {
            "text": summary.text,
            "covered": summary.covered,
            "strategy": summary.made_by,
            "cause": summary.cause,
            "created_at": summary.created_at,
        },
    }
    messages = b",".join(leaving_message.message.raw.translate(_WITHOUT_LINE_ENDS) for leaving_message in flush.leaving)
    return json.dumps(head, ensure_ascii=True).encode()[:-1] + b', "messages": [' + messages + b"]}"
