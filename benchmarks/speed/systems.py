"""Starts and ends the measured systems, each in its own process on its own port.

This module has the upstream, the bare relay and Tidemark; ``peers.py`` has the others.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from benchmarks.speed.load import HOST, REPLY, request
from benchmarks.speed.work import CHAT_PATH, NARROW, NARROW_TOKENS, WIDE, WIDE_TOKENS

ROOT = Path(__file__).parents[2]
LEASH = ROOT / "proxy" / "tidemark" / "store" / "embedded" / "die_with_parent.py"
"""The program that ends a system when the benchmark ends, in any way."""
START_SECONDS = 120.0


@dataclass(frozen=True)
class Place:
    """The addresses and folder of a system."""

    port: int
    upstream: str
    """The upstream without a path: ``http://127.0.0.1:PORT``."""
    folder: Path
    """The folder of its configuration and data."""


@dataclass(frozen=True)
class System:
    """The command of a system."""

    name: str
    title: str
    command: Callable[[Place], list[str]]
    environ: Callable[[Place], Mapping[str, str]] = lambda _: {}
    path: str = CHAT_PATH
    is_peer: bool = False
    only: frozenset[str] = frozenset()
    """The works that it performs; empty for all."""


def _tidemark(place: Place, lane: str = "wire", transport: str = "{}", server: str = "{}") -> list[str]:
    def entry(name: str, tokens: int) -> list[str]:
        return [
            f"- model_name: {name}",
            f"  litellm_params: {{model: openai/{name}, api_base: {place.upstream}/v1}}",
            f"  model_info: {{max_input_tokens: {tokens}, max_output_tokens: 4096}}",
            f"  lane: {lane}",
        ]

    lines = [f"data_dir: {place.folder}", "model_list:", *entry(WIDE, WIDE_TOKENS), *entry(NARROW, NARROW_TOKENS)]
    lines += ["compaction: {defaults: {strategy: extractive}}", f"transport: {transport}", f"server: {server}"]
    config = place.folder / "tidemark.yaml"
    config.write_text("\n".join(lines), encoding="utf-8")
    return [sys.executable, "-m", "tidemark", "serve", "--config", str(config), "--port", str(place.port)]


FLOOR = System(
    "floor",
    "bare relay",
    lambda place: [sys.executable, "-m", "benchmarks.speed.relay", str(place.port), place.upstream],
)
TIDEMARK = System("tidemark", "Tidemark", _tidemark)
ENCRYPTED = System(
    "tidemark-encrypted",
    "Tidemark, with encryption",
    _tidemark,
    environ=lambda _: {"TIDEMARK_ENCRYPTION_KEY": "ab" * 32},
    only=frozenset({"small"}),
)
"""Seals what it stores, each tenant's by a key of its own."""
UPLOADED_TO = System("tidemark", "Tidemark", partial(_tidemark, server="{max_file_first_mb: 1024}"))
"""Keeps forms whose file comes first, however large they are here."""
TRANSLATED = System(
    "tidemark-translate",
    "Tidemark, through litellm",
    lambda place: _tidemark(place, "translate"),
    only=frozenset({"small", "stream-100"}),
)
"""The translate lane, which imports litellm before it can answer."""
LIBRARIES = tuple(
    System(
        f"tidemark-{side}-library",
        f"Tidemark, its {side} side by the library",
        partial(_tidemark, transport=f"{{{side}: library}}"),
        only=frozenset({"small"}),
    )
    for side in ("server", "upstream", "store")
)
"""The library in place of each part of our own transport."""
SKETCH = System(
    "sketch",
    "the least steps",
    lambda place: [
        *(sys.executable, "-m", "benchmarks.speed.sketch"),
        *(str(place.port), place.upstream, str(place.folder)),
    ],
    only=frozenset({"small", "small-1000"}),
)
"""The lower bound of a small request's cost in Python."""
UPSTREAM = System(
    "upstream", "upstream", lambda place: [sys.executable, "-m", "benchmarks.speed.upstream", str(place.port)]
)


@dataclass
class Running:
    """A running system."""

    system: System
    process: subprocess.Popen[bytes]
    place: Place
    ready_seconds: float = 0.0
    """The seconds from its start to the end of the first answered request."""

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self.process.pid

    @property
    def port(self) -> int:
        """Return the port."""
        return self.place.port

    def stop(self) -> None:
        """End the system."""
        self.process.terminate()
        try:
            self.process.wait(15)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def free_port() -> int:
    """Return an unused port."""
    with socket.socket() as tried:
        tried.bind((HOST, 0))
        port: int = tried.getsockname()[1]
        return port


def start(system: System, upstream: str, folder: Path) -> Running:
    """Start a system, and wait until it has answered a request.

    :raises RuntimeError: it ended or did not answer in time; its log is in its folder
    """
    folder.mkdir(parents=True, exist_ok=True)
    place = Place(free_port(), upstream, folder)
    inherited = {name: value for name, value in os.environ.items() if name in {"PATH", "LANG", "TMPDIR"}}
    with (folder / "log").open("ab") as log:
        command = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *system.command(place)]
        began = time.perf_counter()
        process = subprocess.Popen(
            command,
            cwd=folder if system.is_peer else ROOT,
            env={**inherited, "HOME": str(folder), **system.environ(place)},  # nothing of it goes into the user's own
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    running = Running(system, process, place)
    try:
        _until_answered(running, began)
    except BaseException:
        running.stop()
        raise
    return running


def _until_answered(running: Running, began: float) -> None:
    body = b'{"model": "%b", "messages": [{"role": "user", "content": "Are you there?"}]}' % WIDE.encode()
    data = request(running.system.path, body)
    while True:
        if _status(running.port, data) == 200:
            running.ready_seconds = time.perf_counter() - began
            return
        if running.process.poll() is not None or time.perf_counter() - began > START_SECONDS:
            log = (running.place.folder / "log").read_text("utf-8", errors="replace").splitlines()[-5:]
            raise RuntimeError("\n".join([f"{running.system.name} did not come up. Its last words:", *log]))
        time.sleep(0.02)


def _status(port: int, data: bytes) -> int:
    """Return the status of a complete answer; 0 where there is none."""
    got = b""
    with socket.socket() as connection:
        connection.settimeout(START_SECONDS)
        try:
            connection.connect((HOST, port))
            connection.sendall(data)
            while REPLY not in got:
                piece = connection.recv(65536)
                if not piece:
                    return 0
                got += piece
        except OSError:
            return 0
    return int(got.split(b" ", 2)[1])
