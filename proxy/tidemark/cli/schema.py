"""The command ``tidemark schema``: it prints the JSON Schema of the configuration, for editors and checks.

``cli/main.py`` adds it to its group.
"""

from __future__ import annotations

import json

import click

from tidemark.terminal.examples import example


@click.command(
    epilog=example("tidemark schema > tidemark.schema.json"), short_help="Print the JSON Schema of the configuration."
)
def schema() -> None:
    """Print the JSON Schema of the configuration, with which editors complete and validate it."""
    from tidemark.config import configuration_schema

    click.echo(json.dumps(configuration_schema(), indent=2, ensure_ascii=False))
