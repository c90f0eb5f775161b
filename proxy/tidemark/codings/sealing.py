"""Seals bytes with AES-256-GCM, and signs them with Ed25519, for everything above that keeps a secret.

``compaction/sealing.py`` seals what a client carries, ``store/encryption/`` what stands in the store or a file. The
library is imported when the first key is used: most processes have none.
"""

from __future__ import annotations

import hashlib
import hmac
import os

KEY_BYTES = 32
NONCE_BYTES = 12
"""The length that NIST SP 800-38D recommends. Nonces are random, so one key must seal less than 2**32 values."""
TAG_BYTES = 16


class SealBroken(ValueError):
    """The bytes were changed, or another key or another place sealed them."""


class Box:
    """Seals and opens with one key. It holds the key and no other state; threads may share it.

    :param key: ``KEY_BYTES`` random bytes
    """

    def __init__(self, key: bytes) -> None:
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        cipher = AESGCM(key)
        self._broken = InvalidTag
        self._encrypt = cipher.encrypt
        self._decrypt = cipher.decrypt

    def seal(self, plain: bytes, about: bytes) -> bytes:
        """Return a nonce and the sealed bytes, which ``open`` returns for the same ``about`` only."""
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._encrypt(nonce, plain, about)

    def open(self, sealed: bytes, about: bytes) -> bytes:
        """Return what was sealed.

        :raises SealBroken: it was changed, or sealed with another key or for something else
        """
        if len(sealed) < NONCE_BYTES + TAG_BYTES:
            raise SealBroken("it is cut")
        try:
            return self._decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], about)
        except self._broken as error:
            raise SealBroken("it was changed, moved, or sealed with another key") from error

    def __repr__(self) -> str:
        return "Box(key=***)"


class Signer:
    """Signs with a key that is derived from a secret, so that the same installation signs with the same key.

    :param purpose: what is signed; another purpose has another key
    """

    def __init__(self, secret: bytes, purpose: bytes) -> None:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        self._key = Ed25519PrivateKey.from_private_bytes(hmac.digest(secret, purpose, hashlib.sha256))

    @property
    def public_key(self) -> bytes:
        """The 32 bytes by which anybody can check what this signs."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, content: bytes) -> bytes:
        """Return the signature, 64 bytes."""
        return self._key.sign(content)

    def __repr__(self) -> str:
        return "Signer(key=***)"


def is_signed(public_key: bytes, signature: bytes, content: bytes) -> bool:
    """Tell whether the owner of a public key has signed the content."""
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public_key).verify(signature, content)
    except (InvalidSignature, ValueError):
        return False
    return True
