"""The command ``tidemark completion``: it prints a script with which a shell completes the command's words.

``cli/main.py`` adds it to its group.
"""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from tidemark.terminal.examples import example

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_TIDEMARK_COMPLETE"


@click.command(
    epilog=example(
        'bash: eval "$(tidemark completion bash)"   in ~/.bashrc',
        'zsh:  eval "$(tidemark completion zsh)"    in ~/.zshrc',
        "fish: tidemark completion fish | source   in ~/.config/fish/config.fish",
    ),
    short_help="Print the completion of SHELL.",
)
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script with which SHELL completes commands and options."""
    kind = get_completion_class(shell)
    root = context.find_root().command
    if kind is None:
        raise click.UsageError(f"{shell} cannot be completed; use one of {', '.join(SHELLS)}.")
    click.echo(kind(root, {}, "tidemark", VARIABLE).source())
