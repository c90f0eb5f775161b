"""A Tidemark behind each reverse proxy of `deploy/`, which runs the example's own file with other addresses."""

from __future__ import annotations

import os
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.deploy.programs import PROXIES, TOOLS, find
from tests.docs.pages import ROOT
from tests.request.conftest import SECRET, litellm, store_url
from tests.server.connections.served import Served
from tests.support.clusters import free_ports
from tests.support.nginx import write_site
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import Serving
from tests.support.waiting import wait_until
from tidemark.app.application import create_app
from tidemark.config import load

__all__ = ["litellm", "store_url"]
"""Fixtures that this folder shares with tests/request."""

NAME = "llm.example.com"
"""The site that the examples are for."""
TOKEN = "t" * 40
UNVERIFIED = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For certificates that a test has made."""
UNVERIFIED.check_hostname = False
UNVERIFIED.verify_mode = ssl.CERT_NONE
CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: 2000, max_output_tokens: 200}}
server: {{max_body_mb: 1, allowed_origins: ["http://{name}", "https://{name}"]}}
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is in this folder."""
    folder = f"{Path(__file__).parent}{os.sep}"
    for item in items:
        if str(item.path).startswith(folder):
            item.add_marker(pytest.mark.deploy)


@dataclass
class Site:
    """A Tidemark behind a reverse proxy, and the upstream behind it."""

    url: str
    upstream: ScriptedUpstream
    stack: ExitStack

    def client(self, key: str) -> httpx.Client:
        """A client that asks for the site by its name, with a credential of its own."""
        headers = {"host": NAME, "authorization": f"Bearer {key}"}
        return self.stack.enter_context(httpx.Client(base_url=self.url, timeout=30, verify=UNVERIFIED, headers=headers))


def _nginx(folder: Path, behind: str, port: int) -> tuple[list[str], str]:
    path = write_site(folder, [behind], port, name=NAME)
    return [find("nginx"), "-e", "stderr", "-c", str(path)], f"https://127.0.0.1:{port}"


def _caddy(folder: Path, behind: str, port: int) -> tuple[list[str], str]:
    site = (ROOT / "deploy/Caddyfile").read_text(encoding="utf-8")
    site = site.replace("127.0.0.1:8787", behind).replace(f"\n{NAME} {{", f"\nhttp://{NAME}:{port} {{")
    options = "{\n\tadmin off\n\tdefault_bind 127.0.0.1\n}\n"
    (folder / "Caddyfile").write_text(options + site)
    command = [find("caddy"), "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]
    return command, f"http://127.0.0.1:{port}"


def _envoy(folder: Path, behind: str, port: int) -> tuple[list[str], str]:
    text = (ROOT / "deploy/envoy.yaml").read_text(encoding="utf-8")
    text = text.replace("port_value: 8080", f"port_value: {port}")
    text = text.replace("port_value: 8787", f"port_value: {behind.rpartition(':')[2]}")
    (folder / "envoy.yaml").write_text(text)
    command = [find("envoy", TOOLS), "--config-path", str(folder / "envoy.yaml"), "--concurrency", "1"]
    return [*command, "--log-level", "warn", "--use-dynamic-base-id"], f"http://127.0.0.1:{port}"


@contextmanager
def _running(command: list[str], folder: Path, url: str) -> Iterator[None]:
    """Run a reverse proxy until the block ends; it writes into ``folder`` only."""
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
    }
    with (folder / "log").open("wb") as log, subprocess.Popen(command, env=environ, stdout=log, stderr=log) as process:
        try:
            wait_until(lambda: process.poll() is not None or _answers(url))
            assert process.poll() is None, (folder / "log").read_text()
            yield
        finally:
            process.kill()


def _answers(url: str) -> bool:
    with suppress(httpx.TransportError):
        return httpx.get(f"{url}/metrics", headers={"host": NAME}, verify=UNVERIFIED).status_code == 404
    return False


COMMANDS = {"nginx": _nginx, "caddy": _caddy, "envoy": _envoy}
"""Writes the example with other addresses into a folder, and gives the command that runs it and its own address."""


@pytest.fixture(params=PROXIES)
def start_site(request: pytest.FixtureRequest, store_url: str, tmp_path: Path) -> Iterator[Callable[..., Site]]:
    """Starts a Tidemark behind one of the reverse proxies; everything is stopped at the end."""
    with ExitStack() as stack:

        def start(*, token: str = TOKEN) -> Site:
            upstream = ScriptedUpstream()
            base = f"{stack.enter_context(Serving(upstream)).url}/v1"
            path = tmp_path / "tidemark.yaml"
            path.write_text(CONFIG.format(base=base, name=NAME))
            environ = {"TIDEMARK_DATA_DIR": str(tmp_path), **({"TIDEMARK_ADMIN_TOKEN": token} if token else {})}
            app = create_app(load(path, environ), store_url=store_url, secret=SECRET, warn=lambda _: None)
            served = stack.enter_context(Served(app, lifespan="on", server_header=False, date_header=False))
            (port,) = free_ports(1)
            command, url = COMMANDS[request.param](tmp_path, f"127.0.0.1:{served.port}", port)
            stack.enter_context(_running(command, tmp_path, url))
            return Site(url, upstream, stack)

        yield start


@pytest.fixture
def site(start_site: Callable[..., Site]) -> Site:
    """A Tidemark with an admin token behind one of the reverse proxies."""
    return start_site()
