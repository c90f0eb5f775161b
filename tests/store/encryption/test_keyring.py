"""Each tenant has a key of its own, wrapped by a master key; what is erased is gone everywhere (ADR 0041)."""

from __future__ import annotations

import base64
import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis

from tests.support.sealing import key_ring
from tests.support.waiting import wait_until
from tidemark.config import load
from tidemark.core.errors import ConfigError, EncryptionKeyLost, RecordUnreadable
from tidemark.store.connection.client import FAILURES, blocking_client
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.store.encryption.cipher import TenantCipher, key_id_of
from tidemark.store.encryption.keyring import KeyRing, scope_of
from tidemark.store.encryption.masters import keys_of_command, read_key_file, read_masters, warning_of
from tidemark.store.encryption.sources import FolderKeys, KeySource, ServerKeys
from tidemark.worker.encryption import cipher_of

OWNER, OTHER = "ab" * 16, "cd" * 16
SCOPE = scope_of(OWNER).hex()
PLACE = ("m", "family")


@pytest.fixture(params=["folder", "server"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[KeySource]:
    """Both places where keys may be."""
    if request.param == "folder":
        yield FolderKeys(tmp_path / "data" / "keys")
        return
    with EmbeddedValkey(tmp_path / "valkey") as server:
        yield ServerKeys(blocking_client(server.url, 5.0), FAILURES)


def ring_over(source: KeySource, *secrets: bytes) -> KeyRing:
    """A ring of another process over the same keys."""
    return KeyRing(read_masters(",".join((one * 32).hex() for one in secrets or (b"m",)), "a test"), source)


def test_two_processes_have_one_key_for_a_tenant(source: KeySource) -> None:
    """Even if both need its first one at the same instant."""
    rings, gate = [ring_over(source) for _ in range(4)], threading.Barrier(4)

    def seal(ring: KeyRing) -> bytes:
        gate.wait()
        return TenantCipher(ring).seal(b"text", OWNER, PLACE)

    with ThreadPoolExecutor(4) as pool:
        sealed = list(pool.map(seal, rings))
    assert {TenantCipher(ring).open(value, PLACE) for ring in rings for value in sealed} == {b"text"}
    assert list(source.scopes()) == [SCOPE]


def test_an_erased_key_is_gone_for_every_process_at_once(source: KeySource) -> None:
    """Another process had it in memory; the tenant's next value has a new key, which opens nothing of before."""
    mine, theirs = ring_over(source), ring_over(source)
    theirs.start()
    try:
        sealed = TenantCipher(mine).seal(b"text", OWNER, PLACE)
        stays = TenantCipher(mine).seal(b"other", OTHER, PLACE)
        assert TenantCipher(theirs).open(sealed, PLACE) == b"text"
        assert len(mine.erase(OWNER)) == 1
        wait_until(lambda: OWNER not in theirs.by_owner, 5)
        for ring in (mine, theirs):
            with pytest.raises(RecordUnreadable, match="broken"):
                TenantCipher(ring).open(sealed, PLACE)
            assert TenantCipher(ring).open(stays, PLACE) == b"other"
        TenantCipher(theirs).seal(b"new", OWNER, PLACE)
        with pytest.raises(RecordUnreadable):
            TenantCipher(theirs).open(sealed, PLACE)
    finally:
        theirs.stop()


def test_a_key_that_was_read_before_its_erasure_does_not_come_back(tmp_path: Path) -> None:
    """A thread that was reading it just then must not put it into the cache afterwards."""
    ring = key_ring(tmp_path)
    TenantCipher(ring).seal(b"text", OWNER, PLACE)
    record = ring.source.read(SCOPE)
    assert record is not None

    class Slow(FolderKeys):
        """A folder in which a tenant is erased while a thread reads its record."""

        def read(self, scope: str) -> bytes | None:
            late.forget()
            return record

    late = KeyRing(ring.masters, Slow(tmp_path))
    late.of(OWNER)
    assert OWNER not in late.by_owner


def test_an_old_master_key_is_read_and_replaced(source: KeySource) -> None:
    """The first one wraps; after that the old one is needed no more."""
    sealed = TenantCipher(ring_over(source, b"a")).seal(b"text", OWNER, PLACE)
    both = ring_over(source, b"b", b"a")
    assert TenantCipher(both).open(sealed, PLACE) == b"text"
    assert both.rewrap(SCOPE)
    assert not both.rewrap(SCOPE)
    assert TenantCipher(ring_over(source, b"b")).open(sealed, PLACE) == b"text"
    with pytest.raises(EncryptionKeyLost):
        TenantCipher(ring_over(source, b"a")).open(sealed, PLACE)


def test_a_tenant_with_a_new_key_opens_what_the_old_one_sealed(source: KeySource) -> None:
    """Daily files, queues and exports still have it."""
    ring = ring_over(source)
    before = TenantCipher(ring).seal(b"text", OWNER, PLACE)
    assert ring.rewrap(SCOPE, renew=True)
    after = TenantCipher(ring).seal(b"text", OWNER, PLACE)
    assert {TenantCipher(ring).open(value, PLACE) for value in (before, after)} == {b"text"}
    assert key_id_of(before) != key_id_of(after)
    assert len(ring.erase(OWNER)) == 2
    for value in (before, after):
        with pytest.raises(RecordUnreadable):
            TenantCipher(ring).open(value, PLACE)


def test_what_a_new_key_has_sealed_is_read_by_a_process_that_has_only_the_old_one(source: KeySource) -> None:
    """Until it looks at the source's version it has the old one in memory, and may not call the record broken."""
    mine, theirs = TenantCipher(ring_over(source)), TenantCipher(ring_over(source))
    assert theirs.open(mine.seal(b"text", OWNER, PLACE), PLACE) == b"text"
    mine.keys.rewrap(SCOPE, renew=True)
    assert theirs.open(mine.seal(b"new", OWNER, PLACE), PLACE) == b"new"


def test_a_lost_master_key_is_told_and_changes_nothing(source: KeySource) -> None:
    """Nothing of this tenant is read or written; other tenants go on."""
    TenantCipher(ring_over(source, b"a")).seal(b"text", OWNER, PLACE)
    before = source.read(SCOPE)
    cipher = TenantCipher(ring_over(source, b"b"))
    for _ in range(2):
        with pytest.raises(EncryptionKeyLost, match="TIDEMARK_ENCRYPTION_KEY"):
            cipher.seal(b"more", OWNER, PLACE)
    with pytest.raises(EncryptionKeyLost):
        cipher.keys.rewrap(SCOPE)
    assert source.read(SCOPE) == before
    assert cipher.open(cipher.seal(b"other", OTHER, PLACE), PLACE) == b"other"
    assert sorted(cipher.keys.owners().values()) == [OWNER, OTHER]
    assert (cipher.keys.lost(), cipher.keys.lost(0)) == (1, 0)


@pytest.mark.parametrize("damage", [b"", b"{}", b"garbage", b'{"owner":"x","keys":[],"digests":{},"version":1}'])
def test_a_damaged_record_is_told_and_stays(tmp_path: Path, damage: bytes) -> None:
    """Its file is not replaced by a new key, which would hide that the old one is gone."""
    ring = key_ring(tmp_path)
    TenantCipher(ring).seal(b"text", OWNER, PLACE)
    (tmp_path / f"{SCOPE}.json").write_bytes(damage)
    ring.forget()
    with pytest.raises(EncryptionKeyLost, match="damaged"):
        TenantCipher(ring).seal(b"more", OWNER, PLACE)
    assert (tmp_path / f"{SCOPE}.json").read_bytes() == damage


def test_a_record_of_another_tenant_does_not_unwrap(tmp_path: Path) -> None:
    """Whoever can write to the folder cannot make one tenant's key another one's."""
    ring = key_ring(tmp_path)
    for owner in (OWNER, OTHER):
        TenantCipher(ring).seal(b"text", owner, PLACE)
    (tmp_path / f"{SCOPE}.json").write_bytes((tmp_path / f"{scope_of(OTHER).hex()}.json").read_bytes())
    ring.forget()
    with pytest.raises(EncryptionKeyLost):
        ring.of(OWNER)


def test_only_the_owner_of_the_files_may_read_them(tmp_path: Path) -> None:
    """And nothing but whole files stands there."""
    folder = tmp_path / "data" / "keys"
    TenantCipher(key_ring(folder)).seal(b"text", OWNER, PLACE)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {(path.name, path.stat().st_mode & 0o777) for path in folder.iterdir()} == {(f"{SCOPE}.json", 0o600)}


def test_a_folder_that_cannot_be_entered_is_told_with_its_mend(tmp_path: Path) -> None:
    """As another user's is: whoever starts Tidemark gets a line, and no traceback. A missing one has no tenants."""
    assert list(FolderKeys(tmp_path / "keys").scopes()) == []
    unusable = "k" * 300  # root may enter every folder, so the name is one that no system takes
    with pytest.raises(EncryptionKeyLost, match=r"cannot be used: .+ Let the user of Tidemark write to it"):
        list(FolderKeys(tmp_path / unusable).scopes())
    with pytest.raises(ConfigError, match="cannot be used"):
        cipher_of(load(None, {"TIDEMARK_DATA_DIR": str(tmp_path / unusable)}), print)


def test_an_erased_file_leaves_no_trace_of_its_content(tmp_path: Path) -> None:
    """Its bytes are overwritten before its name goes, since a hard link may have them."""
    ring = key_ring(tmp_path)
    TenantCipher(ring).seal(b"text", OWNER, PLACE)
    content = (tmp_path / f"{SCOPE}.json").read_bytes()
    os.link(tmp_path / f"{SCOPE}.json", tmp_path / "copy")
    ring.erase(OWNER)
    assert len((tmp_path / "copy").read_bytes()) == len(content)
    assert b"wrapped" not in (tmp_path / "copy").read_bytes()
    assert ring.erase(OWNER) == []


def test_what_a_crash_left_of_a_record_goes_with_an_erasure(tmp_path: Path) -> None:
    """It has the same key, wrapped; a file that is being written just now stays."""
    ring = key_ring(tmp_path)
    TenantCipher(ring).seal(b"text", OWNER, PLACE)
    content = (tmp_path / f"{SCOPE}.json").read_bytes()
    for name, age in ((".new-left", 3600), (".new-now", 0)):
        (tmp_path / name).write_bytes(content)
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    ring.erase(OWNER)
    assert {path.name for path in tmp_path.glob(".new-*")} == {".new-now"}


def test_a_server_of_keys_that_is_away_is_told_and_not_asked_again_at_once(tmp_path: Path) -> None:
    """Each request would wait for it otherwise; the keys in memory stay in use for a minute."""
    with EmbeddedValkey(tmp_path) as server:
        ring = KeyRing(key_ring(tmp_path).masters, ServerKeys(blocking_client(server.url, 0.5), FAILURES))
        cipher = TenantCipher(ring)
        sealed = cipher.seal(b"text", OWNER, PLACE)
    for _ in range(3):
        with pytest.raises(EncryptionKeyLost, match="does not answer"):
            cipher.seal(b"text", OTHER, PLACE)
    assert cipher.open(sealed, PLACE) == b"text"


def test_a_server_of_keys_holds_nothing_that_is_not_wrapped(tmp_path: Path) -> None:
    """So it alone opens nothing."""
    with EmbeddedValkey(tmp_path) as server:
        ring = KeyRing(key_ring(tmp_path).masters, ServerKeys(blocking_client(server.url, 5.0), FAILURES))
        TenantCipher(ring).seal(b"text", OWNER, PLACE)
        with redis.Redis.from_url(server.url) as admin:
            held = b"".join(admin.get(name) or b"" for name in admin.scan_iter("*"))
    assert base64.b64encode(b"m" * 32) not in held
    assert b'"wrapped"' in held


@pytest.mark.parametrize("text", ["", "short", "zz" * 32, "ab" * 31, base64.b64encode(b"x" * 31).decode()])
def test_what_is_no_key_is_refused_without_a_quote(text: str) -> None:
    """The message may go to a log."""
    with pytest.raises(ConfigError, match="openssl rand -hex 32") as refused:
        read_masters(text and f"{'ab' * 32}, {text}", "TIDEMARK_ENCRYPTION_KEY")
    assert not text or text not in str(refused.value)


def test_keys_are_hex_or_base64_with_commas_or_line_ends_between_them() -> None:
    """The same key has the same id in each form."""
    secret = os.urandom(32)
    forms = (secret.hex(), base64.b64encode(secret).decode(), base64.urlsafe_b64encode(secret).decode().rstrip("="))
    masters = read_masters("\n".join([f"{forms[0]},{forms[1]}", forms[2]]), "a test")
    assert len(masters) == 3
    assert len({master.id for master in masters}) == 1


def test_a_file_of_keys_that_others_can_read_is_told_with_its_mend(tmp_path: Path) -> None:
    """A file that is not there is refused."""
    path = tmp_path / "master"
    path.write_text("ab" * 32)
    path.chmod(0o644)
    assert warning_of(path) == f"{path} can be read by every user of this machine; chmod 600 {path}"
    path.chmod(0o600)
    assert not warning_of(path)
    assert read_key_file(path) == "ab" * 32
    with pytest.raises(ConfigError, match="cannot be read"):
        read_key_file(tmp_path / "nothing")


def test_a_command_may_print_the_keys() -> None:
    """What it says when it fails is quoted nowhere."""
    assert keys_of_command(["printf", "ab"]) == "ab"
    for command in (["false"], ["no-such-program"]):
        with pytest.raises(ConfigError, match=r"encryption\.key_command"):
            keys_of_command(command)
