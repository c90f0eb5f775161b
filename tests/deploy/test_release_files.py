"""What publishes a release agrees with the release: workflow, registry of servers, image, service of a Mac."""

from __future__ import annotations

import fnmatch
import json
import plistlib
import re
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.programs import VENV
from tests.docs.pages import ROOT
from tidemark import __version__
from tidemark.cli.main import cli
from tidemark.terminal.run_file import announced

DEPLOY = ROOT / "deploy"
REPOSITORY = "https://github.com/tidemark-proxy/tidemark"
WORKFLOW = DEPLOY / "release" / "release.yaml"
DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")


def project() -> dict[str, Any]:
    """What is declared of the distribution."""
    found: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


@pytest.mark.parametrize("schema", ["vendor.github-workflows", "custom.github-workflows-require-timeout"])
def test_the_workflow_is_one(schema: str) -> None:
    """By GitHub's own schema, and each job has a time limit."""
    command = [str(VENV / "check-jsonschema"), "--builtin-schema", schema, str(WORKFLOW)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_workflow_publishes_without_a_stored_secret_and_with_few_rights() -> None:
    """The index and the attestations trust the workflow itself; no job gets a right that it does not name."""
    jobs = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    assert jobs["permissions"] == {}
    assert jobs["jobs"]["index"]["permissions"] == {"id-token": "write"}
    assert set(re.findall(r"secrets\.(\w+)", WORKFLOW.read_text(encoding="utf-8"))) == {"GITHUB_TOKEN"}
    steps = [step for job in jobs["jobs"].values() for step in job["steps"]]
    assert [
        step["uses"] for step in steps if "uses" in step and not re.search(r"@(v\d+|release/v\d+)$", step["uses"])
    ] == []
    (push,) = [step["with"] for step in steps if step.get("uses", "").startswith("docker/build-push-action")]
    assert push["platforms"] == "linux/amd64,linux/arm64"


def test_the_workflow_runs_targets_and_files_that_are_there() -> None:
    """A release is not the first time that they are looked for."""
    text = WORKFLOW.read_text(encoding="utf-8")
    targets = {name for line in re.findall(r"- run: make ([a-z -]+)$", text, re.MULTILINE) for name in line.split()}
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert phony
    assert {"dist", "sbom", "test-release"} <= targets <= set(phony[1].split())
    assert [path for path in re.findall(r"\bdeploy/[\w/.]+", text) if not (ROOT / path).exists()] == []


def test_the_workflow_finds_the_section_of_the_changelog(tmp_path: Path) -> None:
    """That of the version, and nothing of the others."""
    (script,) = re.findall(
        r"^ +(awk .+) CHANGELOG\.md > notes\.md$", WORKFLOW.read_text(encoding="utf-8"), re.MULTILINE
    )
    (tmp_path / "changes.md").write_text(
        "## [Unreleased]\nx\n## [0.2.0] - 2026-11-27\n\n### Added\n- y\n## [0.1.0]\nz\n"
    )
    command = ["bash", "-c", f"GITHUB_REF_NAME=v0.2.0; {script} changes.md"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "\n### Added\n- y\n"


def test_the_changelog_has_the_version() -> None:
    """With its date, below what is not released."""
    heads = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert heads[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(__version__)}\] - \d{{4}}-\d\d-\d\d", heads[1])


def test_all_files_name_the_version() -> None:
    """The source is the only place in which it is chosen."""
    chart = yaml.safe_load((DEPLOY / "helm/tidemark/Chart.yaml").read_text(encoding="utf-8"))
    server = json.loads((DEPLOY / "release/server.json").read_text(encoding="utf-8"))
    (package,) = server["packages"]
    (image,) = re.findall(r"^ARG VERSION=(.+)$", DOCKERFILE, re.MULTILINE)
    assert {chart["version"], chart["appVersion"], server["version"], package["version"], image} == {__version__}


def test_the_registry_of_mcp_servers_gets_what_the_distribution_says() -> None:
    """The readme proves the ownership, and the command is one that there is."""
    server = json.loads((DEPLOY / "release/server.json").read_text(encoding="utf-8"))
    (package,) = server["packages"]
    assert len(server["description"]) <= 100
    assert re.fullmatch(r"io\.github\.[\w.-]+/[\w.-]+", server["name"])
    assert f"<!-- mcp-name: {server['name']} -->" in (ROOT / "README.md").read_text(encoding="utf-8")
    assert package["identifier"] == project()["name"]
    assert package["identifier"] in project()["scripts"]
    assert package["packageArguments"][0]["value"] in cli.commands
    (with_library,) = package["runtimeArguments"]
    assert (with_library["name"], [with_library["value"]]) == ("--with", project()["optional-dependencies"]["mcp"])


def test_everything_names_the_same_repository() -> None:
    """Index, image, formula and registry."""
    assert all(url.startswith(REPOSITORY) for url in project()["urls"].values())
    for name in ("Dockerfile", "release/server.json", "release/tidemark.rb"):
        places = re.findall(r"https://github\.com/[\w-]+/[\w-]+", (DEPLOY / name).read_text(encoding="utf-8"))
        assert set(places) == {REPOSITORY}


def test_the_image_runs_any_command_of_tidemark() -> None:
    """Without one it serves."""
    assert json.loads(re.findall(r"^ENTRYPOINT (.+)$", DOCKERFILE, re.MULTILINE)[0]) == ["tidemark"]
    command = json.loads(re.findall(r"^CMD (.+)$", DOCKERFILE, re.MULTILINE)[0])
    assert command[0] in cli.commands


def test_the_image_is_built_of_files_that_reach_the_builder() -> None:
    """``.dockerignore`` leaves everything out but what it names."""
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    copied = [
        name for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE) for name in line.split()[:-1]
    ]
    assert copied
    assert [name for name in copied if not any(fnmatch.fnmatch(name, pattern) for pattern in allowed)] == []
    assert [name for name in copied if not (ROOT / name).exists()] == []


def health_check(folder: Path) -> int:
    """The exit code of the image's own health check, for a data folder."""
    check = json.loads(re.findall(r"^HEALTHCHECK [^\n]*\\\n  CMD (.+)$", DOCKERFILE, re.MULTILINE)[0])
    assert check[0] == "python"
    return subprocess.run(
        [sys.executable, *check[1:]], env={"TIDEMARK_DATA_DIR": str(folder)}, check=False, stderr=subprocess.DEVNULL
    ).returncode


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_the_health_check_asks_the_port_that_the_server_has(tmp_path: Path, status: int, healthy: bool) -> None:  # noqa: FBT001
    """Whatever option, variable or setting chose it."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.path == "/health/readiness"
            self.send_response(status)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Answer) as server, announced(tmp_path, f"http://127.0.0.1:{server.server_port}"):
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        assert (health_check(tmp_path) == 0) is healthy
        thread.join()


def test_without_a_server_the_health_check_fails(tmp_path: Path) -> None:
    """The file is written once the server listens."""
    assert health_check(tmp_path) != 0


def test_a_mac_runs_the_service_as_systemd_does() -> None:
    """With the same time for open streams, and in the user's own folder."""
    (path,) = (DEPLOY / "launchd").glob("*.plist")
    service = plistlib.loads(path.read_bytes())
    unit = (DEPLOY / "systemd/tidemark.service").read_text(encoding="utf-8")
    assert service["Label"] == path.stem
    assert service["ProgramArguments"][1] in cli.commands
    assert f"TimeoutStopSec={service['ExitTimeOut']}\n" in unit
    assert f"LimitNOFILE={service['SoftResourceLimits']['NumberOfFiles']}\n" in unit
    assert f"UMask={service['Umask']:04o}\n" in unit
    assert service["KeepAlive"]
    assert service["RunAtLoad"]
