"""The store has one codec: where that has a cipher, no client's text stands in the store (issue 12, item 4)."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.features.memory_flush.test_memory_flush import CONFIG, daily_lines
from tests.request.conftest import Bench, benched
from tests.request.talk import Said, assistant, system, user
from tests.support.scripted import says
from tests.support.sealing import TAG, XorCipher, key_ring
from tests.support.waiting import wait_until
from tidemark.delivery.daily_lines import opened_line
from tidemark.store.codec import Codec
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.store.encryption.cipher import TenantCipher
from tidemark.store.encryption.keyring import MARK

STORED = {"history": "stored"}
TEXTS = {
    "user": "zebra",
    "system message": "walrus",
    "reply": "ostrich",
    "conversation name": "penguin",
    "model in a conversation's record": "small",
    "setting of a model": "0.6543",
}
"""What clients, the upstream and the operator write, each with a word that stands nowhere else."""

SEALED_WHOLE = re.compile(r"tm:\{models\}:[ork]|tm:k:|tm:\{(?!traffic\})[^}]*\}:[my]:|.*b'(body|reason)'$", re.DOTALL)
"""Where a value is nothing but what the cipher returned."""

BILL = re.compile(r"tm:\{[0-9a-f]{32}\}:p:")
"""Sums of what a conversation cost; they name the last model, as fields of hashes do."""


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A server of the test's own: everything in it is read."""
    with EmbeddedValkey(tmp_path / "store") as server:
        yield server


@pytest.fixture
def bench(valkey: EmbeddedValkey, tmp_path: Path) -> Iterator[Bench]:
    """A bench before that server."""
    with benched(valkey.url, tmp_path) as made:
        yield made


def values(admin: redis.Redis) -> Iterator[tuple[str, bytes]]:
    """Every value of the store with its place; compressed ones and base64 also as they were before."""
    for key in admin.scan_iter("*"):
        place, kind = key.decode(errors="replace"), admin.type(key)
        stored: dict[str, Any] = {}
        if kind == b"string":
            stored[place] = admin.get(key)
        elif kind == b"hash":
            stored = {f"{place} {field!r}": value for field, value in admin.hgetall(key).items()}
        elif kind == b"list":
            stored = {f"{place} {i}": value for i, value in enumerate(admin.lrange(key, 0, -1))}
        elif kind == b"set":
            stored = {f"{place} {i}": value for i, value in enumerate(admin.smembers(key))}
        elif kind == b"stream":
            entries: Any = admin.xrange(key)
            stored = {f"{place} {id_} {field!r}": value for id_, of in entries for field, value in of.items()}
        else:
            assert kind == b"zset"  # its members are ids and names of models, as keys are
        for where, value in stored.items():
            yield where, value
            with contextlib.suppress(zlib.error):
                yield where, zlib.decompress(value)
            with contextlib.suppress(ValueError):
                yield where, base64.b64decode(value, validate=True)


def found_texts(admin: redis.Redis) -> set[str]:
    """Which of the texts can be read in the store."""
    stored = [value for where, value in values(admin) if not BILL.match(where)]
    return {name for name, word in TEXTS.items() if any(word.encode() in value for value in stored)}


def converse(bench: Bench, codec: Codec, tmp_path: Path) -> None:
    """Run a talk of stored history until it was compacted and flushed, and read back all of it in other processes."""
    client = bench.client("the key", config=CONFIG, codec=codec)
    sent: list[Said] = []
    actions: list[str] = []
    for turn in range(24):
        question = user(f"Question {turn} of the zebra: " + " ".join(f"zebra{turn}x{i}" for i in range(30)))
        answer = assistant(f"Answer {turn}: " + " ".join(f"ostrich{turn}x{i}" for i in range(30)))
        bench.upstream.script = says(answer["content"])
        got = client.chat([system("Speak as the walrus."), question], conversation="penguin", **STORED)
        assert got.status_code == 200, got.text
        actions.append(got.headers["x-tidemark-action"])
        sent += [question, answer]
    assert {"compacted", "reused"} <= set(actions)
    wait_until(lambda: len(daily_lines(tmp_path)) >= actions.count("compacted"))

    setting = client.http.put("/tidemark/models/openai:scripted", json={"threshold": 0.6543})
    assert setting.status_code == 200, setting.text
    reader = bench.client("the key", config=CONFIG, codec=codec)
    record = reader.http.get("/tidemark/conversations/penguin", headers=reader.headers()).json()
    assert record["name"] == "penguin"
    assert record["model"] == "small"
    exported = reader.http.get("/tidemark/conversations/penguin/export", headers=reader.headers()).text
    lines = [json.loads(line) for line in exported.splitlines()]
    assert lines[0] == system("Speak as the walrus.")
    assert [{name: line[name] for name in ("role", "content")} for line in lines[1:]] == sent
    searched = reader.http.get("/tidemark/conversations/penguin/search?q=ostrich3x7", headers=reader.headers())
    assert "ostrich3x7" in searched.text
    by_hand = reader.http.post(
        f"/tidemark/conversations/{record['id']}/summarize", json={"retention_tokens": 100}, headers=reader.headers()
    )
    assert by_hand.status_code == 200, by_hand.text
    goes_on = reader.chat([user("And now, zebra?")], conversation="penguin", **STORED)
    assert goes_on.headers["x-tidemark-action"] == "reused"
    shown = reader.http.get("/tidemark/models/openai:scripted").json()
    assert shown["overrides"]["threshold"] == 0.6543
    lines = [json.loads(opened_line(codec, json.dumps(line).encode())) for line in daily_lines(tmp_path)]
    flushed = [message for line in lines for message in line["messages"]]
    assert flushed
    assert [{name: message[name] for name in ("role", "content")} for message in flushed] == sent[: len(flushed)]


def plain_bytes(folder: Path) -> set[str]:
    """Which of the texts stand in a file of a folder as they are, in base64 or in hex."""
    written = b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())
    forms = {
        name: (word.encode(), base64.b64encode(word.encode())[:6], word.encode().hex().encode())
        for name, word in TEXTS.items()
    }
    return {name for name, of in forms.items() if any(form in written for form in of)}


@pytest.mark.parametrize("kind", ["tag", "keys"])
def test_a_cipher_in_the_codec_hides_every_text_from_a_reader_of_the_store(
    bench: Bench, valkey: EmbeddedValkey, tmp_path: Path, kind: str
) -> None:
    """Every path of a stored text leads through the codec: writing, reading back, compaction, flush, registry."""
    cipher = TenantCipher(key_ring(tmp_path / "apart")) if kind == "keys" else XorCipher()
    converse(bench, Codec(cipher), tmp_path)
    with redis.Redis.from_url(valkey.url) as admin:
        assert found_texts(admin) == set()
        for where, value in values(admin):
            if SEALED_WHOLE.match(where):
                assert value.startswith((TAG, MARK)), where
    assert plain_bytes(tmp_path / "flush") == set()
    assert plain_bytes(tmp_path / "store") - {"model in a conversation's record"} == set()


def test_without_a_cipher_the_same_texts_are_found(bench: Bench, valkey: EmbeddedValkey, tmp_path: Path) -> None:
    """So the search above finds what it looks for."""
    converse(bench, Codec(), tmp_path)
    with redis.Redis.from_url(valkey.url) as admin:
        assert found_texts(admin) == set(TEXTS)
