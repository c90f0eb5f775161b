"""Splits a finished turn into what ``record.lua`` writes: new messages, system messages, sums.

The store does this after the response has ended, before ``scripts.py`` packs the parts.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tidemark.core.conversation.messages import Message, digest_of
from tidemark.core.conversation.records import TurnRecord
from tidemark.core.frozen import frozen
from tidemark.core.ports import Redactor


@frozen
class PlacedSystem:
    """A system message and its position; the chain leaves it out, and it must not be lost (promise 6)."""

    position: int
    """How many non-system messages stand before it."""
    digest: bytes
    """Over the client's bytes, so that messages that differ in anything have different digests."""
    raw: bytes


@frozen
class TurnParts:
    """A turn's messages as they are written."""

    new: Sequence[tuple[Message, int]]
    """The non-system messages after the stored ones, with their tokens."""
    total_tokens: int
    """Of all non-system messages."""
    systems: Sequence[PlacedSystem]
    size: int
    """Bytes of the new messages."""
    redacted: frozenset[int] = frozenset()
    """The places of those of ``new`` whose texts are not the client's own."""


async def redacted_parts(parts: TurnParts, redactor: Redactor) -> TurnParts:
    """Return what is stored of the parts of a turn. Hashes and digests stay those of the client's bytes.

    :raises RedactionFailed: nothing of it may be stored
    """
    messages = [message for message, _ in parts.new]
    redacted = await redactor.messages(messages)
    raws = await redactor.raws([system.raw for system in parts.systems])
    return replace(
        parts,
        new=[(message, tokens) for message, (_, tokens) in zip(redacted, parts.new, strict=True)],
        systems=[replace(system, raw=raw) for system, raw in zip(parts.systems, raws, strict=True)],
        redacted=frozenset(
            place for place, (own, other) in enumerate(zip(messages, redacted, strict=True)) if own is not other
        ),
    )


def part_turn(turn: TurnRecord, skip: int) -> TurnParts:
    """Split a turn into its parts.

    :param skip: how many leading non-system messages need not be written
    """
    messages, tokens = turn.messages, turn.tokens
    total, left_out = sum(tokens) + turn.left_out_tokens, turn.left_out_count
    systems: list[PlacedSystem] = []
    for place, message in enumerate(messages):
        if message.is_system:
            before = place - len(systems)
            systems.append(PlacedSystem(before and left_out + before, digest_of(message.raw), message.raw))
            total -= tokens[place]
    remaining, place, size = left_out + len(messages) - len(systems) - skip, len(messages), 0
    new: list[tuple[Message, int]] = []
    while remaining > 0:  # from the end, since a long conversation's new messages are few
        place -= 1
        if not messages[place].is_system:
            new.append((messages[place], tokens[place]))
            size += len(messages[place].raw)
            remaining -= 1
    return TurnParts(new[::-1], total, systems, size)
