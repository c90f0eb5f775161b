"""Bytes: how messages, turns and summaries are packed for Redis, and read back.

Between the adapter and the server. Every record is one version byte and msgpack in array form, so it says
nothing twice. A field may be added at the end, with a default: old records are still read, and old programs
pass over it. Anything else is a new version.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple, TypeVar

import msgspec

from proxy.core.conversation.messages import DIGEST_BYTES, Message, digest_of
from proxy.core.conversation.prefix import PrefixChain
from proxy.core.conversation.records import StoredMessage, TurnRecord
from proxy.core.conversation.summary import Cause, InnerSystems, PrefixSummary, Strategy, SummaryRecipe
from proxy.core.errors import RecordUnreadable
from proxy.core.values import value
from proxy.dialects.chat.message import ROLES

T = TypeVar("T")

VERSION = b"\x01"
RECIPE_BYTES = 8
"""64 bits tell a tenant's few recipes apart."""
_REFERENCES = b"absorbed"
"""Digested with each recipe: what was kept before references named the absorbed system messages is not found again."""
_COVERED_BYTES = 4
_ABSORBED_FROM = _COVERED_BYTES + DIGEST_BYTES + RECIPE_BYTES
"""Where in a reference the absorbed digests begin. ``tree.lua`` knows it too."""
KNOWN_RECIPES = 256
"""Digests that are remembered: strategies, templates and summarizers are the operator's, and few."""


class _Message(msgspec.Struct, array_like=True, frozen=True):
    tokens: int
    created_at: float
    raw: bytes
    scheme: str = ""


class _Shape(msgspec.Struct):
    """What every message has, however else it looks."""

    role: str


class _Summary(msgspec.Struct, array_like=True, frozen=True):
    prefix: bytes
    covered: int
    text: str
    strategy: Strategy
    template: str
    version: int
    model: str
    made_by: Strategy
    cause: Cause
    created_at: float
    previous: bytes | None
    tokens: int
    absorbed: tuple[bytes, ...] = ()


class StoredTurn(msgspec.Struct, array_like=True, frozen=True):
    """What one turn did, as it is read back: the audit trail of a conversation."""

    created_at: float
    first: int
    """Position of the first message that the turn added; ``last + 1`` when it added none."""
    last: int
    """Position of the last message that the turn covered."""
    systems: list[tuple[int, bytes]]
    """The system messages at the beginning and those not seen before: how many messages stand before each,
    and the digest that ``RedisStore.system_messages`` knows it by."""
    model: str
    action: str
    tokens_before: int
    tokens_after: int
    summarized: int
    usage: dict[str, object]
    complete: bool
    beyond: int = 0
    """How many messages after ``last`` it covered that a fork does not have; told of a fork's parents, never stored."""


class PlacedSystem(NamedTuple):
    """A system message and where it stands; it is not in the chain but must not be lost (promise 6)."""

    position: int
    """How many non-system messages stand before it."""
    digest: bytes
    """Over the client's bytes, so that no two that differ in anything are taken for one."""
    raw: bytes


_pack = msgspec.msgpack.Encoder().encode
_MESSAGE = msgspec.msgpack.Decoder(_Message)
_SUMMARY = msgspec.msgpack.Decoder(_Summary)
_TURN = msgspec.msgpack.Decoder(StoredTurn)
_SHAPE = msgspec.json.Decoder(_Shape)


@value
class TurnParts:
    """A turn's messages as they are written."""

    new: Sequence[tuple[Message, int]]
    """The non-system messages after the known ones, with their tokens."""
    total_tokens: int
    """Of all non-system messages."""
    systems: Sequence[PlacedSystem]
    size: int
    """Bytes of the new messages."""


def part_turn(turn: TurnRecord, known: int) -> TurnParts:
    """Take a turn apart.

    :param known: how many leading non-system messages need not be written
    """
    messages, tokens = turn.messages, turn.tokens
    total = sum(tokens)
    systems: list[PlacedSystem] = []
    for place, message in enumerate(messages):
        if message.is_system:
            systems.append(PlacedSystem(place - len(systems), digest_of(message.raw), message.raw))
            total -= tokens[place]
    left, place, size = len(messages) - len(systems) - known, len(messages), 0
    new: list[tuple[Message, int]] = []
    while left > 0:  # from behind, since a long conversation's new messages are few
        place -= 1
        if not messages[place].is_system:
            new.append((messages[place], tokens[place]))
            size += len(messages[place].raw)
            left -= 1
    return TurnParts(new[::-1], total, systems, size)


def pack_message(message: Message, tokens: int, created_at: float, scheme: str = "") -> bytes:
    """One entry of a conversation's message list; its chain hash stands in the list of hashes."""
    return VERSION + _pack((tokens, created_at, message.raw, scheme))  # the fields of _Message


def unpack_message(packed: bytes, position: int, chain_hash: bytes) -> StoredMessage:
    """The message at ``position``.

    :raises RecordUnreadable: another version wrote it, or its bytes are no longer what was written
    """
    read = _read(_MESSAGE, packed)
    if not _is_message(read.raw):
        raise unreadable("its bytes are no message")
    return StoredMessage(position, chain_hash.hex(), read.raw, read.tokens, read.created_at, read.scheme)


def _is_message(raw: bytes) -> bool:
    try:
        text = raw.decode()
        try:
            return _SHAPE.decode(text).role in ROLES
        except msgspec.MsgspecError:  # half a character, which clients cut emoji into, is no error to json
            value = json.loads(text)
            return isinstance(value, dict) and value.get("role") in ROLES
    except (ValueError, TypeError, RecursionError):
        return False


def readable_message(packed: bytes, position: int, chain_hash: bytes) -> StoredMessage:
    """The same; one that cannot be read has no bytes, and ``unreadable`` says why."""
    try:
        return unpack_message(packed, position, chain_hash)
    except RecordUnreadable as error:
        return StoredMessage(position, chain_hash.hex(), b"", 0, 0.0, unreadable=error.internal)


def pack_turn(turn: TurnRecord, known: int, systems: Sequence[PlacedSystem]) -> bytes:
    """One entry of a conversation's list of turns: a digest that a repetition is known by, then the record.

    :param known: how many leading messages were stored before
    """
    said = (turn.created_at, turn.model, turn.action, turn.complete, turn.tokens_before, turn.tokens_after)
    record = (  # the fields of StoredTurn, in their order
        turn.created_at,
        known + 1,
        len(turn.chain.hashes),
        [(system.position, system.digest) for system in systems],
        turn.model,
        turn.action,
        turn.tokens_before,
        turn.tokens_after,
        turn.summarized,
        dict(turn.usage),
        turn.complete,
    )
    return digest_of(turn.chain.tip, _pack(said)) + VERSION + _pack(record)


def pack_facts(*facts: str | int) -> bytes:
    """What a script is told in one argument: no bytes and no fractions, which its reader would not keep as they are."""
    return _pack(facts)


def unpack_turn(packed: bytes) -> StoredTurn:
    """An entry of a conversation's list of turns."""
    return _read(_TURN, packed[DIGEST_BYTES:])


def readable_turn(packed: bytes) -> StoredTurn | None:
    """The same, or None where it cannot be read."""
    try:
        return unpack_turn(packed)
    except RecordUnreadable:
        return None


def clipped(turn: StoredTurn, last: int) -> StoredTurn:
    """A turn of a fork's parent, as far as the fork has its messages."""
    return turn if turn.last <= last else msgspec.structs.replace(turn, last=last, beyond=turn.last - last)


@lru_cache(maxsize=KNOWN_RECIPES)
def recipe_digest(recipe: SummaryRecipe) -> bytes:
    """What a recipe is called in keys and references, ``RECIPE_BYTES`` long."""
    return digest_of(_REFERENCES, recipe.key.encode())[:RECIPE_BYTES]


def pack_reference(summary: PrefixSummary) -> bytes:
    """A reference to a summary: position (4 bytes, big-endian), prefix, recipe, absorbed. The scripts read it."""
    return reference(summary.covered, summary.prefix, summary.recipe, summary.absorbed)


def reference(covered: int, prefix: bytes, recipe: SummaryRecipe, absorbed: Sequence[bytes]) -> bytes:
    """The same of a summary that is yet to be made; what a lease is taken for.

    :param absorbed: digests of the system messages that the summary tells, ``DIGEST_BYTES`` each
    """
    return covered.to_bytes(_COVERED_BYTES, "big") + prefix + recipe_digest(recipe) + b"".join(sorted(absorbed))


def prepared_for(
    lease: bytes, chain: PrefixChain, recipe: SummaryRecipe, systems: InnerSystems
) -> tuple[int, tuple[bytes, ...]]:
    """What the summary stands for that is made under a lease: messages of ``chain``, and absorbed system messages.

    :returns: 0 and none where it is of no use for a request with these system messages
    """
    purpose = lease.partition(b":")[2]
    covered, told = int.from_bytes(purpose[:_COVERED_BYTES], "big"), purpose[_ABSORBED_FROM:]
    absorbed = tuple(told[at : at + DIGEST_BYTES] for at in range(0, len(told), DIGEST_BYTES))
    if covered > len(chain) or purpose != reference(covered, chain.at(covered), recipe, absorbed):
        return 0, ()
    return (covered, absorbed) if all(systems.get(one, covered + 1) <= covered for one in absorbed) else (0, ())


def pack_systems(systems: InnerSystems) -> bytes:
    """A request's inner system messages as ``recall.lua`` reads them: for each its position, then its digest."""
    return b"".join(position.to_bytes(_COVERED_BYTES, "big") + digest for digest, position in systems.items())


def pack_summary(summary: PrefixSummary) -> bytes:
    """A summary's record."""
    recipe = summary.recipe
    return VERSION + _pack(
        _Summary(
            summary.prefix,
            summary.covered,
            summary.text,
            recipe.strategy,
            recipe.template,
            recipe.version,
            recipe.model,
            summary.made_by,
            summary.cause,
            summary.created_at,
            summary.previous,
            summary.tokens,
            summary.absorbed,
        )
    )


def unpack_summary(packed: bytes) -> PrefixSummary:
    """The summary of a record."""
    read = _read(_SUMMARY, packed)
    return PrefixSummary(
        prefix=read.prefix,
        covered=read.covered,
        text=read.text,
        recipe=SummaryRecipe(read.strategy, read.template, read.version, read.model),
        made_by=read.made_by,
        cause=read.cause,
        created_at=read.created_at,
        previous=read.previous,
        tokens=read.tokens,
        absorbed=read.absorbed,
    )


def readable_summary(packed: bytes) -> PrefixSummary | None:
    """The same, or None where another version wrote it: a summary is only a shortcut, and is made anew."""
    try:
        return unpack_summary(packed)
    except RecordUnreadable:
        return None


def _read(decoder: msgspec.msgpack.Decoder[T], packed: bytes) -> T:
    if packed[:1] != VERSION:
        raise unreadable(f"record version {packed[:1].hex()}, this program reads {VERSION.hex()}")
    try:
        return decoder.decode(memoryview(packed)[1:])
    except msgspec.MsgspecError as error:
        raise unreadable(str(error)) from error


def unreadable(cause: str) -> RecordUnreadable:
    """The error of a record that cannot be read.

    :param cause: for the log
    """
    return RecordUnreadable("A stored record is broken, or another version of Tidemark wrote it.", internal=cause)
