"""Keyed digests: whoever has a copy of the store cannot tell by a digest whether a short text was said."""

from __future__ import annotations

import json
import shutil

import httpx
import pytest
import redis

from tests.e2e.test_command import CONFIG, KEY, WAIT_SECONDS, Machine, Tidemark, machine
from tests.request.talk import Said, user
from tidemark.core.conversation.digest import text_meaning
from tidemark.core.conversation.messages import digest_of
from tidemark.core.conversation.prefix import linked, seed_of
from tidemark.store import keys
from tidemark.store.embedded.server import EmbeddedValkey

__all__ = ["machine"]
pytestmark = pytest.mark.e2e

KEYED = CONFIG + "encryption: {{keyed_digests: true}}\n"
MASTER = {"TIDEMARK_ENCRYPTION_KEY": (b"m" * 32).hex()}
RULES = {"role": "system", "content": "rules"}
NAME = "plans"


def say(tidemark: Tidemark, said: list[Said], name: str = "") -> httpx.Response:
    """One turn of a client that may name its conversation."""
    headers = {"authorization": f"Bearer {KEY}"} | ({"x-tidemark-conversation": name} if name else {})
    body = {"model": "small", "messages": said}
    return httpx.post(f"{tidemark.url}/v1/chat/completions", json=body, headers=headers, timeout=WAIT_SECONDS)


def contents(admin: redis.Redis) -> bytes:
    """All that a copy of the store has."""
    found: list[object] = []
    for name in admin.scan_iter("*"):
        match admin.type(name):
            case b"hash":
                found += [name, *admin.hgetall(name).items()]
            case b"list":
                found += [name, *admin.lrange(name, 0, -1)]
            case b"set":
                found += [name, *admin.smembers(name)]
            case b"zset":
                found += [name, *admin.zrange(name, 0, -1)]
            case b"string":
                found += [name, admin.get(name)]
    pieces = [piece for one in found for piece in (one if isinstance(one, tuple) else (one,))]
    return b"\n".join(piece for piece in pieces if isinstance(piece, bytes))


def guessed(admin: redis.Redis) -> dict[str, bool]:
    """Which guesses a copy of the store confirms, of somebody who knows all but the secret."""
    everything, yes = contents(admin), text_meaning("user", "yes")
    assert yes is not None
    owners = [str(name, "ascii").rpartition(":")[2] for name in admin.scan_iter("tm:i:*")]
    stored = [admin.hget(name, "tenant") for name in admin.scan_iter("tm:{*}:c:*")]
    tenants = {value.decode() for value in stored if isinstance(value, bytes)}
    rules = digest_of(json.dumps(RULES, separators=(",", ":")).encode())
    assert owners
    assert tenants
    guesses = {
        "first message": [linked(seed_of(tenant, None), [yes])[0] for tenant in tenants],
        "system message": [rules, digest_of(json.dumps(RULES).encode())],
        "name": [bytes.fromhex(keys.name(owner, NAME).rpartition(":")[2]) for owner in owners],
    }
    return {
        what: any(digest in everything or digest.hex().encode() in everything for digest in digests)
        for what, digests in guesses.items()
    }


@pytest.mark.parametrize("config", [CONFIG, KEYED], ids=["plain", "keyed"])
def test_a_guess_is_confirmed_by_plain_digests_only(machine: Machine, config: str) -> None:
    """Of a first message, a system message and a name. Conversations are recognized in both, after a restart too."""
    path = str(machine.config(config))
    said = [RULES, user("yes")]
    told = []
    for _ in range(2):
        tidemark = machine.serve("--config", path, environ=MASTER)
        reply = say(tidemark, said)
        assert reply.status_code == 200
        told.append(reply.headers["x-tidemark-conversation"])
        assert say(tidemark, [user("hello")], NAME).status_code == 200
        said += [reply.json()["choices"][0]["message"], user("go on")]
        assert tidemark.end() == 0
    assert told[0] == told[1]
    with EmbeddedValkey(machine.folder / "data" / "store") as store, redis.Redis.from_url(store.url) as admin:
        assert set(guessed(admin).values()) == {config == CONFIG}


def test_a_store_that_was_begun_otherwise_is_left_alone(machine: Machine) -> None:
    """Requests go on, nothing is written, and it is said what to set; also for another secret, and for an import."""
    plain, keyed = machine.config(), machine.folder / "keyed.yaml"
    begun = machine.serve("--config", str(plain), environ=MASTER)
    assert say(begun, [user("yes")]).status_code == 200
    assert begun.end() == 0
    exported = machine.folder / "store.zst"
    assert machine.run("store", "export", str(exported), "--config", str(plain), stdin=b"", **MASTER).returncode == 0
    keyed.write_text(KEYED.format(base=machine.upstream_url))
    other = machine.serve("--config", str(keyed), environ=MASTER)
    reply = say(other, [user("no")])
    assert (reply.status_code, reply.headers["x-tidemark-action"]) == (200, "none")
    assert "was begun with other digests" in other.text
    assert "digests" in other.get("/health/readiness").text
    assert other.end() == 0
    found = machine.run("doctor", "--config", str(keyed), stdin=b"", **MASTER)
    assert b"begun with other digests" in found.stdout
    new = {**MASTER, "TIDEMARK_DATA_DIR": str(machine.folder / "new")}
    begun = machine.serve("--config", str(keyed), environ=new)
    assert say(begun, [user("yes")]).status_code == 200
    assert begun.end() == 0
    kept = machine.folder / "keyed.zst"
    assert machine.run("store", "export", str(kept), "--config", str(keyed), stdin=b"", **new).returncode == 0
    shutil.copytree(machine.folder / "new", machine.folder / "restored", ignore=shutil.ignore_patterns("store"))
    restored = {**MASTER, "TIDEMARK_DATA_DIR": str(machine.folder / "restored")}
    done = machine.run("store", "import", str(kept), "--config", str(keyed), stdin=b"", **restored)
    assert done.returncode == 0, done.stderr
    begun = machine.serve("--config", str(keyed), environ=restored)
    assert "digests" not in begun.get("/health/readiness").text
    assert begun.end() == 0
    refused = machine.run("store", "import", str(exported), "--config", str(keyed), stdin=b"", **new)
    assert (refused.returncode, b"has other digests than this store" in refused.stderr) == (1, True)
    assert machine.run("store", "check", "--config", str(keyed), stdin=b"", **new).returncode == 0
