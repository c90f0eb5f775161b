"""The command ``tidemark tenants`` as operators run it, without a server."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.features.upkeep.stored import fill
from tests.support.sealing import key_ring
from tidemark.store.codec import Codec
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.store.encryption.cipher import TenantCipher

pytestmark = pytest.mark.e2e
KINDS = {
    "conversation",
    "message",
    "turn",
    "summary",
    "system_message",
    "openai_conversation",
    "calibration",
    "stored_bytes",
}
NEEDS_YES = "tidemark: without a terminal this needs --yes, which asks for no confirmation.\n"
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def owner(tmp_path: Path) -> str:
    """A tenant with records of every kind in an embedded store that does not run."""
    ring = key_ring(tmp_path / "data" / "keys")
    with EmbeddedValkey(tmp_path / "data" / "store") as server:
        asyncio.run(fill(server.url, codec=Codec(TenantCipher(ring))))
    return max(ring.owners().values(), key=lambda name: (len(name) == 32, name))


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs the command on that store."""

    def tidemark(*words: str, group: str = "tenants") -> subprocess.CompletedProcess[str]:
        environ = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        environ |= {"HOME": str(tmp_path), "TIDEMARK_DATA_DIR": str(tmp_path / "data")}
        environ["TIDEMARK_ENCRYPTION_KEY"] = (b"m" * 32).hex()
        command = [sys.executable, "-m", "tidemark", group, *words]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)

    return tidemark


def test_a_tenant_is_erased_without_a_server_and_its_certificate_is_checked(
    run: Run, owner: str, tmp_path: Path
) -> None:
    """A changed certificate, and one that names nobody's key, are told."""
    assert run("forget", "f" * 31 + "x", "--yes").returncode == 1
    assert run("forget", owner, "--json").returncode == 2
    unasked = run("forget", owner)
    assert (unasked.returncode, unasked.stderr) == (2, NEEDS_YES)
    done = run("forget", owner, "--yes", "--json")
    assert done.returncode == 0, done.stderr
    certificate = json.loads(done.stdout)
    assert (certificate["tenant"], len(certificate["key_ids"])) == (owner, 1)
    assert certificate["erased"]["conversations"] >= 3
    path = tmp_path / "certificate.json"
    path.write_text(done.stdout)
    assert run("verify", str(path)).returncode == 0
    path.write_text(done.stdout.replace(owner, "f" * 32))
    changed = run("verify", str(path), "--json")
    assert (changed.returncode, json.loads(changed.stdout)["unchanged"]) == (1, False)
    path.write_text("no certificate")
    assert run("verify", str(path)).returncode == 1
    assert run("verify", str(tmp_path / "nothing")).returncode == 2
    assert run("check", group="store").returncode == 0
    logged = [json.loads(line) for line in run("export", group="audit").stdout.splitlines()]
    (forgotten,) = [entry for entry in logged if entry["action"] == "tenant.forget"]
    assert (forgotten["subject"], forgotten["actor"].startswith("command of ")) == (owner, True)


def test_a_tenant_is_exported_without_a_server(run: Run, owner: str, tmp_path: Path) -> None:
    """Records of every kind are read; a tenant that there is not leaves no file."""
    path = tmp_path / "taken.jsonl"
    assert run("export", "f" * 31 + "x", str(path)).returncode == 1
    assert not path.exists()
    done = run("export", owner, str(path), "--json")
    assert done.returncode == 0, done.stderr
    objects = [json.loads(line) for line in path.read_text().splitlines()]
    assert json.loads(done.stdout)["objects"] == len(objects) - 2 == objects[-1]["objects"]
    assert [one for one in objects if "unreadable" in one] == []
    assert {one["type"] for one in objects} >= KINDS
    page = tmp_path / "taken.html"
    assert run("export", owner, str(page), "--html").returncode == 0
    assert page.read_text().count("<article>") == sum("message" in one or "text" in one for one in objects)
    assert path.stat().st_mode & 0o777 == 0o600
    assert run("export", owner, str(tmp_path / "nowhere" / "file")).returncode == 2
    logged = tmp_path / "audit.jsonl"
    assert run("export", "--jsonl", str(logged), group="audit").returncode == 0
    assert '"tenant.export"' in logged.read_text()
