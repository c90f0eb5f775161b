"""Content codings of request bodies: each is read, each is bounded, and what is no such thing is told."""

from __future__ import annotations

import gzip
import os
import sys
import zlib
from collections.abc import Callable
from functools import partial

import brotli
import pytest

from tidemark.codings.decoders import MAX_FRAMES
from tidemark.core.errors import BodyTooLarge, InvalidRequest, UnsupportedEncoding
from tidemark.server.encodings import decoded_body
from tidemark.server.errors import error_lines, status_of

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

Encode = Callable[[bytes], bytes]
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "tides \xc3\xa9"}]}' * 3_000
CAP = 4 * len(BODY)


def raw_deflate(data: bytes) -> bytes:
    """Deflate without zlib's frame, as some clients write it."""
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


ENCODERS: dict[str, Encode] = {
    "gzip": gzip.compress,
    "x-gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": partial(brotli.compress, quality=5),  # the best one takes seconds for a bomb
    "zstd": zstd.compress,
}


async def plain(body: bytes, *codings: str, cap: int = CAP) -> bytes:
    """The body as the endpoints see it, one header line for each coding."""
    return await decoded_body(body, [(b"content-encoding", one.encode()) for one in codings], cap)


@pytest.mark.parametrize("coding", ENCODERS)
async def test_every_coding_is_read(coding: str) -> None:
    """Whole, large or empty, and however the name is written."""
    for body in (BODY, b"{}", os.urandom(CAP), b" " * CAP):
        assert await plain(ENCODERS[coding](body), coding.upper()) == body
    assert await plain(b"", coding) == b""


async def test_deflate_is_read_with_and_without_its_frame() -> None:
    """RFC 9110 says with; a well-known mistake leaves it out."""
    assert await plain(raw_deflate(BODY), "deflate") == BODY


async def test_codings_laid_over_each_other_are_undone_the_last_one_first() -> None:
    """Whether they stand in one line or in several; ``identity`` is none."""
    packed = brotli.compress(gzip.compress(BODY))
    assert await plain(packed, "gzip, br") == BODY
    assert await plain(packed, "gzip", "identity , ,br") == BODY
    assert await plain(BODY, "identity") == BODY
    assert await plain(BODY) == BODY


async def test_members_and_frames_in_a_row_are_one_body() -> None:
    """RFC 1952, section 2.2, and RFC 8878, section 3; gzip pads its last member with zeros on some media."""
    halves = (BODY[:1000], BODY[1000:])
    assert await plain(b"".join(map(gzip.compress, halves)) + b"\0" * 100, "gzip") == BODY
    assert await plain(b"".join(map(zstd.compress, halves)), "zstd") == BODY


@pytest.mark.parametrize("coding", ENCODERS)
async def test_a_bomb_is_refused_at_the_cap(coding: str) -> None:
    """A hundred megabytes of nothing in a few bytes, by itself or packed twice."""
    bomb = ENCODERS[coding](bytes(100_000_000))
    assert len(bomb) < CAP
    with pytest.raises(BodyTooLarge, match="when it is decompressed") as refused:
        await plain(bomb, coding)
    assert status_of(refused.value) == 413
    with pytest.raises(BodyTooLarge):
        await plain(gzip.compress(bomb), coding, "gzip")


@pytest.mark.parametrize("coding", ENCODERS)
async def test_what_is_not_what_the_header_says_is_refused(coding: str) -> None:
    """Cut short, followed by something else, or plain."""
    packed = ENCODERS[coding](BODY)
    for broken in (packed[:-9], packed[: len(packed) // 2], packed + b"and more", BODY):
        with pytest.raises(InvalidRequest, match=f"Content-Encoding: {coding}") as refused:
            await plain(broken, coding)
        assert (status_of(refused.value), refused.value.code) == (400, "invalid_encoding")


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
async def test_empty_frames_cost_no_more_than_their_bound(coding: str) -> None:
    """Each costs microseconds and gives nothing, so the cap alone would not end it."""
    empty = ENCODERS[coding](b"")
    assert await plain(empty * MAX_FRAMES, coding) == b""
    with pytest.raises(InvalidRequest, match="frames"):
        await plain(empty * (MAX_FRAMES + 1), coding)


async def test_a_frame_may_ask_for_no_larger_window_than_senders_may_take_for_granted() -> None:
    """RFC 9659: 8 MB; the format allows gigabytes of memory for a few bytes."""
    wide = zstd.compress(bytes(20_000_000), options={zstd.CompressionParameter.window_log: 27})
    packer = zstd.ZstdCompressor(options={zstd.CompressionParameter.window_log: 27})
    unsized = packer.compress(bytes(20_000_000)) + packer.flush()
    for frame in (wide, unsized):
        with pytest.raises(InvalidRequest, match="zstd"):
            await plain(frame, "zstd", cap=64_000_000)


@pytest.mark.parametrize("named", ["snappy", "gzip, compress", "gzip, gzip, gzip, gzip", "a" * 5000])
async def test_an_unknown_coding_is_named_with_those_that_are_read(named: str) -> None:
    """415, and RFC 9110, section 15.5.16: ``accept-encoding`` says what would be taken."""
    with pytest.raises(UnsupportedEncoding, match="use one of gzip, deflate, br, zstd, identity") as refused:
        await plain(BODY, named)
    assert status_of(refused.value) == 415
    assert (b"accept-encoding", b"gzip, deflate, br, zstd") in error_lines(refused.value)
    assert len(str(refused.value)) < 200
