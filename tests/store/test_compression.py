"""Long messages are stored compressed: whatever was said is read as it was, in less memory."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.store.turns import turn_of, user
from tests.support.sealing import XorCipher
from tidemark.codings.compression import LEAST_BYTES, MAGIC, compress, decompress
from tidemark.core.errors import RecordUnreadable
from tidemark.store.codec import Codec

FAMILY = "ab" * 16
LISTING = json.dumps([{"path": f"src/module_{number}.py", "lines": number * 7} for number in range(60)])


@given(st.text(max_size=40), st.integers(0, 400))
def test_every_message_is_read_as_it_was_written(text: str, times: int) -> None:
    """Of any length."""
    raw = user(text * times).raw
    assert decompress(compress(raw)) == raw
    assert len(compress(raw)) <= len(raw)


def test_a_short_message_is_stored_as_it_is() -> None:
    """Its bytes can be found in the store by a search."""
    raw = user("x" * (LEAST_BYTES - 100)).raw
    assert compress(raw) == raw


def test_what_compression_makes_longer_is_stored_as_it_is() -> None:
    """Random bytes in base64 shrink by a quarter; random characters of all of Unicode do not."""
    raw = json.dumps(
        {"role": "user", "content": "".join(chr(0x4E00 + place * 7919 % 20_000) for place in range(400))}
    ).encode()
    assert len(compress(raw)) <= len(raw)
    assert decompress(compress(raw)) == raw


@pytest.mark.parametrize("cipher", [None, XorCipher()], ids=["plain", "sealed"])
def test_a_list_that_a_tool_returns_takes_a_quarter(cipher: XorCipher | None) -> None:
    """It is compressed before it is sealed, since sealed bytes cannot be."""
    message = user(LISTING)
    turn = turn_of("ab", [message])
    packed = Codec(cipher).seal_message(turn, message, 5, 1)
    assert len(packed) < len(message.raw) / 4
    assert Codec(cipher).unpack_message(packed, 1, b"h", turn.chain.family).raw == message.raw


def test_compression_can_be_off_and_is_read_all_the_same() -> None:
    """So that it can be switched at any time, one worker after the other."""
    message, plain = user(LISTING), Codec(compress_messages=False)
    assert len(plain.pack_message(message, 5, 1.5)) > len(message.raw)
    assert plain.unpack_message(Codec().pack_message(message, 5, 1.5), 1, b"h", FAMILY).raw == message.raw
    assert Codec().unpack_message(plain.pack_message(message, 5, 1.5), 1, b"h", FAMILY).raw == message.raw


def test_a_broken_frame_is_an_unreadable_record() -> None:
    """Like any other record whose bytes have changed."""
    packed = Codec().pack_message(user(LISTING), 5, 1.5)
    place = packed.index(MAGIC) + 20
    broken = packed[:place] + bytes(byte ^ 0xFF for byte in packed[place : place + 8]) + packed[place + 8 :]
    with pytest.raises(RecordUnreadable):
        Codec().unpack_message(broken, 1, b"h", FAMILY)
