"""A feature is left out by deleting its folder and its line in ``app/features.py``; all others go on."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LEFT_OUT = ("live_events", "memory_flush", "responses")
ASK = """
import asyncio
from pathlib import Path

import tidemark
from click.testing import CliRunner
from tidemark.app.application import create_app
from tidemark.app.features import check_settings
from tidemark.cli.main import cli
from tidemark.config import load
from tidemark.core.errors import ConfigError

assert Path(tidemark.__file__).is_relative_to(Path.cwd()), tidemark.__file__

async def ask(app, path):
    sent = []

    async def receive():
        return {"type": "http.request"}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "http_version": "1.1", "method": "GET", "path": path, "raw_path": path.encode(),
             "query_string": b"", "headers": [(b"host", b"127.0.0.1")], "client": ("127.0.0.1", 1), "scheme": "http"}
    await app(scope, receive, send)
    return sent[0]["status"]

async def main():
    environ = {"TIDEMARK_DATA_DIR": str(Path.cwd() / "data"), "TIDEMARK_ADMIN_TOKEN": "t"}
    app = create_app(load(None, environ), store_url="redis://127.0.0.1:1", secret=b"s", warn=lambda _: None)
    async with app.router.lifespan_context(app):
        paths = ("/health/liveness", "/console", "/tidemark/events")
        print(*[await ask(app, path) for path in paths])

asyncio.run(main())
asking = Path("asking.yaml")
asking.write_text("memory_flush: {enabled: true}\\n")
try:
    check_settings(load(asking, {"HOME": "."}))
except ConfigError as error:
    print(error)
print(CliRunner().invoke(cli, ["--help"]).output)
"""
"""Starts a server of the tree in the working folder, asks three of its paths, and shows its commands."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """The package without three features: no folder, no line."""
    for name in ("proxy/tidemark", "config"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    listed = tmp_path / "proxy/tidemark/app/features.py"
    lines = listed.read_text().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith(tuple(f'    "{name}.feature:' for name in LEFT_OUT))]
    assert len(lines) - len(kept) == len(LEFT_OUT)
    listed.write_text("".join(kept))
    for name in LEFT_OUT:
        shutil.rmtree(tmp_path / "proxy/tidemark/features" / name)
    return tmp_path


def test_a_server_starts_without_three_features(tree: Path) -> None:
    """Its other paths are served, and so is the console; the commands of the missing features are gone."""
    environ = {**os.environ, "PYTHONPATH": str(tree / "proxy"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", ASK]
    done = subprocess.run(command, cwd=tree, env=environ, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]
    statuses, _, rest = done.stdout.partition("\n")
    refusal, _, commands = rest.partition("\n")
    assert statuses.split() == ["200", "303", "404"]
    assert refusal.startswith("memory_flush.enabled asks for the feature memory_flush, which")
    assert "models" in commands
    assert "flush" not in commands
