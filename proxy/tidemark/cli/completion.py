"""The command ``tidemark completion``: prints what makes a shell complete commands and options, or installs it.

``cli/main.py`` adds it to its group. fish reads a folder of completions; bash and zsh get a line in their own file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from shlex import quote

import click
from click.shell_completion import get_completion_class

from tidemark.terminal.options import example
from tidemark.terminal.whole_files import write_whole

SHELLS = ("bash", "zsh", "fish")
COMPLETION_VARIABLE = "_TIDEMARK_COMPLETE"
MARK = "  # by tidemark completion --install"
"""Ends our line in a shell's own file."""


@click.command(
    epilog=example(
        "tidemark completion --install",
        'eval "$(tidemark completion zsh)"   in one shell only',
    ),
    short_help="Print or install the completion of SHELL.",
)
@click.argument("shell", type=click.Choice(SHELLS), required=False)
@click.option("--install", is_flag=True, help="Write it where each new SHELL reads it, and say where.")
@click.pass_context
def completion(context: click.Context, shell: str | None, install: bool) -> None:
    """Print a script with which SHELL completes commands and options; without SHELL, that of $SHELL."""
    shell = shell or Path(os.environ.get("SHELL", "")).name
    kind = get_completion_class(shell) if shell in SHELLS else None
    if kind is None:
        raise click.UsageError(f"Name the shell, as in `tidemark completion bash`: one of {', '.join(SHELLS)}.")
    script = kind(context.find_root().command, {}, "tidemark", COMPLETION_VARIABLE).source()
    if not install:
        click.echo(script)
        return
    try:
        files = _install(shell, script, os.environ)
    except OSError as error:
        raise click.ClickException(f"{error.filename} cannot be written: {error.strerror}.") from error
    for path, is_new in files:
        click.echo(f"{path} {'is written' if is_new else 'is as it was'}")
    click.echo(f"Open a new {shell} to use it.")


def _install(shell: str, script: str, environ: Mapping[str, str]) -> list[tuple[Path, bool]]:
    """Write a shell's files, and return each with whether it changed.

    :raises OSError: one cannot be written
    """
    home = Path.home()
    if shell == "fish":
        folder = Path(environ.get("XDG_CONFIG_HOME") or home / ".config") / "fish" / "completions"
        return [_write(folder / "tidemark.fish", script)]
    own = Path(environ.get("XDG_DATA_HOME") or home / ".local" / "share") / "tidemark" / f"completion.{shell}"
    start = home / ".bashrc" if shell == "bash" else Path(environ.get("ZDOTDIR") or home) / ".zshrc"
    line = f"[ ! -f {quote(str(own))} ] || . {quote(str(own))}{MARK}"
    if shell == "zsh":  # `compdef` is there only once completion was initialised
        line = f"(( $+functions[compdef] )) || {{ autoload -Uz compinit && compinit; }}; {line}"
    return [_write(own, script), _write(start, _with_line(start, line))]


def _with_line(start: Path, line: str) -> str:
    """Return a file's text with our line: one that is there stays in its place, one of earlier leaves."""
    lines = start.read_text("utf-8", "surrogateescape").split("\n") if start.exists() else [""]
    if line not in lines:
        lines = [text for text in lines if not text.endswith(MARK)]
        lines[-1:] = [*lines[-1:], line] if lines[-1] else [line]
        lines.append("")
    return "\n".join(lines)


def _write(path: Path, text: str) -> tuple[Path, bool]:
    """Write a file that does not have this text yet; behind a link, the file that it names.

    :raises OSError: it cannot be written
    """
    path = path.resolve()
    data = text.encode("utf-8", "surrogateescape")
    if path.exists() and path.read_bytes() == data:
        return path, False
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, [data])
    return path, True
