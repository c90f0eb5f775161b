"""Bounds of a body: what it must be made of, and how much may be in it, looked at before anything of it is decoded.

Below ``body.py`` and ``beginnings.py``. All of it goes in steps, so that in a thread nobody else waits for it.
"""

from __future__ import annotations

from codecs import getincrementaldecoder

STEP_BYTES = 1_048_576
"""A call that holds the interpreter for so much takes about a millisecond."""
_decoder = getincrementaldecoder("utf-8")


def is_utf8(body: bytes) -> bool:
    """Whether a body is UTF-8 to its last byte. The decoder of JSON passes over what nobody asks for."""
    if body.isascii():
        return True
    decoder, view = _decoder(), memoryview(body)
    try:
        for at in range(0, len(body), STEP_BYTES):
            decoder.decode(view[at : at + STEP_BYTES], final=at + STEP_BYTES >= len(body))
    except UnicodeDecodeError:
        return False
    return True
