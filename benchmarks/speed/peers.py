"""Defines the peers, the proxies that Tidemark is compared with; ``python -m benchmarks.speed.peers`` installs them.

Each peer has its own environment under ``.bench/``, at a pinned version, because its dependencies conflict with those
of Tidemark and of other peers. Their settings raise each threshold beyond the works, so the benchmark measures the cost
of a proxy while nothing is compacted. Everything that they write stays in the run's own folder.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.speed.systems import ROOT, Place, System

ENVIRONMENTS = ROOT / ".bench"
BEYOND_TOKENS = "10000000"
"""A threshold that no work reaches."""
REQUIREMENTS = {
    "awecompress": "awecompress==0.2.0",
    "cliffcompaction": "cliffcompaction==0.1.0",
    "context-guardian": "context-guardian==0.12.0",
    "ctxkeeper": "ctxkeeper==1.2.0",
    "headroom": "headroom-ai[proxy]==0.42.0",
    "litellm": "litellm[proxy]==1.105.3",
}
LITELLM = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",  # asks clients for no key: the least work for it
}
DONE = "installed.txt"


def _program(peer: str, name: str = "") -> str:
    return str(ENVIRONMENTS / peer / "bin" / (name or peer))


def _awecompress(place: Place) -> list[str]:
    config = place.folder / "config.json"
    config.write_text(f'{{"upstream": "{place.upstream}", "thresholdTokens": {BEYOND_TOKENS}}}', encoding="utf-8")
    return [_program("awecompress"), "serve", "--port", str(place.port), "--config", str(config)]


def _cliffcompaction(place: Place) -> list[str]:
    settings = ["--openai-upstream", place.upstream, "--threshold", BEYOND_TOKENS, "--port", str(place.port)]
    return [_program("cliffcompaction", "cliff"), "serve", *settings]


def _context_guardian(place: Place) -> Mapping[str, str]:
    return {
        "GUARDIAN_PORT": str(place.port),
        "GUARDIAN_UPSTREAM_URL": f"{place.upstream}/v1",
        "GUARDIAN_NUM_CTX": BEYOND_TOKENS,
        "GUARDIAN_DATA_DIR": str(place.folder),
        "GUARDIAN_VERSION_CHECK": "0",
    }


def _ctxkeeper(place: Place) -> list[str]:
    settings = ["--upstream", place.upstream, "--port", str(place.port), "--budget", BEYOND_TOKENS]
    return [_program("ctxkeeper"), *settings, "--state-dir", str(place.folder)]


def _headroom(place: Place) -> list[str]:
    quiet = ["--no-rate-limit", "--no-subscription-tracking", "--no-cache"]
    return [_program("headroom"), "proxy", "--port", str(place.port), *quiet]


def _litellm(place: Place) -> list[str]:
    entry = f"{{model_name: bench, litellm_params: {{model: openai/bench, api_base: {place.upstream}/v1, api_key: k}}}}"
    config = place.folder / "litellm.yaml"
    config.write_text(f"model_list: [{entry}]\n", encoding="utf-8")
    return [_program("litellm"), "--config", str(config), "--port", str(place.port), "--host", "127.0.0.1"]


def _peer(
    name: str, command: Callable[[Place], list[str]], environ: Callable[[Place], Mapping[str, str]] = lambda _: {}
) -> System:
    return System(name, REQUIREMENTS[name].replace("==", " "), command, environ, is_peer=True)


PEERS = [
    _peer("awecompress", _awecompress),
    _peer("cliffcompaction", _cliffcompaction),
    _peer("context-guardian", lambda _: [_program("context-guardian")], _context_guardian),
    _peer("ctxkeeper", _ctxkeeper),
    _peer(
        "headroom",
        _headroom,
        lambda place: {"OPENAI_TARGET_API_URL": place.upstream, "HEADROOM_TELEMETRY": "off", "HF_HUB_OFFLINE": "1"},
    ),
    _peer("litellm", _litellm, lambda _: LITELLM),
]


def installed(peer: System, environments: Path = ENVIRONMENTS) -> bool:
    """Return whether a peer is installed at the pinned version."""
    done = environments / peer.name / DONE
    return done.exists() and done.read_text(encoding="utf-8") == REQUIREMENTS[peer.name]


def install(name: str) -> None:
    """Create a peer's environment again."""
    folder = ENVIRONMENTS / name
    venv.create(folder, clear=True, with_pip=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, REQUIREMENTS[name]], check=True)
    (folder / DONE).write_text(REQUIREMENTS[name], encoding="utf-8")


def main(names: list[str]) -> int:
    """Install the named peers or all; the exit code is the number of failed ones."""
    failed = 0
    for name in names or list(REQUIREMENTS):
        print(f"{REQUIREMENTS[name]} into {Path('.bench') / name}", flush=True)
        try:
            install(name)
        except subprocess.CalledProcessError:
            failed += 1
            print(f"{name} could not be installed; the benchmark leaves it out", file=sys.stderr)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
