"""Four Tidemarks behind nginx, each a process with a data folder of its own, on one store."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx
import pytest

from tests.fleet.talks import NAME, UNVERIFIED
from tests.support.clusters import free_ports, until
from tests.support.nginx import ROOT, write_site

CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}/v1"}}
    model_info: {{max_input_tokens: 2000, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: llm, retention_tokens: 300, min_tokens: 300}}
history: {{on_conflict: wait}}
server: {{allowed_origins: ["https://{name}"]}}
"""


class Proxy:
    """One `tidemark serve`.

    :param code: the folder with the package ``proxy`` that it runs
    """

    def __init__(self, folder: Path, store: str, code: Path = ROOT) -> None:
        (port,) = free_ports(1)
        self.port, self.url = port, f"http://127.0.0.1:{port}"
        self._folder, self._store, self._code = folder, store, code
        self.start()

    def replace_code(self, code: Path) -> None:
        """End it, and start it with other code."""
        self.end()
        self._code = code
        self.start()

    def start(self) -> None:
        """Start it, again on its port and with its data folder."""
        package = "tidemark" if (self._code / "proxy" / "tidemark").exists() else "proxy"  # its name before
        environ = {name: value for name, value in os.environ.items() if not name.startswith(("TIDEMARK_", "OPENAI_"))}
        environ |= {
            "TIDEMARK_DATA_DIR": str(self._folder),
            "TIDEMARK_STORE_URL": self._store,
            "TIDEMARK_SECRET": "s" * 40,
            "TIDEMARK_LITELLM": "off",
            "PYTHONPATH": str(self._code / "proxy" if package == "tidemark" else self._code),
        }
        command = [sys.executable, "-m", package, "serve", "--port", str(self.port)]
        with self._folder.with_suffix(".log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, "--config", str(self._folder.parent / "tidemark.yaml")],
                env=environ,
                cwd=self._folder.parent,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def is_ready(self) -> bool:
        """Whether it takes requests."""
        with suppress(httpx.TransportError):
            return httpx.get(f"{self.url}/health/readiness", verify=UNVERIFIED).status_code == httpx.codes.OK
        return False

    def kill(self) -> None:
        """End it in the middle of whatever it does."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def end(self) -> None:
        """End it as an operator does."""
        self.process.terminate()
        self.process.wait(60)


@contextmanager
def running_proxies(folder: Path, store: str, upstream: str, count: int = 4) -> Iterator[tuple[list[Proxy], str]]:
    """Proxies, and the address of the nginx before them."""
    (folder / "tidemark.yaml").write_text(CONFIG.format(base=upstream, name=NAME))
    with ExitStack() as stack:
        proxies = []
        for number in range(count):
            proxies.append(Proxy(folder / f"proxy{number}", store))
            stack.callback(proxies[-1].end)
        for proxy in proxies:
            until(proxy.is_ready)
        (port,) = free_ports(1)
        path = write_site(folder, [f"127.0.0.1:{proxy.port}" for proxy in proxies], port, name=NAME)
        program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
        if program is None:
            pytest.skip("nginx is not here: apt-get install nginx-light")
        with (folder / "nginx.log").open("wb") as log:
            nginx = stack.enter_context(
                subprocess.Popen([program, "-e", "stderr", "-c", str(path)], stdout=log, stderr=log)
            )
        stack.callback(nginx.kill)
        until(lambda: takes_connections(port))
        yield proxies, f"https://127.0.0.1:{port}"


def takes_connections(port: int) -> bool:
    """Whether somebody listens there."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False
