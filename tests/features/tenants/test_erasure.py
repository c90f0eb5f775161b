"""An erased tenant leaves no byte that anybody can read: in the store, its copies, exports, files (issue 2, item 6)."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import shutil
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tests.features.memory_flush.test_memory_flush import CONFIG
from tests.request.compaction.test_sealed import values
from tests.request.conftest import Bench, Client, benched
from tests.request.talk import system, user
from tests.support.scripted import says
from tests.support.waiting import wait_until
from tidemark.core.conversation.prefix import owner_of
from tidemark.core.errors import InvalidRequest
from tidemark.features.tenants.certificates import is_own, is_whole, read_certificate, signed
from tidemark.features.upkeep.exporting import StoreExport
from tidemark.server.auth import PassthroughAuth
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.store.encryption.cipher import key_id_of
from tidemark.store.encryption.keyring import MARK, KeyRing, scope_of
from tidemark.store.encryption.masters import read_masters
from tidemark.store.encryption.sources import FolderKeys
from tidemark.store.whole_store import WholeStore

KEY = "ab" * 32
STORED = {"history": "stored"}
WORDS = ("zebra", "walrus", "ostrich", "penguin")
"""Of the tenant that is erased."""
OTHERS = ("okapi", "tapir", "heron", "stork")
"""Of the one that stays."""


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A server of the test's own, with its files in the data folder."""
    with EmbeddedValkey(tmp_path / "store") as server:
        yield server


@pytest.fixture
def bench(valkey: EmbeddedValkey, tmp_path: Path) -> Iterator[Bench]:
    """A bench before that server."""
    with benched(valkey.url, tmp_path) as made:
        yield made


def talk(bench: Bench, client: Client, words: tuple[str, ...], turns: int = 16) -> None:
    """A long talk that is compacted, flushed, named, and has a response and a conversation of OpenAI's API."""
    question, prompt, answer, name = words
    for turn in range(turns):
        bench.upstream.script = says(f"{turn}: " + " ".join(f"{answer}{turn}x{i}" for i in range(30)))
        said = [system(f"Speak as the {prompt}."), user(" ".join(f"{question}{turn}x{i}" for i in range(30)))]
        assert client.chat(said, conversation=name, **STORED).status_code == 200
    body = {"model": "small", "input": f"A {question}?", "max_output_tokens": 50, "store": True}
    client.http.post("/v1/responses", json=body, headers=client.headers())
    items = [{"type": "message", "role": "user", "content": f"The {question}."}]
    client.http.post("/v1/conversations", json={"items": items, "metadata": {"a": prompt}}, headers=client.headers())


def owner_for(key: str) -> str:
    """The fingerprint of a client's credential."""
    from tests.request.conftest import SECRET

    return owner_of(PassthroughAuth(SECRET).caller([(b"authorization", f"Bearer {key}".encode())]).fingerprint)


def readable_in(folder: Path, words: tuple[str, ...]) -> set[str]:
    """Which words stand in any file below a folder: as they are, in base64, or in hex."""
    written = b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
    return {
        word
        for word in words
        if any(
            form in written
            for form in (word.encode(), base64.b64encode(word.encode())[:6], word.encode().hex().encode())
        )
    }


async def export(url: str, path: Path) -> None:
    """Write a backup as ``tidemark store export`` does."""
    whole = WholeStore(url)
    try:
        async for _ in StoreExport(whole, path, time.time).run():
            pass
    finally:
        await whole.aclose()


def opened(folder: Path, keys: Path, scope: bytes) -> tuple[int, int]:
    """How many sealed values of a tenant a copy of the store has, and for how many of them there is a key anywhere."""
    ring = KeyRing(read_masters(KEY, "a test"), FolderKeys(keys))
    with EmbeddedValkey(folder) as copy, redis.Redis.from_url(copy.url) as admin:
        sealed = [value for _, value in values(admin) if MARK in value]
        own = [key_id_of(value[value.index(MARK) :]) for value in sealed]
    mine = [key for found, key in own if found == scope]
    tenant = ring.find(scope)
    return len(mine), sum(tenant is not None and key in tenant.boxes for key in mine)


def erase(client: Client, owner: str) -> httpx.Response:
    """Ask for it as the operator on this machine."""
    return client.http.request("DELETE", f"/tidemark/tenants/{owner}", timeout=60)


def test_an_erased_tenant_leaves_no_readable_byte(bench: Bench, valkey: EmbeddedValkey, tmp_path: Path) -> None:
    """In the store's files, a copy of them, an export, daily files; the other tenant has everything."""
    with redis.Redis.from_url(valkey.url) as admin:
        admin.config_set("appendfsync", "always")  # a copy has all of it
    client, began = bench.client("mine", config=CONFIG, environ={"TIDEMARK_ENCRYPTION_KEY": KEY}), int(time.time())
    other = Client(client.http, "theirs")
    talk(bench, client, WORDS)
    talk(bench, other, OTHERS)
    wait_until(lambda: len(list((tmp_path / "flush").glob("*/*.jsonl"))) >= 2)
    asyncio.run(export(valkey.url, tmp_path / "backup.jsonl"))
    shutil.copytree(tmp_path / "store", tmp_path / "copy", ignore=shutil.ignore_patterns("*.sock", "lock"))
    owner = owner_for("mine")
    (tmp_path / "probe").mkdir()
    shutil.copytree(tmp_path / "copy", tmp_path / "probe" / "store")
    held, readable = opened(tmp_path / "probe" / "store", tmp_path / "keys", scope_of(owner))
    assert held == readable > 20  # before it, whoever has the copy and the keys reads all of it

    got = erase(client, owner[:8])
    assert got.status_code == 200, got.text
    certificate = got.json()
    assert is_whole(certificate)
    assert certificate["tenant"] == owner
    copies = re.fullmatch(
        r"what was stored since (\S+) cannot be read: the key is gone", certificate["backups_and_exports"]
    )
    assert copies is not None
    assert began <= datetime.fromisoformat(copies[1]).timestamp() <= time.time()
    assert certificate["erased"]["conversations"] >= 1
    assert certificate["erased"]["files"] >= 1

    held, readable = opened(tmp_path / "copy", tmp_path / "keys", scope_of(owner))
    assert (held > 20, readable) == (True, 0)
    assert readable_in(tmp_path, WORDS) == set()
    with redis.Redis.from_url(valkey.url) as admin:
        stored = b"".join(where.encode() + of for where, of in values(admin) if not where.startswith("tm:{audit}"))
    assert owner.encode() not in stored.replace(b"tm:u:" + owner.encode(), b"")  # counted some seconds later
    assert scope_of(owner) not in stored
    left = b"".join(path.read_bytes() for path in (tmp_path / "keys").iterdir() if path.is_file())
    assert [key for key in certificate["key_ids"] if key.encode() in left] == []
    bench.upstream.script = says("Hello.")
    going_on = other.chat([user("And now?")], conversation=OTHERS[3], **STORED)
    assert going_on.status_code == 200
    assert OTHERS[0] in going_on.request.content.decode() or OTHERS[0].encode() in bench.upstream.received[-1].body
    begins = client.chat([user("Who are you?")], conversation=WORDS[3], **STORED)
    assert begins.status_code == 200
    assert len(bench.upstream.received[-1].json["messages"]) == 1
    again = erase(client, owner)
    assert again.json()["erased"]["conversations"] == 1


def test_without_encryption_the_certificate_says_that_copies_can_be_read(bench: Bench, valkey: EmbeddedValkey) -> None:
    """All records are gone all the same."""
    client = bench.client("mine", config=CONFIG)
    talk(bench, client, WORDS, turns=2)
    certificate = erase(client, owner_for("mine")).json()
    assert certificate["backups_and_exports"].startswith("can be read")
    assert certificate["key_ids"] == []
    with redis.Redis.from_url(valkey.url) as admin:
        found = [where for where, value in values(admin) if owner_for("mine").encode() in where.encode() + value]
        # A worker counts bytes some seconds later, and the audit log names whom the operator erased.
        named = [where for where in found if not where.startswith(("tm:u:", "tm:{audit}"))]
        stored = b"".join(where.encode() + value for where, value in values(admin))
    assert named == []
    assert not [word for word in WORDS if word.encode() in stored]


def test_what_was_stored_before_the_encryption_is_told(bench: Bench) -> None:
    """Its copies are plain, and a certificate must not claim more than is true."""
    bench.client("mine").chat([user("Who are you?")], conversation="penguin", **STORED)
    client = bench.client("mine", environ={"TIDEMARK_ENCRYPTION_KEY": KEY})
    client.chat([user("And now?")], conversation="penguin", **STORED)
    bench.settle()
    copies = erase(client, owner_for("mine")).json()["backups_and_exports"]
    assert copies.endswith("the key is gone. 1 conversations have plain messages from before")


def test_an_erasure_whose_key_was_gone_already_does_not_say_that_nothing_was_sealed(
    bench: Bench, tmp_path: Path
) -> None:
    """An earlier run may have ended after the key and before the records; the same command goes on with it."""
    client = bench.client("mine", environ={"TIDEMARK_ENCRYPTION_KEY": KEY})
    client.chat([user("Who are you?")], conversation="penguin", **STORED)
    bench.settle()
    KeyRing(read_masters(KEY, "a test"), FolderKeys(tmp_path / "keys")).erase(owner_for("mine"))
    certificate = erase(client, owner_for("mine")).json()
    assert (certificate["key_ids"], certificate["erased"]["conversations"]) == ([], 1)
    assert certificate["backups_and_exports"].startswith("what was sealed cannot be read")


def test_without_the_master_key_no_sealed_tenant_is_erased(bench: Bench, tmp_path: Path) -> None:
    """Its key would stay wherever the servers have it, and copies could be read; so nothing is deleted."""
    sealed = bench.client("mine", environ={"TIDEMARK_ENCRYPTION_KEY": KEY, "TIDEMARK_KEYS_URL": "folder"})
    sealed.chat([user("Who are you?")], conversation="penguin", **STORED)
    bench.settle()
    plain = bench.client("mine", environ={"TIDEMARK_DATA_DIR": str(tmp_path / "elsewhere")})
    refused = erase(plain, owner_for("mine"))
    assert (refused.status_code, "TIDEMARK_ENCRYPTION_KEY" in refused.text) == (503, True)
    assert sealed.chat([user("And now?")], conversation="penguin", **STORED).status_code == 200
    assert len(bench.upstream.received[-1].json["messages"]) == 3


def test_only_the_operator_erases_and_only_what_is_named_whole(bench: Bench) -> None:
    """A beginning that several tenants share, or none, erases nothing."""
    client = bench.client("mine", environ={"TIDEMARK_ADMIN_TOKEN": "the operator's token"})
    client.chat([user("Who are you?")], conversation="penguin", **STORED)
    bench.settle()
    assert erase(client, owner_for("mine")).status_code == 401
    http: Any = client.http
    http.headers["authorization"] = "Bearer the operator's token"
    assert erase(client, "f" * 32).status_code == 400
    assert erase(client, owner_for("mine")[:4]).status_code == 200


@pytest.mark.parametrize("field", ["tenant", "erased_at", "key_ids", "erased", "public_key", "signature", "more"])
def test_a_changed_certificate_is_noticed(field: str) -> None:
    """Whatever of it was changed, added or signed by somebody else."""
    certificate = signed({"tenant": "ab", "erased_at": "now", "key_ids": [], "erased": {"keys": 3}}, b"a secret")
    assert is_whole(json.loads(json.dumps(certificate)))
    assert is_own(certificate, b"a secret")
    other = signed({"tenant": "cd", "erased_at": "then", "key_ids": ["a"], "erased": {}}, b"another secret")
    forged = {**certificate, field: other.get(field, "more")}
    assert not is_whole(forged)
    assert not is_own(other, b"a secret")


@pytest.mark.parametrize("text", [b"", b"[]", b"{}", b'{"public_key": 1, "signature": 2}', b"\xff", b"[" * 100_000])
def test_what_is_no_certificate_is_told(text: bytes) -> None:
    """A file may hold anything."""
    with pytest.raises(InvalidRequest, match="no certificate"):
        is_whole(read_certificate(text))
