"""``tidemark models``: the registry of models from the command line, straight in the store.

Beside ``cli/main.py``, whose group it joins. A server that runs on the same store sees a change within half a second.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from proxy.app import StoredParts
    from proxy.config import Settings
    from proxy.core.ports import Caller

COLUMNS: Mapping[str, str] = {
    "id": "model",
    "window": "window",
    "limit": "limit",
    "high_water": "high water",
    "prepare": "prepare",
    "low_water": "low water",
    "source": "source",
    "overrides": "set",
    "calibration": "calibration",
}
"""Of the table: field and heading."""

config_option = click.option(
    "--config",
    "config",
    type=click.Path(dir_okay=False, path_type=Path),
    help="The YAML file; without it TIDEMARK_CONFIG, else all defaults.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
Ask = Callable[["StoredParts", "Caller"], Awaitable[Mapping[str, Any]]]


@click.group()
def models() -> None:
    """Show and set what is known of models: windows, thresholds, retention."""


@models.command("list")
@config_option
@json_option
def list_models(config: Path | None, as_json: bool) -> None:
    """Show all models, those of the file and those that requests have found."""
    told = _asked(config, lambda stored, caller: stored.registry.listed(caller, None))
    _print(told, told["data"], as_json=as_json)


@models.command()
@config_option
@json_option
@click.argument("model")
def show(config: Path | None, as_json: bool, model: str) -> None:
    """Show one model. MODEL is provider:model, or the name that clients use."""
    told = _asked(config, lambda stored, caller: stored.registry.described(model, caller, None))
    _print(told, [told], as_json=as_json)


@models.command("set")
@config_option
@json_option
@click.argument("model")
@click.argument("fields", metavar="FIELD=VALUE...", nargs=-1, required=True)
def set_fields(config: Path | None, as_json: bool, model: str, fields: tuple[str, ...]) -> None:
    """Set fields of MODEL: max_input_tokens, max_output_tokens, context_window, threshold, retention_tokens.

    VALUE null takes back what was set of that field.
    """
    said = dict(_read(field) for field in fields)
    told = _asked(config, lambda stored, caller: stored.registry.change(model, said, caller, None))
    _print(told, [told], as_json=as_json)


@models.command()
@config_option
@json_option
@click.argument("model")
def reset(config: Path | None, as_json: bool, model: str) -> None:
    """Take back all that was set of MODEL; what was found of it holds again."""
    told = _asked(config, lambda stored, caller: stored.registry.reset(model, caller, None))
    _print(told, [told], as_json=as_json)


def _read(field: str) -> tuple[str, object]:
    from proxy.config import as_typed

    name, equals, text = field.partition("=")
    if not (name and equals):
        raise click.UsageError(f"Write FIELD=VALUE, for example max_input_tokens=32768, and not {field!r}.")
    return name.strip(), as_typed(text.strip())


def _asked(config: Path | None, ask: Ask) -> Mapping[str, Any]:
    """What the registry answers; everything that was started for it is stopped again."""
    from proxy.app import StoredParts
    from proxy.config import load
    from proxy.core.ports import Caller

    async def answer(settings: Settings, url: str) -> Mapping[str, Any]:
        stored = StoredParts(settings, url, lambda warning: click.echo(f"warning: {warning}", err=True))
        try:
            return await ask(stored, Caller(b"", ()))
        finally:
            await stored.aclose()

    settings = load(config, os.environ)
    with ExitStack() as stack:
        return asyncio.run(answer(settings, store_url(settings, stack)))


def store_url(settings: Settings, stack: ExitStack) -> str:
    """The store's address; an embedded one that does not run already runs until ``stack`` unwinds."""
    if str(settings.store.url) != "embedded":
        return str(settings.store.url)
    from proxy.store.embedded.server import EmbeddedValkey, running_url

    folder = settings.data_dir / "store"
    return running_url(folder) or stack.enter_context(EmbeddedValkey(folder)).url


def _print(told: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(told, ensure_ascii=False))
        return
    cells = [list(COLUMNS.values()), *([_cell(row[name]) for name in COLUMNS] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        line = "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True))
        click.echo(line.rstrip())


def _cell(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, Mapping):
        if "factor" in value:
            return f"{value['factor']:.2f} of {value['replies']}"
        # as ``models set`` takes it
        return (
            ", ".join(f"{name}={said if isinstance(said, int) else f'{said:g}'}" for name, said in value.items()) or "-"
        )
    # Clients choose the names, and a terminal would obey what is in them.
    return "-" if value is None else "".join(char if char.isprintable() else "?" for char in str(value))
