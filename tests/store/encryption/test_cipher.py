"""What is sealed opens for its tenant and its place alone, and any change of it is noticed (ADR 0041)."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from tests.support.sealing import key_ring
from tidemark.core.errors import RecordUnreadable
from tidemark.store.codec import Codec
from tidemark.store.encryption.cipher import OVERHEAD_BYTES, TenantCipher, joined
from tidemark.store.encryption.keyring import MARK

OWNERS = st.sampled_from(["ab" * 16, "cd" * 16, "team-seven", ""])
PLACES = st.lists(st.one_of(st.text(max_size=8), st.binary(max_size=8)), max_size=4)
SHARED = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.fixture(scope="module")
def cipher(tmp_path_factory: pytest.TempPathFactory) -> TenantCipher:
    """A cipher whose tenants have keys in a folder."""
    return TenantCipher(key_ring(tmp_path_factory.mktemp("keys") / "keys"))


@given(st.binary(max_size=300), OWNERS, PLACES)
def test_what_is_sealed_is_read_again(cipher: TenantCipher, plain: bytes, owner: str, place: list[str | bytes]) -> None:
    """Any bytes, of any owner, in any place; each time as other bytes."""
    sealed = cipher.seal(plain, owner, place)
    assert cipher.open(sealed, place) == plain
    assert len(sealed) == len(plain) + OVERHEAD_BYTES
    assert sealed != cipher.seal(plain, owner, place)


@given(OWNERS, PLACES, PLACES)
def test_a_value_that_was_moved_never_opens(
    cipher: TenantCipher, owner: str, place: list[str | bytes], other: list[str | bytes]
) -> None:
    """Whoever can write to the store cannot put one record's text into another record."""
    assume(joined(place) != joined(other))
    with pytest.raises(RecordUnreadable):
        cipher.open(cipher.seal(b"the tide turns", owner, place), other)


@given(PLACES, PLACES)
def test_two_places_are_never_the_same_bytes(one: list[str | bytes], other: list[str | bytes]) -> None:
    """However their parts are cut: a separator inside of a part means nothing."""

    def encoded(place: list[str | bytes]) -> list[bytes]:
        return [piece if isinstance(piece, bytes) else piece.encode() for piece in place]

    assert (joined(one) == joined(other)) == (encoded(one) == encoded(other))


@given(st.binary(max_size=40), st.data())
def test_any_changed_byte_is_noticed(cipher: TenantCipher, plain: bytes, data: st.DataObject) -> None:
    """Of the mark, the tenant, the key's id, the nonce, the text or the tag; a mark that is gone shows plain bytes."""
    sealed = cipher.seal(plain, "ab" * 16, ("m", "f"))
    spot = data.draw(st.integers(0, len(sealed) - 1))
    changed = bytearray(sealed)
    changed[spot] ^= data.draw(st.integers(1, 255))
    if spot < len(MARK):
        assert cipher.open(bytes(changed), ("m", "f")) == bytes(changed)  # plain text of a store from before
        cipher = TenantCipher(cipher.keys, required=True)
    with pytest.raises(RecordUnreadable):
        cipher.open(bytes(changed), ("m", "f"))


@given(st.integers(0, OVERHEAD_BYTES + 3))
def test_a_value_that_was_cut_is_noticed(cipher: TenantCipher, length: int) -> None:
    """As a record is after a crash of its server."""
    cut = cipher.seal(b"text", "ab" * 16, ("m", "f"))[:length]
    with pytest.raises(RecordUnreadable):
        TenantCipher(cipher.keys, required=True).open(cut, ("m", "f"))


@given(st.text(max_size=60))
def test_a_name_of_before_is_read_and_a_sealed_one_too(cipher: TenantCipher, name: str) -> None:
    """Also if it is base64 by chance."""
    codec, plain = Codec(cipher), Codec()
    assert codec.open_text(codec.seal_text(name, "ab" * 16, "c"), "c") == name
    assert codec.open_text(plain.seal_text(name, "ab" * 16, "c"), "c") == name


def test_one_tenants_value_in_place_of_anothers_does_not_open(tmp_path: Path) -> None:
    """Also if somebody writes the other tenant's name into its header."""
    cipher = TenantCipher(key_ring(tmp_path))
    mine, theirs = (cipher.seal(b"secret", owner * 16, ("k", "same")) for owner in ("ab", "cd"))
    forged = MARK + theirs[len(MARK) : len(MARK) + 20] + mine[len(MARK) + 20 :]
    with pytest.raises(RecordUnreadable):
        cipher.open(forged, ("k", "same"))


def test_what_nobody_sealed_is_refused_only_if_it_must_be_sealed(tmp_path: Path) -> None:
    """A store that was written before is read until all of it is sealed."""
    keys = key_ring(tmp_path)
    assert TenantCipher(keys).open(b'{"role":"user"}', ("y",)) == b'{"role":"user"}'
    with pytest.raises(RecordUnreadable):
        TenantCipher(keys, required=True).open(b'{"role":"user"}', ("y",))
