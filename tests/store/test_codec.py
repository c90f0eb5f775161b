"""Records and addresses: what is written is read, and what another version wrote is recognized."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from tests.store.turns import RECIPE, dialogue, summary_of, turn_of, user
from tests.support.sealing import XorCipher, key_ring
from tidemark.core.conversation.prefix import chain_of
from tidemark.core.conversation.summary import MaskedResults
from tidemark.core.errors import RecordUnreadable, StoreError
from tidemark.core.receipt import KindCount
from tidemark.store import references
from tidemark.store.codec import Codec
from tidemark.store.connection.url import read_address
from tidemark.store.encryption.cipher import TenantCipher

FAMILY = "ab" * 16
CODEC = Codec()
CHAIN = chain_of("ab", dialogue(4))
RECEIPT = (
    KindCount("rules", 7, 5, 1),
    KindCount("identifiers", 3, 3, 0, ("ABC-2",)),
    KindCount("statements", 20, 17),
)


def test_a_message_costs_few_bytes() -> None:
    """Beside the client's own bytes."""
    message = user("x" * 200)
    packed = CODEC.pack_message(message, 50, 1_700_000_000.5)
    assert len(packed) - len(message.raw) <= 16
    read = CODEC.unpack_message(packed, 3, CHAIN.at(3), FAMILY)
    assert (read.raw, read.tokens, read.created_at, read.position) == (message.raw, 50, 1_700_000_000.5, 3)


@pytest.mark.parametrize("codec", [Codec(), Codec(XorCipher())], ids=["plain", "sealed"])
def test_everything_is_read_as_it_was_written(codec: Codec) -> None:
    """Every field, so that what is rendered of a summary stays the same (promise 5)."""
    summary = replace(summary_of(CHAIN, 4), previous=CHAIN.at(2), made_by="llm", cause="prepared", receipt=RECEIPT)
    summary = replace(summary, stated="Rule: Never touch prod.")
    assert codec.unpack_summary(codec.pack_summary(summary, "ab", FAMILY), FAMILY) == summary
    message, turn = user("x"), turn_of("ab", dialogue(4), created_at=1.0)
    packed = codec.seal_message(turn, message, 5, 1, b"h")
    assert codec.unpack_message(packed, 1, b"h", turn.chain.family).raw == message.raw
    assert codec.unpack_turn(codec.pack_turn(turn, 2, []), turn.chain.family).first == 3
    assert codec.unpack_json(codec.pack_json({"a": 1}, "ab", "here"), "here") == {"a": 1}
    assert [codec.open_text(codec.seal_text(text, "ab", "here"), "here") for text in ("", "näme")] == ["", "näme"]


@pytest.mark.parametrize(("asked", "stored"), [(0, 0), (4096, 4096), (10**30, 2**53)])
def test_a_turn_has_the_longest_reply_that_was_asked_for(asked: int, stored: int) -> None:
    """However large the number is that a client names."""
    turn = replace(turn_of("ab", dialogue(4)), max_output_tokens=asked)
    read = CODEC.unpack_turn(CODEC.pack_turn(turn, 0, []), FAMILY)
    assert (read.max_output_tokens, read.beyond) == (stored, 0)


def test_summaries_are_read_across_versions() -> None:
    """One of before carries no ledger beside its text; one of now keeps what an older version knows in its place."""
    packed = CODEC.pack_summary(
        replace(summary_of(CHAIN, 4), receipt=RECEIPT, stated="Rule: Never touch prod."), "ab", FAMILY
    )
    fields = msgspec.msgpack.decode(packed[1:])
    older = CODEC.unpack_summary(packed[:1] + msgspec.msgpack.encode(fields[:17]), FAMILY)
    assert (older.stated, older.text) == ("", CODEC.unpack_summary(packed, FAMILY).text)
    assert older.receipt == (KindCount("rules", 7, 5, 1), KindCount("identifiers", 3, 3))
    assert fields[15] == [["rules", 7, 5, 1], ["identifiers", 3, 3, 0]]  # no kind that an older version refuses


def test_masked_results_are_read_whole_and_by_no_earlier_program() -> None:
    """One that knows no masks would forward the record as a summary without a text."""
    base = replace(summary_of(CHAIN, 2), results=("m1a2b3c4d read src/a.py",))
    masks = replace(
        summary_of(CHAIN, 4), text="", made_by="mask", masked=MaskedResults(base, ((3, "[Left out: 9 bytes]"),))
    )
    packed = CODEC.pack_summary(masks, "ab", FAMILY)
    assert CODEC.unpack_summary(packed, FAMILY) == masks
    assert packed[:1] != CODEC.pack_summary(base, "ab", FAMILY)[:1]


def test_turns_are_read_across_versions() -> None:
    """One of before has no longest reply; what a newer version adds at the end is left out."""
    packed = CODEC.pack_turn(turn_of("ab", dialogue(4), created_at=1.0), 2, [])
    head, fields = packed[:17], msgspec.msgpack.decode(packed[17:])
    older = CODEC.unpack_turn(head + msgspec.msgpack.encode(fields[:11]), FAMILY)
    newer = CODEC.unpack_turn(head + msgspec.msgpack.encode([*fields, "more"]), FAMILY)
    assert older == newer == CODEC.unpack_turn(packed, FAMILY)
    assert older.max_output_tokens == 0


def test_a_codec_with_a_cipher_reads_nothing_that_was_not_sealed() -> None:
    """What another program wrote is an unreadable record, and a summary is made again."""
    sealing, message = Codec(XorCipher()), user("x")
    with pytest.raises(RecordUnreadable):
        sealing.unpack_message(CODEC.pack_message(message, 5, 1.5), 1, b"h", FAMILY)
    assert sealing.readable_summary(CODEC.pack_summary(summary_of(CHAIN, 4), "ab", FAMILY), FAMILY) is None
    assert sealing.readable_turn(CODEC.pack_turn(turn_of("ab", dialogue(4)), 0, []), FAMILY) is None
    for text in ("penguin", "no base64!"):
        with pytest.raises(RecordUnreadable):
            sealing.open_text(text, "here")


def test_a_sealed_record_without_a_key_names_the_mend(tmp_path: Path) -> None:
    """A store that was moved without the master key, or the tenants' keys, is no store of another version."""
    turn = turn_of("ab" * 16, dialogue(1))
    sealed = Codec(TenantCipher(key_ring(tmp_path / "keys"))).pack_turn(turn, 0, [])
    for codec, words in (
        (Codec(), "TIDEMARK_ENCRYPTION_KEY"),
        (Codec(TenantCipher(key_ring(tmp_path / "elsewhere"))), "not brought along"),
    ):
        with pytest.raises(RecordUnreadable) as refused:
            codec.unpack_turn(sealed, turn.chain.family)
        assert words in refused.value.internal


def test_a_reference_is_laid_out_as_the_scripts_read_it() -> None:
    """Position, prefix, recipe: 4, 16 and 8 bytes."""
    reference = references.pack_reference(summary_of(CHAIN, 3))
    assert reference == b"\0\0\0\3" + CHAIN.at(3) + references.recipe_digest(RECIPE)


def test_a_repeated_turn_is_known_by_its_first_bytes() -> None:
    """Whatever was known when it was written."""
    turn = turn_of("ab", dialogue(4), created_at=1.0)
    assert CODEC.pack_turn(turn, 0, [])[:16] == CODEC.pack_turn(turn, 2, [])[:16]
    later = replace(turn, created_at=2.0)
    assert CODEC.pack_turn(turn, 0, [])[:16] != CODEC.pack_turn(later, 0, [])[:16]


@pytest.mark.parametrize("packed", [b"\x02\x90", b"\x01garbage", b""])
def test_a_record_of_another_version_is_recognized(packed: bytes) -> None:
    """A message is an error, a summary is made anew."""
    with pytest.raises(StoreError):
        CODEC.unpack_message(packed, 1, b"", FAMILY)
    assert CODEC.readable_summary(packed, FAMILY) is None


@pytest.mark.parametrize(
    ("url", "plain", "cluster"),
    [
        ("redis://h:1/2", "redis://h:1/2", False),
        ("redis+cluster://h:1", "redis://h:1", True),
        ("rediss+cluster://u:p@h", "rediss://u:p@h", True),
        ("redis://h?cluster=true&db=3", "redis://h?db=3", True),
        ("redis://h?cluster=false", "redis://h", False),
        ("unix:///a%20b/c.sock?db=1", "unix:///a%20b/c.sock?db=1", False),
        ("unix:///a b/c.sock", "unix:///a b/c.sock", False),
    ],
)
def test_an_address_tells_a_cluster(url: str, plain: str, *, cluster: bool) -> None:
    """By its scheme or its query; the rest is redis-py's."""
    assert read_address(url) == (plain, cluster)
