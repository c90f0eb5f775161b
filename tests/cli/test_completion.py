"""``tidemark completion``: what it writes, and that real shells complete by it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tidemark.cli.completion import SHELLS

START = {"bash": ".bashrc", "zsh": ".zshrc", "fish": ".config/fish/completions/tidemark.fish"}
"""What each shell reads when it starts."""
ASKED = {
    "bash": [
        "-ic",
        'COMP_WORDS=(tidemark comple); COMP_CWORD=1; _tidemark_completion tidemark; echo "${COMPREPLY[@]}"',
    ],
    "zsh": ["-ic", "print $_comps[tidemark]"],
    "fish": ["-c", "complete --do-complete 'tidemark comple'"],
}
ANSWER = {"bash": "completion", "zsh": "_tidemark_completion", "fish": "completion"}


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home with a program ``tidemark``, and nothing else."""
    program = tmp_path / "bin" / "tidemark"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tidemark "$@"\n')
    program.chmod(0o755)
    return tmp_path


def environment(home: Path, **more: str) -> dict[str, str]:
    """The variables of somebody with this home."""
    return {
        "HOME": str(home),
        "PATH": f"{home / 'bin'}:/usr/bin:/bin",
        "PYTHONPATH": os.pathsep.join(sys.path),
        "TERM": "dumb",
        **more,
    }


def install(home: Path, *shell: str, **more: str) -> str:
    """Install by the one command; what it said."""
    command = [str(home / "bin" / "tidemark"), "completion", *shell, "--install"]
    done = subprocess.run(command, env=environment(home, **more), capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_a_real_shell_completes_after_one_command(home: Path, shell: str) -> None:
    """Bash and fish are asked for what they would offer, zsh for the function that it would call."""
    program = shutil.which(shell)
    if program is None:
        pytest.skip(f"{shell} is not installed")
    said = install(home, shell)
    assert str(home / START[shell]) in said
    done = subprocess.run(
        [program, *ASKED[shell]],
        env=environment(home),
        cwd=home,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert ANSWER[shell] in done.stdout.split(), done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_a_second_time_changes_nothing_and_says_so(home: Path, shell: str) -> None:
    """Also if lines were added behind ours since."""
    install(home, shell)
    file = home / START[shell]
    if shell != "fish":
        file.write_text(file.read_text() + "alias t=tidemark\n")
    before = file.read_bytes()
    assert f"{file} is as it was" in install(home, shell)
    assert file.read_bytes() == before


@pytest.mark.parametrize("own", ["", "a=1\n", "a=1", 'a="\x0b\x85"\n\n'])
def test_what_stands_in_the_shells_own_file_stays(home: Path, own: str) -> None:
    """One line is added at the end; another folder's line leaves."""
    (home / ".bashrc").write_text(own)
    install(home, "bash", XDG_DATA_HOME=str(home / "before"))
    install(home, "bash")
    text = (home / ".bashrc").read_text()
    start = own if own.endswith("\n") or not own else f"{own}\n"
    assert text.startswith(start)
    assert text.removeprefix(start).count("\n") == 1
    assert text.count("--install") == 1
    assert "before" not in text


def test_a_file_behind_a_link_is_written_where_it_is(home: Path) -> None:
    """Many keep such files in a repository, and link to them."""
    kept = home / "dotfiles"
    kept.write_text("a=1\n")
    kept.chmod(0o644)
    (home / ".bashrc").symlink_to(kept)
    install(home, "bash")
    assert (home / ".bashrc").is_symlink()
    assert "completion.bash" in kept.read_text()
    assert kept.stat().st_mode & 0o777 == 0o644


def test_the_shell_is_that_of_the_environment(home: Path) -> None:
    """Without one, the message names those that can be completed."""
    assert "tidemark.fish" in install(home, SHELL="/usr/bin/fish")
    done = subprocess.run(
        [str(home / "bin" / "tidemark"), "completion"],
        env=environment(home, SHELL="/bin/sh"),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2
    assert "bash, zsh, fish" in done.stderr
