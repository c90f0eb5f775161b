"""Decoders give the same bytes however the coded ones are cut, and their pieces have a bound."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import Callable

import brotli
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark.codings.decoders import DECODE_ERRORS, DECODERS, OUT_BYTES, coding_names

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


def raw_deflate(data: bytes) -> bytes:
    """Deflate without zlib's frame."""
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


ENCODERS: list[tuple[str, Callable[[bytes], bytes]]] = [
    ("gzip", gzip.compress),
    ("gzip", lambda data: gzip.compress(data[:5]) + gzip.compress(data[5:]) + b"\0" * 7),
    ("deflate", zlib.compress),
    ("deflate", raw_deflate),
    ("br", brotli.compress),
    ("zstd", zstd.compress),
    ("zstd", lambda data: zstd.compress(data[:5]) + zstd.compress(data[5:])),
]


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """The data in pieces."""
    ends = sorted({place % (len(data) + 1) for place in places})
    return [data[first:last] for first, last in zip([0, *ends], [*ends, len(data)], strict=True)]


@pytest.mark.parametrize(("coding", "encode"), ENCODERS)
@given(data=st.binary(max_size=3000), places=st.lists(st.integers(0, 5000), max_size=20))
def test_a_body_is_the_same_however_it_is_cut(
    coding: str, encode: Callable[[bytes], bytes], data: bytes, places: list[int]
) -> None:
    """The network cuts anywhere, also between the members of a body."""
    decoder = DECODERS[coding]()
    found = b"".join(piece for part in cut(encode(data), places) for piece in decoder.pieces(part))
    decoder.finish()
    assert found == data


@pytest.mark.parametrize(("coding", "encode"), ENCODERS)
def test_no_piece_is_larger_than_its_bound(coding: str, encode: Callable[[bytes], bytes]) -> None:
    """A few bytes that become very many."""
    sizes = [len(piece) for piece in DECODERS[coding]().pieces(encode(bytes(3_000_000)))]
    assert max(sizes) <= (2 * OUT_BYTES if coding == "br" else OUT_BYTES)
    assert sum(sizes) == 3_000_000


@pytest.mark.parametrize(("coding", "encode"), ENCODERS)
@given(data=st.binary(min_size=1, max_size=500), kept=st.integers(0, 400))
def test_a_body_that_is_cut_short_is_noticed(
    coding: str, encode: Callable[[bytes], bytes], data: bytes, kept: int
) -> None:
    """At its end at the latest, and with no other error."""
    coded = encode(data).rstrip(b"\0") if coding == "gzip" else encode(data)
    decoder = DECODERS[coding]()
    whole = b""
    try:
        whole = b"".join(decoder.pieces(coded[: min(kept, len(coded) - 1)]))
        decoder.finish()
    except DECODE_ERRORS:
        return
    assert data.startswith(whole), "only whole members or frames are a body of their own"
    assert whole != data or data[5:] == b""


def test_the_names_of_codings_are_read_from_all_lines() -> None:
    """In their order, whatever their case; ``identity`` is none."""
    assert coding_names([b"GZip , identity", b" br"]) == ["gzip", "br"]
    assert coding_names([b"", b"identity"]) == []
