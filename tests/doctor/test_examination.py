"""Rules of ``tidemark doctor``: each thing that would not work is an error with its mend, and nothing hides another."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from tests.support.clusters import free_ports
from tests.support.scripted import Answer, Received, ScriptedUpstream, Turn, refuses, says, tells, whole
from tests.support.serving import Serving
from tidemark.doctor.examination import examine
from tidemark.doctor.findings import Finding, is_usable
from tidemark.store.embedded.server import EmbeddedValkey

SECRET = "sk-very-secret-4711"
Examine = Callable[..., dict[str, list[Finding]]]


@pytest.fixture
def upstream() -> Iterator[tuple[ScriptedUpstream, str]]:
    """A scripted upstream and its base URL."""
    scripted = ScriptedUpstream(tells(Turn("Yes. The ticket is OPS-4411.")))
    with Serving(scripted) as served:
        yield scripted, served.url


@pytest.fixture
def examined(tmp_path: Path, upstream: tuple[ScriptedUpstream, str]) -> Examine:
    """Examines a configuration with one model at the scripted upstream; returns the findings by check."""

    def run(*, base: str = "", more: str = "", offline: bool = False, **environ: str) -> dict[str, list[Finding]]:
        path = tmp_path / "tidemark.yaml"
        place = base or f"{upstream[1]}/v1"
        params = f'{{model: openai/small-1, api_base: "{place}", api_key: {SECRET}}}'
        info = "{max_input_tokens: 4000, max_output_tokens: 500}"
        path.write_text(
            f"model_list:\n  - model_name: small\n    litellm_params: {params}\n    model_info: {info}\n{more}"
        )
        variables = {"HOME": str(tmp_path), "TIDEMARK_DATA_DIR": str(tmp_path / "data"), **environ}
        findings: dict[str, list[Finding]] = {}
        for finding in asyncio.run(examine(path, variables, lambda _: None, offline=offline)):
            findings.setdefault(finding.check, []).append(finding)
            assert SECRET not in f"{finding.detail}{finding.mend}"
            assert bool(finding.mend) == (finding.status != "ok"), finding
        return findings

    return run


def statuses(findings: dict[str, list[Finding]], check: str) -> set[str]:
    """The statuses of one check's findings."""
    return {finding.status for finding in findings[check]}


def detail(findings: dict[str, list[Finding]], check: str) -> str:
    """What one check found out that is not as it should be."""
    return "; ".join(finding.detail for finding in findings[check] if finding.status != "ok")


def test_what_works_is_ok(examined: Examine) -> None:
    """Every check has a finding, and none needs a mend."""
    findings = examined(more="compaction: {defaults: {strategy: extractive}}\n")
    checks = {"configuration", "data folder", "store", "vocabularies", "upstream small", "summarizer extractive"}
    assert set(findings) == checks
    assert all(finding.status == "ok" for found in findings.values() for finding in found), findings


def test_a_configuration_that_cannot_be_read_is_the_only_finding(tmp_path: Path) -> None:
    """All its mistakes at once, as ``tidemark check`` names them."""
    path = tmp_path / "tidemark.yaml"
    path.write_text("server: {port: many}\nunknown: 1\n")
    findings = asyncio.run(examine(path, {"HOME": str(tmp_path)}, lambda _: None))
    assert {finding.check for finding in findings} == {"configuration"}
    assert len(findings) == 2
    assert not is_usable(findings)


@pytest.mark.parametrize(
    ("status", "expected", "word"),
    [(401, "error", "api_key"), (404, "error", "name"), (429, "warning", "quota"), (500, "error", "log")],
)
def test_an_upstream_that_refuses_is_quoted(
    examined: Examine, upstream: tuple[ScriptedUpstream, str], status: int, expected: str, word: str
) -> None:
    """With its own words, and what to do about that status."""
    upstream[0].script = refuses(status, f"No, says {SECRET}.")
    findings = examined()
    (finding,) = findings["upstream small"]
    assert (finding.status, f"{status}" in finding.detail, word in finding.mend) == (expected, True, True)
    assert "No, says" in finding.detail


def test_an_upstream_that_is_away_is_an_error(examined: Examine) -> None:
    """It hides neither the store's findings nor the summarizer's."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        findings = examined(base=f"http://127.0.0.1:{closed.getsockname()[1]}/v1")
    (finding,) = findings["upstream small"]
    assert (finding.status, "nothing listens at http://127.0.0.1" in finding.detail) == ("error", True)
    assert finding.mend.startswith("Start the server there")
    assert statuses(findings, "store") == {"ok"}
    assert statuses(findings, "summarizer hybrid") == {"warning"}  # compactions fall back to extractive


def test_a_summarizer_that_must_work_and_does_not_is_an_error(
    examined: Examine, upstream: tuple[ScriptedUpstream, str]
) -> None:
    """Where the policy refuses requests whose summary failed."""
    upstream[0].script = lambda request: says("Yes.")(request) if request.streams else refuses(500, "No.")(request)
    findings = examined(more="compaction: {defaults: {on_failure: block}}\n")
    assert statuses(findings, "summarizer hybrid") == {"error"}


def test_an_upstream_without_streams_or_usage_is_a_warning(
    examined: Examine, upstream: tuple[ScriptedUpstream, str]
) -> None:
    """It works, but not as clients expect."""
    upstream[0].script = lambda _: whole("Yes.")
    assert "does not stream" in detail(examined(), "upstream small")
    upstream[0].script = says("Yes.")  # its streams have no usage
    assert "no usage" in detail(examined(), "upstream small")


def test_a_newer_name_of_the_longest_reply_is_understood(
    examined: Examine, upstream: tuple[ScriptedUpstream, str]
) -> None:
    """Some models refuse ``max_tokens``."""

    def answer(request: Received) -> Answer:
        if "max_tokens" in request.json and request.streams:
            return refuses(400, "Unsupported parameter: 'max_tokens'.")(request)
        return tells(Turn("Yes. OPS-4411"))(request)

    upstream[0].script = answer
    assert statuses(examined(), "upstream small") == {"ok"}


def test_a_store_that_may_evict_conversations_is_told(examined: Examine, tmp_path: Path) -> None:
    """Conversations are no cache."""
    options = ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]
    with EmbeddedValkey(tmp_path / "evicting", options=options) as store:
        findings = examined(more=f'store: {{url: "{store.url}"}}\n', offline=True)
    assert "evict" in detail(findings, "store")
    assert "error" in statuses(findings, "store")


def test_a_wrong_password_is_told(examined: Examine, tmp_path: Path) -> None:
    """Without the password."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    rights = ["--user", "ada", "on", ">right", "~*", "+@all"]
    with EmbeddedValkey(tmp_path / "other", options=["--port", str(port), *rights]):
        findings = examined(more=f'store: {{url: "redis://ada:{SECRET}@127.0.0.1:{port}/0"}}\n', offline=True)
    assert "WRONGPASS" in detail(findings, "store")


def test_a_store_that_takes_no_writes_is_an_error(examined: Examine, tmp_path: Path) -> None:
    """As a full one."""
    with EmbeddedValkey(tmp_path / "full", options=["--maxmemory", "1", "--maxmemory-policy", "noeviction"]) as store:
        findings = examined(more=f'store: {{url: "{store.url}"}}\n', offline=True)
    assert "no writes" in detail(findings, "store")


def test_a_cluster_that_does_not_serve_a_slot_is_an_error(examined: Examine, tmp_path: Path) -> None:
    """A cluster of one server that has no slot yet."""
    port, bus = free_ports(2)
    options = ["--port", str(port), "--cluster-enabled", "yes", "--cluster-port", str(bus)]
    with EmbeddedValkey(tmp_path / "bare", options=options):
        findings = examined(more=f'store: {{url: "redis://127.0.0.1:{port}/0"}}\n', offline=True)
    assert "every slot" in detail(findings, "store")
    assert "error" in statuses(findings, "store")


def test_a_store_of_a_newer_schema_is_an_error(examined: Examine, tmp_path: Path) -> None:
    """A newer version wrote it: this one would leave it alone, and the mend is an upgrade."""
    with EmbeddedValkey(tmp_path / "newer") as store, redis.Redis.from_url(store.url) as admin:
        admin.set("tm:schema", 99)
        findings = examined(more=f'store: {{url: "{store.url}"}}\n', offline=True)
    assert "its schema is 99" in detail(findings, "store")
    assert "error" in statuses(findings, "store")


def test_a_store_that_is_away_is_an_error(examined: Examine) -> None:
    """The other checks go on."""
    findings = examined(more='store: {url: "redis://127.0.0.1:1/0"}\n', offline=True)
    assert statuses(findings, "store") == {"error"}
    assert statuses(findings, "vocabularies") == {"ok"}


def test_a_data_folder_that_others_can_read_is_a_warning(examined: Examine, tmp_path: Path) -> None:
    """It has the secret and all conversations."""
    (tmp_path / "data").mkdir(mode=0o755)
    (tmp_path / "data").chmod(0o755)
    assert statuses(examined(offline=True), "data folder") == {"warning"}


def test_a_data_folder_that_is_a_file_is_an_error(examined: Examine, tmp_path: Path) -> None:
    """Nothing can be stored there."""
    (tmp_path / "data").write_text("")
    assert statuses(examined(offline=True), "data folder") == {"error"}


def test_offline_asks_nobody(examined: Examine, upstream: tuple[ScriptedUpstream, str]) -> None:
    """No request is sent and no token is paid."""
    findings = examined(offline=True)
    assert upstream[0].received == []
    assert not any(check.startswith(("upstream", "summarizer")) for check in findings)


def test_without_a_model_list_the_first_offered_model_is_asked(
    tmp_path: Path, upstream: tuple[ScriptedUpstream, str]
) -> None:
    """By the client's own key."""
    scripted, base = upstream
    scripted.models = {"object": "list", "data": [{"id": "first", "object": "model"}, {"id": "second"}]}
    environ = {"HOME": str(tmp_path), "TIDEMARK_DATA_DIR": str(tmp_path / "d"), "TIDEMARK_UPSTREAM": f"{base}/v1"}
    findings = asyncio.run(examine(None, {**environ, "OPENAI_API_KEY": SECRET}, lambda _: None))
    assert any(finding.check == "upstream first" for finding in findings)
    assert SECRET not in json.dumps([finding.detail for finding in findings])


def test_a_pattern_is_examined_by_a_model_that_somebody_names(
    tmp_path: Path, upstream: tuple[ScriptedUpstream, str]
) -> None:
    """Else a warning says that nothing was asked, and only the summarizer without a model is tried."""
    path = tmp_path / "tidemark.yaml"
    params = f'{{model: "openai/small-*", api_base: "{upstream[1]}/v1", api_key: {SECRET}}}'
    path.write_text(f'model_list:\n  - model_name: "small-*"\n    litellm_params: {params}\n')
    environ = {"HOME": str(tmp_path), "TIDEMARK_DATA_DIR": str(tmp_path / "d")}
    unnamed = asyncio.run(examine(path, environ, lambda _: None))
    assert is_usable(unnamed)
    assert any("small-*" in finding.detail and "--model" in finding.mend for finding in unnamed)
    assert [finding.check for finding in unnamed if finding.check.startswith("summarizer")] == ["summarizer extractive"]
    assert upstream[0].received == []
    named = asyncio.run(examine(path, environ, lambda _: None, models=["small-1", "other"]))
    found = {finding.check: finding.status for finding in named}
    assert (found["upstream small-1"], found["upstream other"]) in {("ok", "error"), ("warning", "error")}


def test_several_tenants_of_one_account_are_told(examined: Examine, tmp_path: Path) -> None:
    """A warning until the operator says what is meant; one tenant's account is nobody else's."""
    with EmbeddedValkey(tmp_path / "accounts") as store, redis.Redis.from_url(store.url) as admin:
        for owner, place in (("alice", "https://shared/v1"), ("bob", "https://shared/v1"), ("bob", "https://own/v1")):
            admin.hset("tm:accounts", f"{owner} {place}", 1)
        for value, status in (("auto", "warning"), ("true", "ok"), ("false", None)):
            more = f'store: {{url: "{store.url}"}}\nauth: {{shared_account: {value}}}\n'
            findings = examined(more=more, offline=True).get("account", [])
            assert [finding.status for finding in findings] == ([status] if status else [])
            assert all("2 credentials" in finding.detail and "//shared/v1" in finding.detail for finding in findings)
