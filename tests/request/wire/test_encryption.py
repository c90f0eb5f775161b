"""A server with a master key: what it stores is sealed, and a key that is lost stops its own tenant only (ADR 0041)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.request.conftest import WINDOW, Bench, Client
from tests.request.talk import assistant, long, system, user
from tests.support.waiting import wait_until
from tidemark.config import load
from tidemark.core.errors import ConfigError
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.worker.encryption import cipher_of, warn_of_lost_keys
from tidemark.worker.worker import Worker

KEYS = {name: name * 32 for name in ("ab", "cd")}
STORED = {"conversation": "penguin", "history": "stored"}
REQUIRED = f"{WINDOW}encryption: {{{{required: true}}}}"


@pytest.fixture
def admin(store_url: str) -> Iterator[Any]:
    """A look behind the store's scenes."""
    with redis.Redis.from_url(store_url) as made:
        yield made


def environ(*names: str) -> Mapping[str, str]:
    """An environment with these master keys; the store of the tests is a server that one Tidemark uses."""
    return {"TIDEMARK_ENCRYPTION_KEY": ",".join(KEYS[name] for name in names), "TIDEMARK_KEYS_URL": "folder"}


def stored_at(name: bytes, admin: Any) -> object:
    """What a key holds; a hash by its fields, since a server that reads one may order its dump anew."""
    return admin.hgetall(name) if admin.type(name) == b"hash" else admin.dump(name)


def family(got: Any, admin: Any) -> Mapping[bytes, object]:
    """Everything that is stored of an answer's conversation."""
    tag = got.headers["x-tidemark-conversation"][:32]
    names = [name for name in admin.scan_iter(f"tm:{{{tag}}}:*") if not name.endswith(b":f")]  # leases are counted
    return {name: stored_at(name, admin) for name in names}


def test_a_lost_master_key_stops_its_tenant_and_nobody_else(
    bench: Bench, request: pytest.FixtureRequest, admin: Any
) -> None:
    """Stored history is refused with the mend, a request with all messages goes on, and nothing is overwritten."""
    name = request.node.nodeid
    before = bench.client(f"{name} old", environ=environ("ab"))
    kept = before.chat([user("Who are you?")], **STORED)
    assert kept.status_code == 200
    bench.settle()
    stored = family(kept, admin)
    client = bench.client(f"{name} old", environ=environ("cd"))
    refused = client.chat([user("And now?")], **STORED)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "encryption_key_lost")
    assert "TIDEMARK_ENCRYPTION_KEY" in refused.json()["error"]["message"]
    whole = client.chat([user("Who are you?"), assistant("A tide."), user("And now?")])
    assert whole.status_code == 200
    other = Client(client.http, f"{name} new").chat([user("Hello.")], **STORED)
    assert other.status_code == 200
    bench.settle()
    assert {name: stored_at(name, admin) for name in stored} == stored
    both = bench.client(f"{name} old", environ=environ("cd", "ab"))
    assert both.chat([user("And now?")], **STORED).status_code == 200


def test_a_compacted_conversation_whose_key_is_lost_goes_on_without_the_store(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """Its summary cannot be read, so it is made again for this request alone."""
    messages = [system("Speak as the walrus.")]
    client = bench.client(request.node.nodeid, environ=environ("ab"))
    actions = []
    for turn in range(14):
        messages += [user(long(turn, 150))]
        got = client.chat(messages)
        actions.append(got.headers["x-tidemark-action"])
        messages += [assistant(got.json()["choices"][0]["message"]["content"])]
    assert "compacted" in actions
    bench.settle()
    lost = bench.client(request.node.nodeid, environ=environ("cd")).chat([*messages, user("And now?")])
    assert lost.status_code == 200
    assert lost.headers["x-tidemark-action"] in ("compacted", "bypassed")
    assert lost.headers["x-tidemark-store"] == "degraded"


def test_what_was_stored_before_the_key_is_read_unless_it_must_be_sealed(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """So a key can be given to a store that is in use; then everything is sealed, and then it may be required."""
    name = request.node.nodeid
    bench.client(name).chat([user("Who are you?")], **STORED)
    sealed = bench.client(name, environ=environ("ab"))
    assert sealed.chat([user("And now?")], **STORED).status_code == 200
    assert len(bench.upstream.received[-1].json["messages"]) == 3
    required = bench.client(name, environ=environ("ab"), config=REQUIRED)
    required.chat([user("And then?")], **STORED)
    assert b"Who are you?" not in bench.upstream.received[-1].body


def refusal(folder: Path, more: str = "", **variables: str) -> str:
    """Why a configuration cannot be started with."""
    path = folder / "tidemark.yaml"
    path.write_text(more)
    with pytest.raises(ConfigError) as refused:
        cipher_of(load(path, {"TIDEMARK_DATA_DIR": str(folder), **variables}), lambda _: None)
    return str(refused.value)


def test_an_encrypted_store_is_not_opened_without_its_key(tmp_path: Path) -> None:
    """A server that starts so would store plain text beside the sealed one, and lose what it cannot read."""
    key = {"TIDEMARK_DATA_DIR": str(tmp_path), "TIDEMARK_ENCRYPTION_KEY": KEYS["ab"]}
    cipher = cipher_of(load(None, key), lambda _: None)
    assert cipher is not None
    cipher.seal(b"text", "ab" * 16, ())
    assert "Set TIDEMARK_ENCRYPTION_KEY" in refusal(tmp_path)


def test_keys_lie_apart_from_the_store(tmp_path: Path) -> None:
    """A backup that holds wrapped keys would be read by the master key after an erasure."""
    key, store = {"TIDEMARK_ENCRYPTION_KEY": KEYS["ab"]}, {"TIDEMARK_STORE_URL": "redis://store.test:6379/0"}
    assert "encryption.keys_url" in refusal(tmp_path, **key, **store)
    for url in ("redis://store.test:6379/1", "redis://:secret@store.test:6379"):
        assert "names the store itself" in refusal(tmp_path, **key, **store, TIDEMARK_KEYS_URL=url)
    assert "Set TIDEMARK_ENCRYPTION_KEY" in refusal(tmp_path, **store, TIDEMARK_KEYS_URL="redis://keys.test")


def test_a_key_that_cannot_be_used_is_refused_at_the_start(tmp_path: Path) -> None:
    """Of each source, with what to do and without the key."""
    assert "openssl rand -hex 32" in refusal(tmp_path, TIDEMARK_ENCRYPTION_KEY="hush")
    assert "cannot be read" in refusal(tmp_path, TIDEMARK_ENCRYPTION_KEY_FILE=str(tmp_path / "gone"))
    assert "key_command" in refusal(tmp_path, 'encryption: {key_command: ["false"]}')
    assert "both set" in refusal(tmp_path, TIDEMARK_ENCRYPTION_KEY="a", TIDEMARK_ENCRYPTION_KEY_FILE="b")


def test_a_key_file_that_others_can_read_is_warned_of(tmp_path: Path) -> None:
    """With the command that mends it."""
    told: list[str] = []
    path = tmp_path / "master"
    path.write_text(KEYS["ab"])
    path.chmod(0o644)
    settings = load(None, {"TIDEMARK_DATA_DIR": str(tmp_path), "TIDEMARK_ENCRYPTION_KEY_FILE": str(path)})
    assert cipher_of(settings, told.append) is not None
    assert told == [f"{path} can be read by every user of this machine; chmod 600 {path}"]


def test_every_process_forgets_an_erased_key(tmp_path: Path) -> None:
    """A long command, such as ``tidemark flush work``, has no application that begins with it."""
    settings = load(None, {"TIDEMARK_DATA_DIR": str(tmp_path), "TIDEMARK_ENCRYPTION_KEY": KEYS["ab"]})
    owner, other = "ab" * 16, cipher_of(settings, print)
    worker = Worker(settings, print)
    worker.codec.seal(b"text", owner, "a place")
    keys = worker.tenant_keys
    assert keys is not None
    assert other is not None
    try:
        assert owner in keys.by_owner
        other.keys.erase(owner)
        wait_until(lambda: owner not in keys.by_owner, 5)
    finally:
        keys.stop()


def test_another_master_key_is_warned_of_at_the_start(tmp_path: Path) -> None:
    """A server with the wrong key would otherwise only say later, request by request, that it stores nothing."""
    told: dict[str, list[str]] = {"ab": [], "cd": [], "cd,ab": []}
    for name, warnings in told.items():
        key = ",".join(KEYS[one] for one in name.split(","))
        cipher = cipher_of(load(None, {"TIDEMARK_DATA_DIR": str(tmp_path), "TIDEMARK_ENCRYPTION_KEY": key}), print)
        assert cipher is not None
        warn_of_lost_keys(cipher, warnings.append)
        cipher.prepare(name * 16)
    assert [len(warnings) for warnings in told.values()] == [0, 1, 0]
    assert "does not unwrap the keys of 1 of" in told["cd"][0]
    assert "TIDEMARK_ENCRYPTION_KEY" in told["cd"][0]


def test_a_command_gives_the_key_and_a_server_keeps_the_tenants_keys(bench: Bench, tmp_path: Path) -> None:
    """As with a vault, and replicas."""
    with EmbeddedValkey(tmp_path / "keys-of-tenants") as keys:
        config = f'{WINDOW}encryption: {{{{key_command: [printf, "{KEYS["ab"]}"]}}}}'
        client = bench.client("a vault", config=config, environ={"TIDEMARK_KEYS_URL": keys.url})
        assert client.chat([user("Hello.")], **STORED).status_code == 200
        assert client.chat([user("And now?")], **STORED).status_code == 200
        bench.settle()
        with redis.Redis.from_url(keys.url) as held:
            assert [*held.scan_iter("tidemark-keys:*")]
    assert not (tmp_path / "keys").exists()
