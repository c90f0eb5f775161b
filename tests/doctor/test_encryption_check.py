"""``tidemark doctor`` tells what is wrong with the keys, and how much of the store is plain."""

from __future__ import annotations

import asyncio
from pathlib import Path

from tests.features.upkeep.stored import fill
from tests.support.sealing import key_ring
from tidemark.config import load
from tidemark.doctor.encryption import check_encryption
from tidemark.doctor.findings import Finding
from tidemark.store.codec import Codec
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.store.encryption.cipher import TenantCipher

KEY = (b"m" * 32).hex()


def examined(folder: Path, **variables: str) -> list[Finding]:
    """What it finds, for a store in a folder."""
    return check_encryption(load(None, {"TIDEMARK_DATA_DIR": str(folder), **variables}))


def test_a_store_is_told_that_is_plain_or_partly_so(tmp_path: Path) -> None:
    """With the command that seals it; without a key there is nothing to say."""
    with EmbeddedValkey(tmp_path / "store") as server:
        asyncio.run(fill(server.url))
    assert examined(tmp_path) == []
    (found,) = examined(tmp_path, TIDEMARK_ENCRYPTION_KEY=KEY)
    assert (found.status, "partly unsealed" in found.detail, "store rotate" in found.mend) == ("warning", True, True)


def test_keys_that_are_lost_or_open_to_others_are_told(tmp_path: Path) -> None:
    """Each with its mend, and a whole one is told, too."""
    cipher = TenantCipher(key_ring(tmp_path / "keys"))
    with EmbeddedValkey(tmp_path / "store") as server:
        asyncio.run(fill(server.url, codec=Codec(cipher)))
    (well,) = examined(tmp_path, TIDEMARK_ENCRYPTION_KEY=KEY)
    assert well.status == "ok"
    (tmp_path / "keys").chmod(0o755)
    found = examined(tmp_path, TIDEMARK_ENCRYPTION_KEY="cd" * 32)
    assert [(finding.status, bool(finding.mend)) for finding in found] == [("warning", True), ("error", True)]
    (missing,) = examined(tmp_path)
    assert (missing.status, "TIDEMARK_ENCRYPTION_KEY" in missing.mend) == ("error", True)
