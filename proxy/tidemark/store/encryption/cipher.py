"""Seals what the codec stores, with the key of the tenant to whom it belongs, and for one place only.

A sealed value is a mark with the version, the tenant's scope, the id of the key, a nonce, and the bytes of AES-256-GCM.
The first three and the place are authenticated too. So a value that was moved, to another record or another tenant,
does not open.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.codings.sealing import NONCE_BYTES, TAG_BYTES, SealBroken
from tidemark.core.errors import RecordUnreadable
from tidemark.store.encryption.keyring import ID_BYTES, MARK, SCOPE_BYTES, KeyRing

_HEADER_BYTES = len(MARK) + SCOPE_BYTES + ID_BYTES
OVERHEAD_BYTES = _HEADER_BYTES + NONCE_BYTES + TAG_BYTES
"""How much longer a sealed value is."""
Place = Sequence[str | bytes]
"""What a value is and where: its kind, then what identifies its record."""


class TenantCipher:
    """Seals and opens values; its state is the key ring. Threads may share it.

    :param required: whether a value that nobody sealed is refused; otherwise it is read, as of a store from before
    """

    def __init__(self, keys: KeyRing, *, required: bool = False) -> None:
        self.keys = keys
        self.required = required

    def seal(self, plain: bytes, owner: str, place: Place) -> bytes:
        tenant = self.keys.by_owner.get(owner) or self.keys.of(owner)
        header = tenant.header
        return header + tenant.seal(plain, header + joined(place))

    def open(self, stored: bytes, place: Place) -> bytes:
        """Return what was sealed for that place.

        :raises RecordUnreadable: it was changed or moved, its key was erased, or it is plain and must not be
        :raises EncryptionKeyLost: the key cannot be had now
        """
        if stored[:3] != MARK:
            if self.required:
                raise _unreadable("it is not sealed, and encryption.required is set")
            return stored
        scope, key_id = stored[len(MARK) : len(MARK) + SCOPE_BYTES], stored[_HEADER_BYTES - ID_BYTES : _HEADER_BYTES]
        tenant = self.keys.find(scope)
        if tenant is not None and key_id not in tenant.boxes:  # another process may have it since a moment ago
            tenant = self.keys.find(scope, anew=True)
        if tenant is None:
            raise _unreadable("there is no key of its tenant, who was erased, or whose keys were not brought along")
        box = tenant.boxes.get(key_id)
        if box is None:
            raise _unreadable("the key that it was sealed with is gone")
        try:
            return box.open(stored[_HEADER_BYTES:], stored[:_HEADER_BYTES] + joined(place))
        except SealBroken as error:
            raise _unreadable(str(error)) from error

    def is_sealed(self, stored: bytes) -> bool:
        return stored[:3] == MARK

    def holds(self, owner: str) -> bool:
        return owner in self.keys.by_owner

    def prepare(self, owner: str) -> None:
        self.keys.of(owner)

    def __repr__(self) -> str:
        return f"TenantCipher({self.keys})"


def key_id_of(stored: bytes) -> tuple[bytes, bytes]:
    """Return the scope of a sealed value and the id of the key that sealed it."""
    return stored[len(MARK) : len(MARK) + SCOPE_BYTES], stored[_HEADER_BYTES - ID_BYTES : _HEADER_BYTES]


def joined(place: Place) -> bytes:
    """Return a place as bytes, so that no two places are the same bytes.

    Each part has its length before it, and a text counts as its bytes in UTF-8. Put together as text of single bytes,
    it takes a third of the time.
    """
    text = ""
    for piece in place:
        if piece.__class__ is bytes:
            part = piece.decode("latin-1")
        elif piece.isascii():
            part = str(piece)
        else:
            part = str(piece).encode("utf-8", "surrogatepass").decode("latin-1")
        text += f"{len(part)}:{part}"
    return text.encode("latin-1")


def _unreadable(reason: str) -> RecordUnreadable:
    return RecordUnreadable("A stored record is broken.", internal=reason)
