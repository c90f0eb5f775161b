"""Loads the Lua scripts and packs their arguments: each operation of the store is one script and one round trip.

``commands.py`` sends them. The first line of each file in ``lua/`` states the arguments and the answer. The parts
``recall_first`` and ``record_first`` stand before the rest, since a conversation's first turn needs nothing else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container, Sequence
from pathlib import Path

import msgspec

from tidemark.core.conversation.prefix import OWN_CHARACTERS, PrefixChain, split_id
from tidemark.core.conversation.records import REDACTED, TurnRecord
from tidemark.core.conversation.summary import InnerSystems, SummaryRecipe
from tidemark.core.frozen import frozen
from tidemark.store.codec import Codec
from tidemark.store.lifetimes import Lifetime
from tidemark.store.references import pack_systems, recipe_digest
from tidemark.store.turn_parts import TurnParts

NEAR = 64
"""Prefixes that are sent at first, newest first: a turn adds two or three. ``tree.lua`` has the same number."""

MOST_BRANCH_MESSAGES = 256
"""Messages that a conversation may have after those that it shares with a request, to be compared with it."""
MOST_BRANCH_BYTES = 8_000_000
"""Bytes of the messages of all conversations that are compared; the first one is read whole."""

Argument = str | bytes | float
_pack = msgspec.msgpack.Encoder().encode


@frozen
class Script:
    """A script and the name under which Redis caches it."""

    source: str
    sha: str


def lua(module: str, *names: str) -> str:
    """Return the source of files in the folder ``lua/`` beside a module, one behind the other."""
    folder = Path(module).with_name("lua")
    return "".join((folder / f"{name}.lua").read_text("utf-8") for name in names)


def _script(*parts: str) -> Script:
    source = lua(__file__, *parts)
    return Script(source, hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest())


RECALL = _script("several", "recall_first", "tree", "recall")
RECORD = _script("facts", "answered", "several", "record_first", "tree", "echo", "record")
BRANCHES = _script("several", "tree", "branches")
KEEP_SUMMARY = _script("several", "tree", "keep_summary")
REPLACE_SUMMARY = _script("several", "tree", "replace_summary")
KEEP_PREVIEW = _script("several", "tree", "keep_preview")
KEEP_RESPONSE = _script("answered", "keep_response")
DESCRIBE = _script("several", "tree", "describe")
PATH = _script("several", "tree", "path")
OPENING = _script("several", "tree", "opening")
SUMMARIES = _script("several", "tree", "summaries")
BEGIN_TURN = _script("several", "tree", "begin_turn")
GIVE_UP = _script("several", "tree", "give_up_turn")
FORGET = _script("several", "tree", "forget")
LIST_ADD = _script("list_add")
LIST_DROP = _script("list_drop")
WEIGH = _script("weigh")
ADD_USAGE = _script("usage_add")
TAKE_QUOTA = _script("take_quota")
GIVE_QUOTA = _script("give_quota")
RENEW_QUOTA = _script("renew_quota")


def moment(seconds: float) -> str:
    """Return a time as it is stored: the shortest text that is read as the same number."""
    return repr(seconds)


def chain_arguments(chain: PrefixChain, before: int) -> tuple[bytes, int]:
    """Return the part of a chain after its first ``before`` messages, as every script takes it."""
    return b"".join(chain.hashes[before:]), before


def recall_arguments(
    chain: PrefixChain, before: int, recipe: SummaryRecipe, systems: InnerSystems
) -> Sequence[Argument]:
    """Return the arguments of ``recall.lua``; for a chain of one message also the conversation that it would begin."""
    own = chain.hashes[0].hex()[:OWN_CHARACTERS] if len(chain.hashes) == 1 else ""
    positions = pack_systems(systems) if systems else b""
    return (*chain_arguments(chain, before), recipe_digest(recipe), own, positions)


def branches_arguments(chain: PrefixChain, conversation: str, shared: int) -> Sequence[Argument]:
    """Return the arguments of ``branches.lua``.

    :param conversation: the one that ``recall.lua`` found
    :param shared: how many messages the chain shares with it, at least 1
    """
    _, own = split_id(conversation)
    return (*chain_arguments(chain, shared - 1), own, shared, MOST_BRANCH_MESSAGES, MOST_BRANCH_BYTES)


def record_arguments(
    turn: TurnRecord,
    parts: TurnParts,
    created: str,
    *,
    codec: Codec,
    skip: int,
    lifetime: Lifetime,
    stored_systems: Container[tuple[str, bytes]],
    answered: Sequence[Argument] = (),
) -> Sequence[Argument]:
    """Return the arguments of ``record.lua``: the new messages, and a bounded piece of the chain before them.

    :param created: the turn's time, as ``moment`` writes it
    :param skip: how many leading messages are not sent; 0 sends all, system messages too
    :param stored_systems: the conversation and digest of system messages that the store has
    :param answered: the arguments of the turn's response, if it is stored together with it
    """
    family, own = split_id(turn.conversation)
    owner = turn.owner or turn.tenant
    new = listed = parts.systems
    if new and skip:
        new = [system for system in new if (turn.conversation, system.digest) not in stored_systems]
        listed = [system for system in listed if system.position == 0 or system in new]
    texts = (turn.model, turn.name, turn.sender) if codec.cipher is None else _sealed_texts(turn, codec, owner)
    model, name, sender = texts
    facts = _pack(
        (  # the order is that of record.lua; no bytes and no fractions, which its reader would change
            own if family == turn.chain.family else "",
            skip,
            lifetime.idle,
            lifetime.age,
            created,
            turn.tenant,
            turn.owner,
            model,
            parts.total_tokens,
            name,
            turn.base_branch,
            turn.lease_name,
            len(new),
            len(parts.systems) - len(new),
            _echo_arguments(turn),
            len(answered),
            turn.bindings.hex(),
            turn.prompt_record.decode(),
            "" if lifetime.tenants_idle is None else lifetime.tenants_idle,
            sender,
        )
    )
    hashes = chain_arguments(turn.chain, max(0, skip - NEAR))
    arguments: list[Argument] = [*hashes, facts, codec.pack_turn(turn, skip, listed), turn.lease_value]
    for system in new:
        arguments += (system.digest, codec.seal(system.raw, owner, "y", turn.chain.family, system.digest))
    arguments += _message_arguments(turn, parts, codec, skip)
    arguments += answered
    return arguments


def _sealed_texts(turn: TurnRecord, codec: Codec, owner: str) -> Sequence[str]:
    """Return the texts of a conversation's record as they are stored with a cipher."""
    texts = (("model", turn.model), ("name", turn.name), ("sender", turn.sender))
    return [codec.seal_text(text, owner, "c", turn.chain.family, field) for field, text in texts]


def _message_arguments(turn: TurnRecord, parts: TurnParts, codec: Codec, skip: int) -> list[Argument]:
    """Return the new messages as they are stored."""
    created_at, redacted = turn.created_at, parts.redacted
    if codec.cipher is None:
        pack, scheme = codec.pack_message, turn.scheme
        if not redacted:  # nearly always
            return [pack(message, tokens, created_at, scheme) for message, tokens in parts.new]
        return [
            pack(message, tokens, created_at, REDACTED if place in redacted else scheme)
            for place, (message, tokens) in enumerate(parts.new)
        ]
    placed = enumerate(zip(parts.new, turn.chain.hashes[-len(parts.new) :], strict=True))
    return [
        codec.seal_message(
            turn, message, tokens, skip + 1 + place, link, scheme=REDACTED if place in redacted else turn.scheme
        )
        for place, ((message, tokens), link) in placed
    ]


def _echo_arguments(turn: TurnRecord) -> Sequence[object]:
    """Return what ``echo.lua`` needs to put the client's wording in place of stored answers; nothing most often."""
    echo = turn.echo
    return () if echo is None else (turn.stored_count, echo.count, echo.tip.hex(), echo.positions)
