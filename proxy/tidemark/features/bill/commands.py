"""The command ``tidemark gain``: it shows what a running server's requests cost, and what compaction saved.

``cli/main.py`` adds it. It asks as the operator, with the admin token of the environment if there is one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import click

from tidemark.terminal.http_client import request, server_url, url_option
from tidemark.terminal.options import config_option, example, json_option
from tidemark.terminal.tables import plain_lines, print_json, printable

HEADS = ("requests", "input", "cached", "paid", "uncompacted", "saved")
SHADOW_HEADS = ("requests in shadow mode", "paid", "compacted", "would save")
UNKNOWN = "no known price"


@click.command(
    epilog=example("tidemark gain --since 30d --by day"), short_help="Show what requests cost, and what was saved."
)
@config_option
@url_option
@json_option
@click.option("--since", default="7d", show_default=True, help="Days, with today: 1d to 400d.")
@click.option("--shadow", is_flag=True, help="Requests in shadow mode: what compaction would save.")
@click.option("--by", type=click.Choice(("model", "day")), default="model", show_default=True, help="Rows.")
def gain(config: Path | None, url: str | None, as_json: bool, since: str, by: str, *, shadow: bool) -> None:
    """Show what requests cost by their providers' counts, and what they would have cost uncompacted.

    Paid includes the models that write summaries. If Tidemark cost more than it saved, the row says so, in red.
    """
    operator = bool(os.environ.get("TIDEMARK_ADMIN_TOKEN"))
    server = {"url": url or server_url(config), "config": config, "operator": operator}
    path = f"/tidemark/gain?{urlencode({'since': since, 'by': by})}"
    bill = json.loads(b"".join(request(server, "GET", path)))
    if as_json:
        print_json(bill)
        return
    rows = [(row[by], row) for row in bill["data"]]
    if len(rows) != 1:
        rows.append(("all", bill))
    heads, cells_of = (SHADOW_HEADS, _shadow_cells) if shadow else (HEADS, _cells)
    lines = plain_lines((by, *heads), [(printable(name), *cells_of(row)) for name, row in rows])
    click.echo(lines[0])
    for line, (_, row) in zip(lines[1:], rows, strict=True):
        saved = forecast_saving(row) if shadow else row["saved_usd"]
        click.secho(line, fg="red" if (saved or 0) < 0 else None)
    for words in _notes(bill):
        click.echo(words, err=True)


def _cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    tokens = row["input_tokens"]
    share = f"{row['cached_tokens'] / tokens:.0%}" if tokens else "-"
    counts = (f"{row['requests']:,}", f"{tokens:,}", share)
    if row["paid_usd"] is None:
        return (*counts, UNKNOWN if row["requests"] else "-", "-", f"{row['tokens_saved']:,} tokens")
    return (*counts, dollars(row["paid_usd"]), dollars(row["uncompacted_usd"]), saving(row))


def _shadow_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    saved = forecast_saving(row)
    if saved is None:
        return ("0", "-", "-", "-")
    paid = row["shadow_usd"]
    return (f"{row['shadow_requests']:,}", dollars(paid), dollars(row["forecast_usd"]), _difference(saved, paid))


def forecast_saving(row: Mapping[str, Any]) -> float | None:
    """Return what compaction would have saved of the requests in shadow mode; None without such requests."""
    return None if row["shadow_usd"] is None else row["shadow_usd"] - row["forecast_usd"]


def dollars(amount: float) -> str:
    """Return an amount as people read it: with four digits behind the point, as most requests cost cents."""
    return f"${amount:,.4f}"


def saving(row: Mapping[str, Any]) -> str:
    """Return what was saved, or how much more was paid."""
    saved = row["saved_usd"]
    return "unknown" if saved is None else _difference(saved, row["uncompacted_usd"])


def _difference(saved: float, whole: float) -> str:
    share = f" ({abs(saved) / whole:.0%})" if whole else ""
    return f"{dollars(-saved)} more{share}" if saved < 0 else f"{dollars(saved)}{share}"


def _notes(bill: Mapping[str, Any]) -> list[str]:
    """Return what the sums lack."""
    words = {
        "unpriced_requests": "requests have no known price; model_info can state one",
        "uncounted_requests": "requests were not counted by their provider",
        "unknown_summaries": "summaries have no known price or count, so the saving is unknown",
    }
    return [f"{bill[name]:,} {text}" for name, text in words.items() if bill[name]]


COMMANDS = (gain,)
