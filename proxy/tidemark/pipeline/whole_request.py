"""Puts the stored messages of a conversation before the new ones of a request.

The step ``history`` (``stored_history.py``) calls it when it has aligned both.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.core.conversation.alignment import Alignment
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import PrefixChain, seed_of, split_id
from tidemark.core.conversation.records import ConversationRecord
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.errors import ConversationNotFound
from tidemark.core.frozen import frozen
from tidemark.core.planning.situation import NOTHING_LEFT_OUT, LeftOut
from tidemark.pipeline.values import Controls, ConversationPlace


@frozen
class WholeRequest:
    """A request with all its messages."""

    request: ModelRequest
    controls: Controls
    gap: str = ""
    place: ConversationPlace | None = None
    heads: Sequence[Message] = ()
    """System messages of the last request whose text stands beside the messages, so that no message has it."""
    is_lossy: bool = False
    """Whether the store has lost something of the conversation; ``gap`` says what."""


def joined(messages: Sequence[Message], stored: Sequence[bytes], alignment: Alignment) -> list[bytes]:
    """Return the request's leading system messages, the stored messages, and what is new, byte for byte."""
    first = next((place for place, message in enumerate(messages) if not message.is_system), len(messages))
    raws = [message.raw for message in messages[:first]]
    raws += stored[: alignment.base]
    others = 0
    for message in messages[first:]:
        if message.is_system or others >= alignment.new:
            raws.append(message.raw)
        others += not message.is_system
    return raws


def name_of(tenant: str, record: ConversationRecord, first: Sequence[bytes], *, gaps: bool) -> str | None:
    """Return the name that a conversation's chain is made by: its client's, none, or the empty one.

    If the first message of a conversation without a name is unreadable, the rest is another conversation.

    :param first: the chain hash at the first message, if it can be read
    """
    family = split_id(record.id)[0]
    for name in (record.name or None, None, ""):
        if (seed_of(tenant, name) if name is not None or not first else first[0]).hex() == family:
            return name
    if gaps:
        return record.name or None
    raise ConversationNotFound(f"The conversation {record.id!r} cannot be gone on with.")


def place_of(
    tenant: str,
    record: ConversationRecord,
    hashes: Sequence[bytes],
    whole: ModelRequest,
    new: Sequence[Message],
    *,
    left_out: LeftOut = NOTHING_LEFT_OUT,
) -> ConversationPlace | None:
    """Return the chain of a request whose earlier messages are stored in other dialects.

    What they mean may have changed a little when they were written in this dialect, such as the place of an image
    among texts, and the chain stays that of the store. None if the messages of the whole request are not one by
    one the stored and the new ones.

    :param left_out: the first stored messages, which are not in the request
    """
    others = [message for message in whole.messages if not message.is_system]
    first = len(hashes) - left_out.count
    if not hashes or [message.digest for message in others[first:]] != [message.digest for message in new]:
        return None
    family = bytes.fromhex(split_id(record.id)[0])
    has_seed_family = family != hashes[0]
    seed = family if has_seed_family else b""
    return ConversationPlace(tenant, PrefixChain(seed, tuple(hashes), has_seed_family).extended(new), left_out)
