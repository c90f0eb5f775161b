"""A cipher for tests: it hides text from a reader of the store, and refuses whatever it did not seal."""

from __future__ import annotations

import os

from tidemark.core.errors import RecordUnreadable

TAG = b"\xc5\xea"
"""How sealed bytes begin."""


class XorCipher:
    """Seals by XOR with a byte that changes from call to call, so that equal texts are stored as different bytes."""

    def seal(self, plain: bytes) -> bytes:
        """Return the tag, the byte and the changed text."""
        mask = os.urandom(1)[0] | 1
        return TAG + bytes([mask]) + bytes(byte ^ mask for byte in plain)

    def open(self, sealed: bytes) -> bytes:
        """Return the text.

        :raises RecordUnreadable: it was not sealed
        """
        if sealed[:2] != TAG:
            raise RecordUnreadable("A stored record is broken.", internal="it is not sealed")
        return bytes(byte ^ sealed[2] for byte in sealed[3:])
