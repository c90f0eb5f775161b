"""Ciphers for tests: one without keys that refuses whatever it did not seal for a place, and a ring of real keys."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from tidemark.core.errors import RecordUnreadable
from tidemark.store.encryption.keyring import KeyRing
from tidemark.store.encryption.masters import read_masters
from tidemark.store.encryption.sources import FolderKeys

TAG = b"\xc5\xea"
"""How sealed bytes begin."""


class XorCipher:
    """Seals by XOR with a byte that changes from call to call, so that equal texts are stored as different bytes."""

    def seal(self, plain: bytes, owner: str, place: Sequence[str | bytes]) -> bytes:
        """Return the tag, the byte, a digest of the place and the changed text."""
        del owner
        mask = os.urandom(1)[0] | 1
        return TAG + bytes([mask]) + _digest(place) + bytes(byte ^ mask for byte in plain)

    def open(self, stored: bytes, place: Sequence[str | bytes]) -> bytes:
        """Return the text.

        :raises RecordUnreadable: it was not sealed, or for another place
        """
        if stored[:2] != TAG or stored[3:11] != _digest(place):
            raise RecordUnreadable("A stored record is broken.", internal="it is not sealed")
        return bytes(byte ^ stored[2] for byte in stored[11:])

    def is_sealed(self, stored: bytes) -> bool:
        """Tell whether it begins as sealed bytes do."""
        return stored[:2] == TAG

    def holds(self, owner: str) -> bool:
        """Tell that it needs no key."""
        del owner
        return True

    def prepare(self, owner: str) -> None:
        """Do nothing."""


def _digest(place: Sequence[str | bytes]) -> bytes:
    pieces = [piece if isinstance(piece, bytes) else piece.encode() for piece in place]
    return hashlib.blake2b(repr(pieces).encode(), digest_size=8).digest()


def key_ring(folder: Path, *secrets: bytes) -> KeyRing:
    """A ring over the keys in a folder, with master keys made of these bytes; the first one wraps."""
    text = ",".join((secret * 32)[:32].hex() for secret in secrets or (b"m",))
    return KeyRing(read_masters(text, "a test"), FolderKeys(folder))
