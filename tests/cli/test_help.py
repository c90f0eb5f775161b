"""Every command shows an example, lists as JSON, and is completed by shells: rules that hold for new commands too."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from proxy.cli.completion import VARIABLE
from proxy.cli.main import cli

LISTS_NOTHING = {
    "compact": "prints JSON always",
    "completion": "prints a shell's script",
    "conversations export": "prints lines of JSON always",
    "count": "prints JSON always",
    "demo": "tells a story",
    "flush work": "delivers until it is ended",
    "init": "writes a file",
    "schema": "prints JSON always",
    "serve": "serves until it is ended",
    "wrap": "prints what its command prints",
}
"""The commands without ``--json``, and why."""


def walk(command: click.Command, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command and group with the words that lead to it."""
    yield words, command
    if isinstance(command, click.Group):
        for name, inner in sorted(command.commands.items()):
            yield from walk(inner, (*words, name))


COMMANDS = dict(walk(cli))
LEAVES = {words: command for words, command in COMMANDS.items() if not isinstance(command, click.Group)}


def examples(words: tuple[str, ...]) -> list[str]:
    """The command lines beneath a command's help."""
    done = CliRunner().invoke(cli, [*words, "--help"], prog_name="tidemark")
    assert done.exit_code == 0, done.output
    return [line.strip() for line in done.stdout.partition("Example")[2].splitlines()[1:] if line.strip()]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_shows_an_example_of_the_command(words: tuple[str, ...]) -> None:
    """One that somebody may type as it is."""
    shown = examples(words)
    assert shown
    assert all("tidemark" in line for line in shown)
    assert any(" ".join(("tidemark", *words)) in line for line in shown)


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_an_example_is_a_right_command_line(
    words: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its options and arguments are accepted; nothing is run."""
    monkeypatch.chdir(tmp_path)
    for line in examples(words):
        typed = re.sub(r".*?tidemark ", "", line, count=1)
        given = shlex.split(re.split(r"[>|)]", typed)[0])[len(words) :]
        for name in (word for word in given if word.endswith((".json", ".jsonl"))):
            Path(name).write_text("{}")
        LEAVES[words].make_context(words[-1], given).close()


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_what_is_listed_is_listed_as_json_too(words: tuple[str, ...]) -> None:
    """A command without ``--json`` says here why."""
    options = {option for parameter in LEAVES[words].params for option in parameter.opts}
    assert ("--json" in options) != (" ".join(words) in LISTS_NOTHING)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_shell_completes_commands_and_options(words: tuple[str, ...]) -> None:
    """All of them."""
    completion = ShellComplete(cli, {}, "tidemark", VARIABLE)
    command = COMMANDS[words]
    if isinstance(command, click.Group):
        offered = {item.value for item in completion.get_completions(list(words), "")}
        assert offered == set(command.commands)
    offered = {item.value for item in completion.get_completions(list(words), "--")}
    options = [option for option in command.params if isinstance(option, click.Option)]
    assert offered >= {name for option in options for name in option.opts if name.startswith("--")}
