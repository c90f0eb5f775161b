"""The bare command: a person is told what to do next, a script that it is no whole command line."""

from __future__ import annotations

import os
import pty
import subprocess
import sys

COMMAND = [sys.executable, "-m", "tidemark"]


def test_a_person_is_told_what_to_do_next() -> None:
    """In three lines, each with a command."""
    terminal, other = pty.openpty()
    try:
        done = subprocess.run(COMMAND, stdin=other, stdout=other, stderr=subprocess.PIPE, check=False)
        os.close(other)
        lines = os.read(terminal, 65_536).decode().splitlines()
    finally:
        os.close(terminal)
    assert (done.returncode, done.stderr) == (0, b"")
    assert [line.split("  ")[0] for line in lines] == ["tidemark init", "tidemark wrap claude", "tidemark serve"]


def test_a_script_gets_the_usage_and_the_exit_code_of_a_wrong_command_line() -> None:
    """It wrote a command, and its output is not read by a person."""
    done = subprocess.run(COMMAND, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.startswith("Usage:")) == (2, "", True)
