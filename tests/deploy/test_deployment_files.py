"""Each file of ``deploy/`` is taken by the program that it is for, and their times agree."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.conftest import COMMANDS
from tests.deploy.programs import PROXIES, TOOLS, VENV, find
from tests.docs.pages import ROOT
from tidemark.cli.serve import KEEP_ALIVE_SECONDS
from tidemark.config.sections import ServerSettings

DEPLOY = ROOT / "deploy"
LONGEST_SECONDS = 3600
"""The longest silence and the longest stream that the examples allow."""
EXPOSED_MOST = 1.5
"""``systemd-analyze security``: 10 is a service without any protection."""


def run(*command: str | Path, folder: Path = ROOT) -> str:
    """What a program prints; a failure shows it."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def text(name: str) -> str:
    """A file of ``deploy/``."""
    return (DEPLOY / name).read_text(encoding="utf-8")


@pytest.fixture
def unit(tmp_path: Path) -> Path:
    """The unit with the program of this checkout, since systemd looks whether there is one."""
    path = tmp_path / "tidemark.service"
    program = str(VENV / "tidemark")
    path.write_text(text("systemd/tidemark.service").replace("/opt/tidemark/.venv/bin/tidemark", program))
    return path


def test_systemd_takes_the_unit(unit: Path) -> None:
    """Nothing is unknown or misspelt."""
    analyze = find("systemd-analyze")
    done = subprocess.run([analyze, "verify", "--man=no", unit], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if unit.name in line] == []


def test_systemd_takes_the_socket(unit: Path) -> None:
    """Beside the service that it starts."""
    path = unit.with_suffix(".socket")
    path.write_text(text("systemd/tidemark.socket"))
    command = [find("systemd-analyze"), "verify", "--man=no", str(path), str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if path.name in line] == []


def test_the_unit_is_hardened(unit: Path) -> None:
    """The figure is the one that systemd computes."""
    told = run(find("systemd-analyze"), "security", "--offline=true", "--no-pager", unit)
    figure = re.search(r"exposure level for tidemark.service: ([\d.]+)", told)
    assert figure is not None
    assert float(figure[1]) <= EXPOSED_MOST


def test_nginx_takes_the_example(tmp_path: Path) -> None:
    """``nginx -t``."""
    command, _ = COMMANDS["nginx"](tmp_path, "127.0.0.1:8787", 8443)
    run(*command, "-t")


def test_caddy_takes_the_example() -> None:
    """``caddy validate``, and its own formatter changes nothing."""
    run(find("caddy"), "validate", "--adapter", "caddyfile", "--config", DEPLOY / "Caddyfile")
    assert run(find("caddy"), "fmt", DEPLOY / "Caddyfile") == text("Caddyfile")


def test_envoy_takes_the_example() -> None:
    """``envoy --mode validate``."""
    run(find("envoy", TOOLS), "--mode", "validate", "--config-path", DEPLOY / "envoy.yaml")


def test_prometheus_takes_its_configuration() -> None:
    """``promtool check config``, with the alert rules beside it."""
    run(find("promtool"), "check", "config", "prometheus.yaml", folder=DEPLOY)


def test_prometheus_scrapes_under_the_name_that_the_alerts_have() -> None:
    """``up{job="tidemark"}`` would find nothing under another one."""
    (job,) = yaml.safe_load(text("prometheus.yaml"))["scrape_configs"]
    assert f'up{{job="{job["job_name"]}"}}' in text("alerts.yaml")


def test_every_file_that_the_compose_file_mounts_is_there() -> None:
    """Docker would make an empty folder in its place."""
    services = yaml.safe_load(text("compose.yaml"))["services"]
    mounts = [mount for service in services.values() for mount in service.get("volumes", ())]
    files = [mount.split(":")[0] for mount in mounts if mount.startswith("./")]
    assert files
    assert [name for name in files if not (DEPLOY / name).is_file()] == []
    (provider,) = yaml.safe_load(text("grafana/dashboards.yaml"))["providers"]
    assert f"./grafana.json:{provider['options']['path']}/tidemark.json:ro" in mounts


def test_the_image_runs_without_privileges_on_a_read_only_file_system() -> None:
    """It writes to two places only."""
    proxy = yaml.safe_load(text("compose.yaml"))["services"]["proxy"]
    assert (proxy["read_only"], proxy["cap_drop"]) == (True, ["ALL"])
    assert [mount.split(":")[1] for mount in proxy["volumes"]] == ["/data"]
    assert [mount.split(":")[0] for mount in proxy["tmpfs"]] == ["/tmp"]  # noqa: S108
    assert "\nUSER 10001\n" in text("Dockerfile")


def test_the_composed_container_takes_the_forms_of_its_worker() -> None:
    """And for some more, as the chart has."""
    (mount,) = yaml.safe_load(text("compose.yaml"))["services"]["proxy"]["tmpfs"]
    assert mount == f"/tmp:size={ServerSettings().max_spools_mb + 256}m"  # noqa: S108


def test_every_image_has_a_version() -> None:
    """An image without one is another one tomorrow."""
    services = yaml.safe_load(text("compose.yaml"))["services"].values()
    images = [service["image"] for service in services if "build" not in service]
    images += re.findall(r"^FROM (\S+)", text("Dockerfile"), re.MULTILINE)
    assert [image for image in images if not re.search(r":v?\d+\.\d+", image)] == []


def _nginx() -> tuple[set[float], float]:
    site = text("nginx.conf")
    silences = re.findall(r"(?:proxy_read|proxy_send|send)_timeout (\d+)s;", site)
    (idle,) = re.findall(r"keepalive_timeout (\d+)s;", site)
    return {float(seconds) for seconds in silences}, float(idle)


def _caddy() -> tuple[set[float], float]:
    adapted = run(find("caddy"), "adapt", "--adapter", "caddyfile", "--config", DEPLOY / "Caddyfile")
    transport = re.search(r'"transport":(\{.*?"protocol":"http".*?\})', adapted)
    assert transport is not None
    times: dict[str, Any] = json.loads(transport[1])
    assert "read_timeout" not in times  # none: an answer may be silent for any time
    second = 1e9
    return {times["response_header_timeout"] / second}, times["keep_alive"]["idle_timeout"] / second


def _envoy() -> tuple[set[float], float]:
    resources = yaml.safe_load(text("envoy.yaml"))["static_resources"]
    connections = resources["listeners"][0]["filter_chains"][0]["filters"][0]["typed_config"]
    (way,) = [one["route"] for one in connections["route_config"]["virtual_hosts"][0]["routes"] if "route" in one]
    assert (way["timeout"], connections["request_timeout"]) == ("0s", "0s")  # none
    (options,) = resources["clusters"][0]["typed_extension_protocol_options"].values()
    idle = options["common_http_protocol_options"]["idle_timeout"]
    return {float(connections["stream_idle_timeout"].rstrip("s"))}, float(idle.rstrip("s"))


TIMES = {"nginx": _nginx, "caddy": _caddy, "envoy": _envoy}


@pytest.mark.parametrize("name", PROXIES)
def test_a_long_silence_does_not_end_a_stream(name: str) -> None:
    """A comment comes every 15 s on a stream; before its first byte, and without one, there may be none for long."""
    silences, idle = TIMES[name]()
    assert silences == {LONGEST_SECONDS}
    assert min(silences) > 10 * ServerSettings().keepalive_seconds
    assert idle < KEEP_ALIVE_SECONDS


def test_systemd_waits_longer_than_the_longest_stream() -> None:
    """It would kill what clients still read."""
    (seconds,) = re.findall(r"^TimeoutStopSec=(\d+)$", text("systemd/tidemark.service"), re.MULTILINE)
    assert int(seconds) > LONGEST_SECONDS
