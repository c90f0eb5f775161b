"""Files of frames: each is read alone, and none inflates without bound."""

from __future__ import annotations

import os
from io import BytesIO

import pytest

from tidemark.codings.frames import BrokenFrame, FrameWriter, read_frames

BOUND = 1_000_000


def file_of(*contents: bytes) -> BytesIO:
    """Return a file with a frame for each content."""
    file = BytesIO()
    writer = FrameWriter(file)
    for content in contents:
        writer.add(content)
        writer.end()
    return file


def test_frames_come_back_as_they_were_written() -> None:
    """A large one that compresses badly, too: it needs as many bytes as it has."""
    contents = [b"a", os.urandom(3 * BOUND), b"c" * BOUND]
    file = file_of(*contents)
    frames = list(read_frames(file, max_bytes=BOUND))
    assert [frame.content for frame in frames] == contents
    assert frames[-1].end == len(file.getvalue())
    assert [frame.content for frame in read_frames(file, frames[0].end)] == contents[1:]


def test_a_small_frame_that_would_inflate_without_bound_is_refused() -> None:
    """33 KB could become a gigabyte; no more than the bound and a step is in memory."""
    file = file_of(b"whole", b"0" * (20 * BOUND))
    assert len(file.getvalue()) < 10_000
    frames = read_frames(file, max_bytes=BOUND)
    assert next(frames).content == b"whole"
    with pytest.raises(BrokenFrame, match="it would inflate to more than"):
        next(frames)
