"""Each fault of a store is a finding that names its mend, found on a real server."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.support import faulty_stores as faulty
from tests.support.clusters import running_cluster
from tests.support.faulty_stores import FaultyStore
from tidemark.doctor import stores
from tidemark.doctor.examination import examine
from tidemark.doctor.findings import Finding


def store_findings(url: str, folder: Path, **environ: str) -> list[Finding]:
    """What is found out about a store."""
    variables = {"HOME": str(folder), "TIDEMARK_DATA_DIR": str(folder / "data"), "TIDEMARK_STORE_URL": url, **environ}
    findings = asyncio.run(examine(None, variables, lambda _: None, offline=True))
    return [finding for finding in findings if finding.check == "store"]


@pytest.mark.parametrize(
    ("fault", "words", "mend"),
    [
        (faulty.wrong_password, "does not accept the login", "user and password in store.url"),
        (faulty.no_password, "does not accept the login", "user and password in store.url"),
        (faulty.replica, "it is a read-only replica", "Name the primary"),
        (faulty.full, "it is full", "maxmemory"),
        (faulty.of_newer_schema, "newer version", "Install the version"),
        (faulty.without_rights, "not all rights", "docs/operations.md"),
        (faulty.with_uncovered_slot, "1 of 16,384 have no server, as 12345", "--cluster fix"),
        (faulty.of_another_name, "for another name", "Name the server in store.url as its certificate does"),
        (faulty.of_unknown_authority, "cannot be verified", "ssl_ca_certs"),
        (faulty.evicting, "may evict conversations (volatile-lru)", "noeviction"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_fault_is_an_error_that_names_its_mend(tmp_path: Path, fault: FaultyStore, words: str, mend: str) -> None:
    """And no finding has the password."""
    with fault(tmp_path / "store") as url:
        findings = store_findings(url, tmp_path)
    errors = [finding for finding in findings if finding.status == "error"]
    assert any(words in error.detail and mend in error.mend for error in errors), findings
    assert all(
        secret not in finding.detail + finding.mend
        for finding in findings
        for secret in ("wrong-0815", faulty.PASSWORD)
    )


def test_a_store_behind_tls_without_a_fault_has_none(tmp_path: Path) -> None:
    """By the CA that its address names."""
    with faulty.over_tls(tmp_path / "store") as url:
        assert {finding.status for finding in store_findings(url, tmp_path)} <= {"ok", "warning"}


def test_a_server_that_speaks_no_tls_is_silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for the rest of what it takes for a command, so only the mend can name that."""
    monkeypatch.setattr(stores, "STORE_SECONDS", 0.5)
    with faulty.without_tls(tmp_path / "store") as url:
        (finding,) = store_findings(url, tmp_path)
    assert "no answer" in finding.detail
    assert "redis://" in finding.mend


def test_a_user_without_the_right_to_info_gets_the_other_findings(tmp_path: Path) -> None:
    """A warning says what is not known."""
    rights = ["--user", "ada", "on", f">{faulty.PASSWORD}", "~*", "+@all", "-info"]
    with faulty.valkey(tmp_path / "store", *rights) as server:
        findings = store_findings(f"redis://ada:{faulty.PASSWORD}@127.0.0.1:{server.port}/0", tmp_path)
    assert [finding.status for finding in findings] == ["ok", "warning"]
    assert "INFO" in findings[1].mend


def test_every_primary_of_a_cluster_is_examined_by_a_key_of_its_own(tmp_path: Path) -> None:
    """The address names one of three; another one is full, and its place is told."""
    with running_cluster(tmp_path / "cluster") as cluster:
        cluster.nodes[2].say("CONFIG", "SET", "maxmemory", 1)
        for _ in range(3):
            findings = store_findings(cluster.url(cluster.nodes[0]), tmp_path)
            (error,) = [finding for finding in findings if finding.status == "error"]
            assert error.detail.startswith(f"127.0.0.1:{cluster.nodes[2].port}: ")
            assert "it is full" in error.detail
        single = store_findings(f"redis://127.0.0.1:{cluster.nodes[0].port}/0", tmp_path)
    assert any("redis+cluster://" in finding.mend for finding in single if finding.status == "error")


def test_a_cluster_that_is_none_is_told(tmp_path: Path) -> None:
    """Its mend is the other form of the address."""
    with faulty.valkey(tmp_path / "store") as server:
        findings = store_findings(f"redis+cluster://127.0.0.1:{server.port}", tmp_path)
    assert any("Write redis://" in finding.mend for finding in findings if finding.status == "error")
