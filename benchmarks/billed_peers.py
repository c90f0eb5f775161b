"""Installs other proxies for one run, each into its own environment, and starts them before the provider of the bill.

``make bench-bill ARGS=--peers`` does so. Nothing of a peer stays: environments, settings and data stand in a folder of
the run. Versions are pinned to those that the published figures are of. A peer sees what its users' clients send, has
the settings that it has by default unless its row says otherwise, and reaches the provider under a loopback address.
What it would give back by a function of its own, such as headroom's, counts as gone.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.speed.systems import LEASH, Place, free_port

INSTALL_SECONDS = 600.0
START_SECONDS = 120.0
STOP_SECONDS = 15.0
HOST = "127.0.0.1"
LAST_WORDS = 300
"""So many characters of its output say why a peer did not come up."""


class PeerUnavailable(Exception):
    """A peer could not be installed or started; the message says why."""


@dataclass(frozen=True)
class BilledPeer:
    """A row of the bill: a proxy and its settings."""

    name: str
    requirement: str
    """What is installed; empty for nothing."""
    command: Callable[[Path, Place], Sequence[str]]
    """Of the folder of its environment's programs, and of its place."""
    environ: Callable[[Path, Place], Mapping[str, str]] = lambda *_: {}

    @property
    def title(self) -> str:
        """Return its name and version, such as ``headroom-ai 0.42.0``."""
        name, _, version = self.requirement.partition("==")
        return f"{self.name} ({name.partition('[')[0]} {version})"


def _cliff(*settings: str) -> Callable[[Path, Place], Sequence[str]]:
    def command(programs: Path, place: Place) -> Sequence[str]:
        upstreams = ["--openai-upstream", place.upstream, "--anthropic-upstream", place.upstream]
        return [str(programs / "cliff"), "serve", "--host", HOST, "--port", str(place.port), *upstreams, *settings]

    return command


def _headroom(*settings: str) -> Callable[[Path, Place], Sequence[str]]:
    def command(programs: Path, place: Place) -> Sequence[str]:
        quiet = ["--no-rate-limit", "--no-subscription-tracking"]
        return [str(programs / "headroom"), "proxy", "--host", HOST, "--port", str(place.port), *quiet, *settings]

    return command


def _headroom_environ(programs: Path, place: Place) -> Mapping[str, str]:
    """Return its upstreams, and the vocabularies of its own litellm: without any, it forwards all as it came."""
    vocabularies = next(programs.parent.glob("lib/*/site-packages/litellm/litellm_core_utils/tokenizers"), Path())
    return {
        "OPENAI_TARGET_API_URL": place.upstream,
        "ANTHROPIC_TARGET_API_URL": place.upstream,
        "TIKTOKEN_CACHE_DIR": str(vocabularies),
        "LITELLM_LOCAL_MODEL_COST_MAP": "True",
        "HEADROOM_TELEMETRY": "off",
        "HF_HUB_OFFLINE": "1",
    }


HEADROOM = "headroom-ai[proxy]==0.42.0"
CLIFF = "cliffcompaction==0.1.0"
PEERS: Mapping[str, BilledPeer] = {
    peer.name: peer
    for peer in (
        BilledPeer("headroom", HEADROOM, _headroom("--no-cache"), _headroom_environ),
        BilledPeer("headroom-token", HEADROOM, _headroom("--no-cache", "--mode", "token"), _headroom_environ),
        BilledPeer("cliff-200k", CLIFF, _cliff()),
        BilledPeer("cliff-40k", CLIFF, _cliff("--threshold", "40000")),
    )
}
"""The rows. Headroom's cache of answers is off, since it answers for the provider; its models are not fetched."""


def install(requirement: str, folder: Path) -> Path:
    """Install a peer by uv into a new environment, and return the folder of its programs.

    :raises PeerUnavailable: uv is missing, the installation failed, or it took too long
    """
    uv = shutil.which("uv", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))
    if uv is None:
        raise PeerUnavailable("uv is not here to install it")
    programs = folder / "bin"
    steps = [
        [uv, "venv", "--quiet", "--python", sys.executable, str(folder)],
        [uv, "pip", "install", "--quiet", "--python", str(programs / "python"), requirement],
    ]
    for step in steps if requirement else steps[:1]:
        try:
            subprocess.run(step, check=True, capture_output=True, timeout=INSTALL_SECONDS, stdin=subprocess.DEVNULL)
        except subprocess.TimeoutExpired as error:
            raise PeerUnavailable(f"it was not installed within {INSTALL_SECONDS:.0f} s") from error
        except subprocess.CalledProcessError as error:
            raise PeerUnavailable(f"it could not be installed: {_end_of(error.stderr)}") from error
    return programs


@contextmanager
def running_peer(peer: BilledPeer, programs: Path, upstream: str, folder: Path) -> Iterator[str]:
    """Start a peer before an upstream, yield its address, and end it.

    :param folder: where its settings, its data and its log are
    :raises PeerUnavailable: it ended, or did not listen in time
    """
    folder.mkdir(parents=True, exist_ok=True)
    place = Place(free_port(), upstream, folder)
    inherited = {name: value for name, value in os.environ.items() if name in {"PATH", "LANG", "TMPDIR"}}
    command = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), *peer.command(programs, place)]
    environ = {**inherited, "HOME": str(folder), **peer.environ(programs, place)}
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environ, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
        )
    try:
        _wait_until_it_listens(process, place)
        yield f"http://{HOST}:{place.port}"
    finally:
        process.terminate()
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _wait_until_it_listens(process: subprocess.Popen[bytes], place: Place) -> None:
    ends = time.monotonic() + START_SECONDS
    while time.monotonic() < ends:
        if process.poll() is not None:
            raise PeerUnavailable(f"it ended at its start: {_end_of((place.folder / 'log').read_bytes())}")
        with socket.socket() as tried:
            tried.settimeout(1)
            if tried.connect_ex((HOST, place.port)) == 0:
                return
        time.sleep(0.1)
    raise PeerUnavailable(f"it did not listen within {START_SECONDS:.0f} s")


def _end_of(output: bytes) -> str:
    """Return the end of what a program printed, in one line."""
    return " ".join(output.decode(errors="replace").split())[-LAST_WORDS:]
