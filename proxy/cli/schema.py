"""The command ``tidemark schema``: it prints the JSON Schema of the configuration, for editors and checks.

``cli/main.py`` adds it to its group.
"""

from __future__ import annotations

import json

import click


@click.command()
def schema() -> None:
    r"""Print the JSON Schema of the configuration, with which editors complete and validate it.

    \b
    Example: tidemark schema > tidemark.schema.json
    """
    from proxy.config import configuration_schema

    click.echo(json.dumps(configuration_schema(), indent=2, ensure_ascii=False))
