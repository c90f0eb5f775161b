"""Every command has a readable help, an example, JSON and documented exit codes: rules for new commands, too."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.shell_completion import ShellComplete
from click.testing import CliRunner

from tidemark.cli.completion import COMPLETION_VARIABLE
from tidemark.cli.main import cli

LISTS_NOTHING = {
    "compact": "prints JSON always",
    "completion": "prints a shell's script",
    "flush read": "prints lines of JSON always",
    "audit export": "prints lines of JSON always",
    "conversations export": "prints lines of JSON always",
    "count": "prints JSON always",
    "demo": "tells a story",
    "flush work": "delivers until it is ended",
    "init": "writes a file",
    "mcp": "speaks a protocol of its own",
    "schema": "prints JSON always",
    "serve": "serves until it is ended",
    "unwrap": "restores a file",
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


def helped(words: tuple[str, ...], columns: int = 80) -> str:
    """The help of a command on a terminal of so many columns."""
    done = CliRunner(env={"COLUMNS": str(columns)}).invoke(cli, [*words, "--help"], prog_name="tidemark")
    return done.stdout


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_fits_80_columns_and_stays_so_on_a_wider_terminal(words: tuple[str, ...]) -> None:
    """Long lines are harder to read; nothing is cut either, neither a sentence nor the line of a subcommand."""
    text = helped(words)
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert [line for line in text.splitlines() if line.endswith("...") and not line.startswith("Usage:")] == []
    assert helped(words, 200) == text


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_begins_with_a_sentence_that_says_what_the_command_does(words: tuple[str, ...]) -> None:
    """It is a sentence in the list of commands, too."""
    command = COMMANDS[words]
    sentence, dot, _ = (command.help or "").partition(".")
    assert dot
    assert sentence[0].isupper()
    assert 2 <= len(sentence.split()) <= 20
    assert command.get_short_help_str(limit=200).endswith(".")


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_every_option_says_what_it_does_and_its_default(words: tuple[str, ...]) -> None:
    """A switch is off by default, and an option without a default adds something."""
    context = click.Context(LEAVES[words])
    for option in (each for each in LEAVES[words].params if isinstance(each, click.Option)):
        assert option.help, option.opts
        assert option.help.endswith("."), option.opts
        has_default = not option.is_flag and isinstance(option.get_default(context), str | int)
        assert bool(option.show_default) or not has_default, option.opts


EXIT_CODES = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
ROWS = re.findall(
    r"^\| ((?:`[a-z ]+`(?:, )?)+) \| (.*) \|$", EXIT_CODES.partition("| command | exit codes |")[2], re.MULTILINE
)


def test_the_exit_codes_of_every_command_are_documented() -> None:
    """Each command stands in one row, and each code in the table of codes."""
    commands = [name for names, _ in ROWS for name in re.findall(r"`([a-z ]+)`", names)]
    assert sorted(commands) == sorted(" ".join(words) for words in LEAVES)
    codes = {code for _, text in ROWS for code in re.findall(r"(?:^|; |, )(\d{1,3})(?=[:,])", text)}
    assert codes <= set(re.findall(r"^\| (\d+) \|", EXIT_CODES, re.MULTILINE))


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_what_is_listed_is_listed_as_json_too(words: tuple[str, ...]) -> None:
    """A command without ``--json`` says here why."""
    options = {option for parameter in LEAVES[words].params for option in parameter.opts}
    assert ("--json" in options) != (" ".join(words) in LISTS_NOTHING)


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_shell_completes_commands_and_options(words: tuple[str, ...]) -> None:
    """All of them."""
    completion = ShellComplete(cli, {}, "tidemark", COMPLETION_VARIABLE)
    command = COMMANDS[words]
    if isinstance(command, click.Group):
        offered = {item.value for item in completion.get_completions(list(words), "")}
        assert offered == set(command.commands)
    offered = {item.value for item in completion.get_completions(list(words), "--")}
    options = [option for option in command.params if isinstance(option, click.Option)]
    assert offered >= {name for option in options for name in option.opts if name.startswith("--")}
