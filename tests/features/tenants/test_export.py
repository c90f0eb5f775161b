"""All that is kept of a tenant can be taken out: what an erasure deletes is in the export (GDPR Art. 15, 20)."""

from __future__ import annotations

import asyncio
import json
import re
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tests.console.conftest import consoled
from tests.features.memory_flush.test_memory_flush import CONFIG
from tests.features.tenants.test_erasure import KEY, OTHERS, STORED, WORDS, erase, owner_for, talk
from tests.request.conftest import Bench, Client, benched
from tests.request.talk import user
from tests.support.scripted import says
from tests.support.waiting import wait_until
from tidemark.core.errors import StoreUnavailable
from tidemark.features.tenants.export import ExportParts, TenantExport, write_export
from tidemark.features.tenants.export_page import fragment
from tidemark.features.tenants.export_values import NOT_EXPORTED, READERS
from tidemark.features.upkeep.rules import RULES
from tidemark.store.codec import Codec
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.store.places import FAMILY, KeyPlace, place_of
from tidemark.store.whole_store import WholeStore

SHARED = {
    "": {"i", "d", "n", "o", "cv", "ci", "own", "accounts", "u", "uw", "k", "w"},
    "flush": {"s", "d", "o"},
    "limits": {"r", "c", "t"},
    "events": {"r", "s"},
    "requests": {"s"},
    "traffic": {"m", "q", "h", "n"},
    "aside": {""},
}
"""The kinds of keys outside of families of which an erasure deletes something (``traces.py``)."""
QUOTA = "limits: {{per_tenant: {{tokens_per_day: 1000000, requests_per_minute: 1000}}}}\n"


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A server of the test's own: all of it is compared."""
    with EmbeddedValkey(tmp_path / "store") as server:
        yield server


@pytest.fixture
def bench(valkey: EmbeddedValkey, tmp_path: Path) -> Iterator[Bench]:
    """A bench before that server."""
    with benched(valkey.url, tmp_path) as made:
        yield made


def export(client: Client, owner: str, form: str = "jsonl") -> httpx.Response:
    """Ask for it as the operator on this machine."""
    return client.http.get(f"/tidemark/tenants/{owner}/export", params={"format": form}, timeout=60)


def lines_of(answer: httpx.Response) -> list[dict[str, Any]]:
    """The objects of an export that is complete."""
    assert answer.status_code == 200, answer.text
    objects = [json.loads(line) for line in answer.text.splitlines()]
    assert objects[0]["type"] == "export"
    assert objects[-1] == {"type": "end", "objects": len(objects) - 2}
    return objects


def kind_of(where: str) -> KeyPlace:
    """What a value's place in a store is for."""
    place = place_of(where.encode("latin-1", "replace"))
    assert place is not None, where
    return place


@pytest.mark.parametrize("environ", [{}, {"TIDEMARK_ENCRYPTION_KEY": KEY}])
def test_what_an_erasure_deletes_is_in_the_export(
    bench: Bench, valkey: EmbeddedValkey, tmp_path: Path, environ: dict[str, str]
) -> None:
    """Sealed or not, apart from the kinds that are left out for a reason; nothing of another tenant is in it."""
    client = bench.client("mine", config=CONFIG + QUOTA, environ=environ)
    talk(bench, client, WORDS)
    talk(bench, Client(client.http, "theirs"), OTHERS)
    wait_until(lambda: len(list((tmp_path / "flush").glob("*/*.jsonl"))) >= 2)
    wait_until(lambda: '"type": "response"' in export(client, owner_for("mine")).text)
    wait_until(lambda: '"type": "requests"' in export(client, owner_for("mine")).text)
    wait_until(lambda: '"type": "figures"' in export(client, owner_for("mine")).text)
    objects = lines_of(export(client, owner_for("mine")[:8]))
    text = json.dumps(objects)
    assert all(word in text for word in WORDS)
    assert '"sender": "chat python-httpx/' in text
    assert not [word for word in OTHERS if word in text]
    assert owner_for("theirs") not in text

    kinds = {one["type"] for one in objects}
    messages = [one for one in objects if one["type"] == "message" and "zebra" in json.dumps(one)]
    assert [one["position"] for one in messages if "15x1" in json.dumps(one)] == [31]
    with redis.Redis.from_url(valkey.url) as admin:
        before = {name.decode("latin-1") for name in admin.scan_iter(count=1000)}
    assert erase(client, owner_for("mine")).status_code == 200
    with redis.Redis.from_url(valkey.url) as admin:
        gone = before - {name.decode("latin-1") for name in admin.scan_iter(count=1000)}
    deleted = {(kind_of(name).area, kind_of(name).kind) for name in gone} - NOT_EXPORTED.keys()
    assert len(deleted) >= 8
    assert {READERS[kind].type for kind in deleted} <= kinds
    assert {
        "daily_file",
        "queued_flush",
        "summary",
        "turn",
        "system_message",
        "response",
        "requests",
        "figures",
    } <= kinds
    assert ("limits", "t") in deleted  # an erasure left the counts of quotas in the store


def test_every_kind_that_may_be_a_tenants_is_exported_or_left_out_for_a_reason() -> None:
    """A new record must be named in one of the two lists, and in no more than one."""
    own = {(FAMILY, kind) for kind in RULES[FAMILY]} | {
        (area, kind) for area, kinds in SHARED.items() for kind in kinds
    }
    assert own == READERS.keys() | NOT_EXPORTED.keys()
    assert not READERS.keys() & NOT_EXPORTED.keys()
    assert all(NOT_EXPORTED.values())


def test_the_page_runs_nothing_and_shows_texts_as_texts(bench: Bench) -> None:
    """Whatever a message or a name holds, in whatever form."""
    client = bench.client("mine")
    bench.upstream.script = says("<script>alert(1)</script> & <b>bold</b>")
    parts = [{"type": "text", "text": "</pre><img src=x onerror=alert(2)>"}]
    client.chat([{"role": "user", "content": parts}], conversation='"><script>x</script>', **STORED)
    bench.settle()
    page = export(client, owner_for("mine"), "html")
    assert page.headers["content-type"].startswith("text/html")
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; &lt;b&gt;bold" in page.text
    assert "&lt;/pre&gt;&lt;img src=x onerror=alert(2)&gt;" in page.text
    assert not re.search(r"<(script|img|link|iframe|b)\b|https?://", page.text)
    assert page.text.rstrip().endswith("it is complete.</p></body></html>")


@pytest.mark.parametrize(
    "fields",
    [
        {"type": "message", "message": "half a pair \ud800", "created_at": 1e300},
        {"type": "message", "message": {"content": [None, 1, {"text": 3}], "tool_calls": [{"a": "<"}]}},
        {"type": "summary", "unreadable": "<why>"},
        {"type": "<other>", "value": [1]},
    ],
)
def test_any_object_becomes_a_fragment(fields: dict[str, Any]) -> None:
    """What other versions stored, or clients sent, hides nothing else."""
    written = fragment(fields)
    assert not re.search(r"<(?!/?(article|h3|pre|details|summary)>)", written)


class Pages:
    """An export of a store that somebody reads slowly."""

    def __init__(self, whole: WholeStore, folder: Path) -> None:
        parts = ExportParts(
            store=whole, codec=Codec(), flush_folder=folder / "flush", fingerprint_of=lambda name: name.encode()
        )
        self.work = TenantExport(parts, owner_for("mine"))

    async def peak(self) -> tuple[int, int, int]:
        """The longest page, all bytes, and the most memory that was in use at once."""
        longest = size = 0
        tracemalloc.start()
        try:
            async for page in self.work.write("jsonl"):
                longest, size = max(longest, len(page)), size + len(page)
            return longest, size, tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()


def test_memory_does_not_grow_with_the_tenant(bench: Bench, valkey: EmbeddedValkey, tmp_path: Path) -> None:
    """A page is written before the next one is read, however long a conversation is."""
    client = bench.client("mine", window=1_000_000)

    def grown(messages: int) -> tuple[int, int, int]:
        said = [user(f"{place}: " + "zebra " * 500) for place in range(messages)]
        assert client.chat(said).status_code == 200
        bench.settle()

        async def run() -> tuple[int, int, int]:
            whole = WholeStore(valkey.url)
            try:
                return await Pages(whole, tmp_path).peak()
            finally:
                await whole.aclose()

        return asyncio.run(run())

    small, large = grown(100), grown(2000)
    assert large[1] > 10 * small[1]
    assert large[0] < 1.2 * small[0]
    assert large[2] < 2 * small[2]


def test_an_interrupted_export_leaves_the_file_of_before(
    bench: Bench, valkey: EmbeddedValkey, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is incomplete never looks complete, and nobody else may read it."""
    client = bench.client("mine")
    client.chat([user("A zebra?")])
    bench.settle()
    path = tmp_path / "export.jsonl"

    async def run() -> None:
        whole = WholeStore(valkey.url)
        try:
            await write_export(Pages(whole, tmp_path).work, "jsonl", path)
        finally:
            await whole.aclose()

    asyncio.run(run())
    before = path.read_bytes()
    assert path.stat().st_mode & 0o777 == 0o600
    assert b"zebra" in before

    async def away(*_: object) -> None:
        raise StoreUnavailable("The store does not answer.")

    monkeypatch.setattr(WholeStore, "call", away)
    with pytest.raises(StoreUnavailable):
        asyncio.run(run())
    assert path.read_bytes() == before
    part = path.with_name("export.jsonl.part")
    assert part.stat().st_mode & 0o777 == 0o600
    assert b'"end"' not in part.read_bytes()


def test_only_the_operator_exports_a_tenant_and_only_in_a_known_form(bench: Bench) -> None:
    """The audit log names it."""
    client = bench.client("mine", environ={"TIDEMARK_ADMIN_TOKEN": "the operator's token"})
    client.chat([user("Who are you?")], conversation="penguin", **STORED)
    bench.settle()
    assert export(client, owner_for("mine")).status_code == 401
    client.http.headers["authorization"] = "Bearer the operator's token"
    assert export(client, owner_for("mine"), "pdf").status_code == 400
    assert export(client, "f" * 32).status_code == 400
    assert "penguin" in export(client, owner_for("mine")).text
    logged = client.http.get("/tidemark/audit").json()["data"]
    assert "tenant.export" in {entry["action"] for entry in logged}


def test_a_tenant_takes_out_and_erases_what_is_its_own(tmp_path: Path) -> None:
    """After it has signed in with its key; an operator has no such page, and the other tenant keeps all."""
    with consoled(tmp_path) as console:
        for key, words in (("key-of-ours", "marmalade"), ("key-of-theirs", "quicksilver")):
            console.client(key).chat([user(f"Remember {words}.")])
        console.settle()
        assert console.visitor().get("/console/own/export").status_code == 403
        visitor = console.visitor(signed_in=False)
        assert visitor.http.post("/console/login", data={"token": "key-of-ours"}).status_code == 303
        assert "/console/own/export" in visitor.get("/console").text
        for form in ("html", "jsonl"):
            taken = visitor.get(f"/console/own/export?format={form}").text
            assert "marmalade" in taken
            assert "quicksilver" not in taken
        done = visitor.send("/console/own/erase", "/console/own/erase")
        assert "&#34;signature&#34;" in done.text
        assert "marmalade" not in visitor.get("/console/own/export").text
        other = console.visitor(signed_in=False)
        assert other.http.post("/console/login", data={"token": "key-of-theirs"}).status_code == 303
        assert "quicksilver" in other.get("/console/own/export").text
