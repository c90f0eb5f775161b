"""What happens inside Redis: each operation of the store is one script, atomic and one round trip.

Between the adapter, which sends them, and ``lua/``, where they stand. The first line of each file says what
it is given and what it answers. What is said of a conversation's first turn stands before the rest, since most often
it is all.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from proxy.core.conversation.prefix import OWN_CHARACTERS, PrefixChain, split_id
from proxy.core.conversation.records import TurnRecord
from proxy.core.conversation.summary import InnerSystems, SummaryRecipe
from proxy.store import codec
from proxy.store.lifetimes import Lifetime
from proxy.store.seen import BoundedSet

NEAR = 64
"""So many prefixes, newest first, are sent at first: a turn adds two or three. ``tree.lua`` has it too."""

Argument = str | bytes | float
_FOLDER = Path(__file__).with_name("lua")


@dataclass(frozen=True, slots=True)
class Script:
    """A script and the name under which Redis caches it."""

    source: str
    sha: str


def _script(*parts: str) -> Script:
    source = "".join((_FOLDER / f"{part}.lua").read_text("utf-8") for part in parts)
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


RECALL = _script("recall_first", "tree", "recall")
RECORD = _script("facts", "record_first", "tree", "record")
KEEP_SUMMARY = _script("tree", "keep_summary")
REPLACE_SUMMARY = _script("tree", "replace_summary")
DESCRIBE = _script("tree", "describe")
PATH = _script("tree", "path")
SUMMARIES = _script("tree", "summaries")
BEGIN_TURN = _script("tree", "begin_turn")
GIVE_UP = _script("tree", "give_up_turn")
FORGET = _script("tree", "forget")
WEIGH = _script("weigh")
ADD_USAGE = _script("usage_add")


def moment(seconds: float) -> str:
    """A time as it is stored: the shortest text that is read as the same number."""
    return repr(seconds)


def chain_arguments(chain: PrefixChain, before: int) -> tuple[bytes, int]:
    """The part of a chain after its first ``before`` messages, as every script takes it."""
    return b"".join(chain.hashes[before:]), before


def recall_arguments(
    chain: PrefixChain, before: int, recipe: SummaryRecipe, systems: InnerSystems
) -> Sequence[Argument]:
    """What ``recall.lua`` is given; of a chain of one message also the conversation that it would begin."""
    begun = chain.hashes[0].hex()[:OWN_CHARACTERS] if len(chain.hashes) == 1 else ""
    told = codec.pack_systems(systems) if systems else b""
    return (*chain_arguments(chain, before), codec.recipe_digest(recipe), begun, told)


def record_arguments(
    turn: TurnRecord, parts: codec.TurnParts, created: str, *, known: int, lifetime: Lifetime, seen: BoundedSet
) -> Sequence[Argument]:
    """What ``record.lua`` is given: the new messages, and a bounded piece of the chain before them.

    :param created: the turn's time, as ``moment`` writes it
    :param known: how many leading messages are not sent; 0 sends all, system messages too
    """
    family, told = split_id(turn.conversation)
    fresh = noted = parts.systems
    if fresh and known:
        fresh = [one for one in fresh if (turn.conversation, one.digest) not in seen]
        noted = [one for one in noted if one.position == 0 or one in fresh]
    facts = codec.pack_facts(
        told if family == turn.chain.family else "",
        known,
        lifetime.idle,
        lifetime.age,
        created,
        turn.tenant,
        turn.owner,
        turn.model,
        parts.total_tokens,
        turn.name,
        turn.head,
        turn.lease,
        len(fresh),
        len(parts.systems) - len(fresh),
    )
    sent = chain_arguments(turn.chain, max(0, known - NEAR))
    given: list[Argument] = [*sent, facts, codec.pack_turn(turn, known, noted), turn.held]
    for one in fresh:
        given += (one.digest, one.raw)
    at, scheme = turn.created_at, turn.scheme
    given += [codec.pack_message(message, tokens, at, scheme) for message, tokens in parts.new]
    return given
