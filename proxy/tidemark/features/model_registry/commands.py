"""The command ``tidemark models``: it shows and changes the registry of models, directly in the store.

``cli/main.py`` adds it to its group. A server on the same store sees a change within half a second.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemark.terminal.audited import audit
from tidemark.terminal.options import config_option, example, json_option, warn, with_store
from tidemark.terminal.tables import print_json, print_table

if TYPE_CHECKING:
    from tidemark.config import Settings
    from tidemark.core.ports import Caller
    from tidemark.features.model_registry.registry import ModelRegistry

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
"""The fields of the table with their headings."""

Ask = Callable[["ModelRegistry", "Caller"], Awaitable[Mapping[str, Any]]]


@click.group(epilog=example("tidemark models list"), short_help="Show and change the windows and thresholds of models.")
def models() -> None:
    """Show and change the registry of models: windows, thresholds, retention."""


@models.command("list", epilog=example("tidemark models list --json"))
@config_option
@json_option
def list_models(config: Path | None, as_json: bool) -> None:
    """Show all models, those of the file and those that requests used."""
    answer = _ask_registry(config, lambda registry, caller: registry.listed(caller, None))
    _print(answer, answer["data"], as_json=as_json)


@models.command(epilog=example("tidemark models show openai:gpt-4o"))
@config_option
@json_option
@click.argument("model")
def show(config: Path | None, as_json: bool, model: str) -> None:
    """Show one model. MODEL is provider:model, or the name that clients use."""
    answer = _ask_registry(config, lambda registry, caller: registry.described(model, caller, None))
    _print(answer, [answer], as_json=as_json)


@models.command(
    "set",
    epilog=example("tidemark models set gpt-4o threshold=0.9 retention_tokens=2000"),
    short_help="Set fields of MODEL.",
)
@config_option
@json_option
@click.argument("model")
@click.argument("fields", metavar="FIELD=VALUE...", nargs=-1, required=True)
def set_fields(config: Path | None, as_json: bool, model: str, fields: tuple[str, ...]) -> None:
    """Set fields of MODEL: max_input_tokens, max_output_tokens, context_window, threshold, retention_tokens.

    VALUE null resets that field.
    """
    values = dict(_read(field) for field in fields)
    answer = _ask_registry(
        config, lambda registry, caller: registry.change(model, values, caller, None), "model.change", model
    )
    _print(answer, [answer], as_json=as_json)


@models.command(epilog=example("tidemark models reset gpt-4o"), short_help="Reset all settings of MODEL.")
@config_option
@json_option
@click.argument("model")
def reset(config: Path | None, as_json: bool, model: str) -> None:
    """Reset all settings of MODEL; its window is found by its sources again."""
    answer = _ask_registry(config, lambda registry, caller: registry.reset(model, caller, None), "model.reset", model)
    _print(answer, [answer], as_json=as_json)


def _read(field: str) -> tuple[str, object]:
    from tidemark.config import as_typed

    name, equals, text = field.partition("=")
    if not (name and equals):
        raise click.UsageError(f"Write FIELD=VALUE, for example max_input_tokens=32768, and not {field!r}.")
    return name.strip(), as_typed(text.strip())


def _ask_registry(config: Path | None, ask: Ask, action: str = "", model: str = "") -> Mapping[str, Any]:
    """Return the registry's answer, and stop everything that this started.

    :param action: what the audit log says of it; empty if it only reads
    """
    from tidemark.core.ports import NO_CREDENTIAL
    from tidemark.features.model_registry.feature import ModelRegistryFeature
    from tidemark.worker.worker import Worker

    async def run(settings: Settings, url: str) -> Mapping[str, Any]:
        async with aclosing(Worker(settings, warn, store_url=url)) as worker:
            await worker.store.check_schema()
            await worker.live.refresh()
            if action:
                await audit(worker.store.ask, settings, action, model)
            return await ask(ModelRegistryFeature(worker).registry, NO_CREDENTIAL)

    return with_store(config, run)


def _print(answer: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], *, as_json: bool) -> None:
    if as_json:
        print_json(answer)
        return
    assumed = [row for row in rows if row["source"] == "default"]
    shown = [{**row, "source": "assumed"} if row in assumed else row for row in map(_with_marks, rows)]
    print_table(list(COLUMNS.values()), [[_cell(row[name]) for name in COLUMNS] for row in shown])
    if assumed:
        first = assumed[0]["id"]
        click.echo(f"No source knows the window of {first}{', and of others' * bool(assumed[1:])}, so it is assumed.")
        click.echo(f"State it: tidemark models set {first} max_input_tokens=TOKENS")


def _with_marks(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a row without marks if a price sets those of each conversation."""
    by_price = {"high_water": "by price", "prepare": None, "low_water": None}
    return {**row, **by_price} if row["price_floor"] is not None else row


def _cell(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, Mapping):
        if "factor" in value:
            return f"{value['factor']:.2f} of {value['replies']}"
        # in the form that ``models set`` accepts
        settings = [f"{name}={number if isinstance(number, int) else f'{number:g}'}" for name, number in value.items()]
        return ", ".join(settings) or "-"
    return "-" if value is None else str(value)


COMMANDS = (models,)
