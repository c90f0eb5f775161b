"""The command ``tidemark keys``: it manages the keys of the application over HTTP, through a running server.

``cli/main.py`` adds it to its group. It asks as the operator: with ``TIDEMARK_ADMIN_TOKEN``, or from the server's own
machine if the server has no token.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click

from tidemark.terminal.http_client import request, url_option
from tidemark.terminal.options import config_option, example, json_option, warn
from tidemark.terminal.tables import print_json, print_table

PATH = "/tidemark/keys"
COLUMNS: Mapping[str, str] = {
    "id": "id",
    "name": "name",
    "tenant": "tenant",
    "models": "models",
    "expires": "expires",
    "requests_per_minute": "requests/min",
    "tokens_per_day": "tokens/day",
    "concurrent": "at once",
}
"""The fields of the table with their headings."""
_whole = click.IntRange(min=1)


def _on_server(command: Any) -> Any:
    for option in (json_option, url_option, config_option):
        command = option(command)
    return command


@click.group(epilog=example("tidemark keys list"), short_help="Make, show, rotate and revoke keys of clients.")
def keys() -> None:
    """Manage the keys that clients have with `auth: {mode: keys}`. A server must be running."""


@keys.command(epilog=example("tidemark keys create --name app --models 'gpt-*' --expires 2030-12-31"))
@_on_server
@click.option("--name", required=True, help="The key's own name.")
@click.option("--tenant", show_default="the name", help="Whose conversations they are; keys may share one.")
@click.option("--models", metavar="A,B", show_default="all", help="Models that it may use; * stands for any text.")
@click.option("--requests-per-minute", type=_whole, metavar="N", help="The key's own bound.")
@click.option("--tokens-per-day", type=_whole, metavar="N", help="The same.")
@click.option("--concurrent", type=_whole, metavar="N", help="Requests that are answered at once.")
@click.option("--expires", metavar="DATE", help="From when on it is refused, as 2030-12-31 (midnight, UTC).")
def create(config: Path | None, url: str | None, as_json: bool, models: str | None, **fields: Any) -> None:
    """Make a key and show it, once."""
    stated = {name: value for name, value in fields.items() if value is not None}
    if models is not None:
        stated["models"] = [name.strip() for name in models.split(",")]
    _show_secret(_ask(config, url, "POST", "", stated), as_json=as_json)


@keys.command("list", epilog=example("tidemark keys list --json"))
@_on_server
def list_keys(config: Path | None, url: str | None, as_json: bool) -> None:
    """Show all keys, without their secrets."""
    answer = _ask(config, url, "GET", "")
    _show(answer, answer["data"], as_json=as_json)


@keys.command(epilog=example("tidemark keys show f3k9x2m7q1ab"))
@_on_server
@click.argument("identifier", metavar="ID")
def show(config: Path | None, url: str | None, as_json: bool, identifier: str) -> None:
    """Show one key, without its secret."""
    answer = _ask(config, url, "GET", "/" + quote(identifier, safe=""))
    _show(answer, [answer], as_json=as_json)


@keys.command(epilog=example("tidemark keys rotate f3k9x2m7q1ab --grace 24"))
@_on_server
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=0,
    show_default=True,
    metavar="HOURS",
    help="How long the old one works.",
)
@click.argument("identifier", metavar="ID")
def rotate(config: Path | None, url: str | None, as_json: bool, grace: float, identifier: str) -> None:
    """Give a key a new secret and show it, once. Its conversations stay."""
    path = f"/{quote(identifier, safe='')}/rotate"
    _show_secret(_ask(config, url, "POST", path, {"grace_hours": grace}), as_json=as_json)


@keys.command(epilog=example("tidemark keys revoke f3k9x2m7q1ab"))
@_on_server
@click.argument("identifier", metavar="ID")
def revoke(config: Path | None, url: str | None, as_json: bool, identifier: str) -> None:
    """Refuse a key from now on. What its tenant has stored stays."""
    answer = _ask(config, url, "DELETE", "/" + quote(identifier, safe=""))
    if as_json:
        print_json(answer)
    else:
        click.echo(f"Revoked {answer['name']} ({answer['id']}).")


def _ask(
    config: Path | None, url: str | None, method: str, path: str, fields: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    server = {"url": url, "config": config, "operator": True if os.environ.get("TIDEMARK_ADMIN_TOKEN") else None}
    body = None if fields is None else json.dumps(fields).encode()
    answer: dict[str, Any] = json.loads(b"".join(request(server, method, PATH + path, body)))
    for warning in answer.get("warnings", ()):
        warn(warning)
    return answer


def _show_secret(answer: Mapping[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    click.echo(answer["key"])
    click.echo(f"This is the key {answer['name']} ({answer['id']}). Nobody can show it again.", err=True)


def _show(answer: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    print_table(list(COLUMNS.values()), [[_cell(row[name]) for name in COLUMNS] for row in rows])


def _cell(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(value) or "all"
    if isinstance(value, int):
        return f"{value:,}"
    return "-" if value is None else str(value)


COMMANDS = (keys,)
