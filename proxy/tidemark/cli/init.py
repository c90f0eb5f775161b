"""The command ``tidemark init``: it writes a first configuration for what it finds on this machine.

``cli/main.py`` adds it to its group.
"""

from __future__ import annotations

import os
from pathlib import Path

import click

from tidemark.cli.local_servers import local_servers
from tidemark.cli.starter_file import providers_with_keys, starter_file
from tidemark.terminal.examples import example
from tidemark.terminal.options import DEFAULT_FILE

STANDARD_OUTPUT = "-"
OWNER_ONLY = 0o600


@click.command(
    epilog=example("tidemark init", "tidemark init --output - > /etc/tidemark.yaml"),
    short_help="Write a configuration for what this machine has.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    default=DEFAULT_FILE,
    show_default=True,
    help="The file to write; - is standard output.",
)
@click.option("--force", is_flag=True, help="Overwrite a file that exists.")
def init(output: str, force: bool) -> None:
    """Write a configuration for the provider keys in the environment and the local servers that answer."""
    path = Path(output)
    if output != STANDARD_OUTPUT and path.exists() and not force:
        message = f"{output} exists and was left as it is. Name another file by --output, or overwrite it by --force."
        raise click.ClickException(message)
    providers, servers = providers_with_keys(os.environ), local_servers()
    text = starter_file(providers, servers)
    if not providers and not servers:
        click.echo("found no provider's key and no local server, so the file has an example only", err=True)
    for line in (
        *(f"{provider.name}: the key in {provider.variable}" for provider in providers),
        *(f"{server.name} at {server.base_url}: {_counted(len(server.models))}" for server in servers),
    ):
        click.echo(f"found {line}", err=True)
    if output == STANDARD_OUTPUT:
        click.echo(text, nl=False)
        return
    try:
        with open(path, "w" if force else "x", encoding="utf-8", opener=_for_owner) as file:
            if path.is_file():
                os.fchmod(file.fileno(), OWNER_ONLY)
            file.write(text)
    except OSError as error:
        raise click.ClickException(f"{output} cannot be written: {error.strerror}.") from error
    option = "" if output == DEFAULT_FILE else f" --config {output}"
    click.echo(f"{output} is written. Next: tidemark doctor{option}", err=True)
    click.echo(f"      and then: tidemark serve{option}", err=True)


def _for_owner(path: str, flags: int) -> int:
    """Open a file that only its owner may read: a key is easily written into it later."""
    return os.open(path, flags, OWNER_ONLY)


def _counted(models: int) -> str:
    return f"{models} model{'' if models == 1 else 's'}"
