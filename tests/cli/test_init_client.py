"""``tidemark init`` leads a client to Tidemark, if a person at a terminal or an option names one."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, "-m", "tidemark"]
SETTINGS = {"model": "opus"}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """A person's home with Claude Code and its settings, and a provider's key."""
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "claude"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    (tmp_path / ".claude").mkdir()
    (tmp_path / ".claude" / "settings.json").write_text(json.dumps(SETTINGS))
    kept = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    return {
        **kept,
        "HOME": str(tmp_path),
        "PATH": str(tmp_path / "bin"),
        "TIDEMARK_DATA_DIR": str(tmp_path / "data"),
        "ANTHROPIC_API_KEY": "sk-ant-nothing",
    }


def settings_of(home: Path) -> dict[str, object]:
    """The client's own settings now."""
    read: dict[str, object] = json.loads((home / ".claude" / "settings.json").read_text())
    return read


def at_terminal(environ: dict[str, str], home: Path, answer: bytes) -> tuple[int, str]:
    """Run the command in a terminal in which a person answers; return its exit code and all that was shown."""
    terminal, other = pty.openpty()
    try:
        os.write(terminal, answer)
        done = subprocess.run(
            [*COMMAND, "init"], env=environ, cwd=home, stdin=other, stdout=other, stderr=other, timeout=60, check=False
        )
        os.close(other)
        return done.returncode, os.read(terminal, 65_536).decode()
    finally:
        os.close(terminal)


def test_a_person_is_asked_for_the_client(environ: dict[str, str], tmp_path: Path) -> None:
    """Among those that are installed; its settings lead to Tidemark, the rest of them stays."""
    code, shown = at_terminal(environ, tmp_path, b"claude\n")
    assert (code, "(claude, none) [none]" in shown, "tidemark unwrap claude" in shown) == (0, True, True)
    changed = settings_of(tmp_path)
    assert changed.pop("env")["ANTHROPIC_BASE_URL"] == "http://127.0.0.1:8787"  # type: ignore[index] # a table
    assert changed == SETTINGS
    undone = subprocess.run([*COMMAND, "unwrap", "claude"], env=environ, cwd=tmp_path, check=False, timeout=60)
    assert (undone.returncode, settings_of(tmp_path)) == (0, SETTINGS)


def test_nobody_need_use_one(environ: dict[str, str], tmp_path: Path) -> None:
    """An empty answer changes no client; where none is installed, nothing is asked."""
    code, shown = at_terminal(environ, tmp_path, b"\n")
    assert (code, settings_of(tmp_path)) == (0, SETTINGS)
    assert "tidemark.yaml is written" in shown
    (tmp_path / "bin" / "claude").unlink()
    (tmp_path / "tidemark.yaml").unlink()
    code, shown = at_terminal(environ, tmp_path, b"")
    assert (code, "Which client" in shown) == (0, False)


def test_a_script_names_the_client(environ: dict[str, str], tmp_path: Path) -> None:
    """It is not asked; what cannot be led is told, and the file is written all the same."""
    command = [*COMMAND, "init", "--force", "--client"]
    done = subprocess.run([*command, "claude"], env=environ, cwd=tmp_path, capture_output=True, check=False, timeout=60)
    assert (done.returncode, "env" in settings_of(tmp_path)) == (0, True)
    again = subprocess.run(
        [*command, "claude"], env=environ, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert (again.returncode, "claude is set already" in again.stderr) == (1, True)
    other = subprocess.run(
        [*command, "llm"], env=environ, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
    )
    assert (other.returncode, "export OPENAI_BASE_URL=" in other.stderr) == (1, True)
    assert (tmp_path / "tidemark.yaml").exists()
