"""``tidemark bench fidelity --window``: measures what a whole Tidemark forwards of the user's own conversations.

``bench.py`` fetches the conversations. They are sent through a Tidemark of this process, with and without recall.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from tidemark.app.application import create_app
from tidemark.config import load
from tidemark.core.frozen import frozen
from tidemark.fidelity import ExportedConversation
from tidemark.fidelity.production import ProductionMeasurement, Share, measure_production
from tidemark.fidelity.replaying import replay_settings, replaying, turns_of
from tidemark.telemetry.logging import configure
from tidemark.terminal.progress import progress
from tidemark.terminal.tables import print_json, print_table, printable

HEADS = ("recall", "facts", "compactions", "tokens", "of", "in the last request", "user named again", "reply named")
RECALLS: Mapping[str, Mapping[str, Any]] = {"none": {"max_tokens": 0, "tool": False}, "as configured": {}}


@frozen
class RecallRow:
    """What was measured with one kind of recall."""

    recall: str
    sums: ProductionMeasurement


async def measure_window(
    config: Path | None, conversations: Sequence[ExportedConversation], window: int
) -> Sequence[RecallRow]:
    """Send the conversations through a window, once without recall and once as configured.

    :raises click.ClickException: none could be measured; the message says why
    """
    configure("error")
    settings = load(config, os.environ)
    models = dict.fromkeys(conversation.model for conversation in conversations)
    turns = sum(len(turns_of(list(map(json.loads, each.messages)))) for each in conversations) * len(RECALLS)
    rows = []
    with progress("sending", turns, unit=f"of {turns} requests") as bar:
        for name, recall in RECALLS.items():
            own = replay_settings(settings, models, window, recall)
            async with replaying(create_app, own) as replay:
                sums = await measure_production(replay, conversations, advance=bar.advance)
            rows.append(RecallRow(name, sums))
    _tell(rows, len(conversations), window)
    return rows


def _tell(rows: Sequence[RecallRow], count: int, window: int) -> None:
    """Say what is in no figure.

    :raises click.ClickException: nothing is in any
    """
    for failure in dict.fromkeys(failure for row in rows for failure in row.sums.failures):
        click.echo(f"warning: left out: {printable(failure)}", err=True)
    if all(row.sums.conversations for row in rows):
        sums = rows[-1].sums
        click.echo(f"Sent {sums.conversations} of {count} stored conversations; none was changed.", err=True)
        return
    if any(row.sums.failures for row in rows):
        mend = "No request of them fits: use a larger --window."
    elif count:
        mend = "All were forwarded whole: use a smaller --window, or see compaction.enabled."
    else:
        mend = "Nothing would be compacted: export others by a larger --stored."
    raise click.ClickException(f"None of {count} stored conversations was compacted in {window:,} tokens. {mend}")


def show_window(rows: Sequence[RecallRow], window: int, *, as_json: bool) -> None:
    """Print the figures."""
    if as_json:
        print_json({"strategy": "extractive", "window": window, "figures": [_members(row) for row in rows]})
        return
    lines = []
    for row in rows:
        for figure in row.sums.figures():
            first = figure.kind == "all"
            sums = [str(row.sums.compactions), f"{row.sums.tokens:,}", f"{row.sums.whole_tokens:,}"]
            shares = [_cell(share) for share in (figure.last, figure.asked, figure.answered)]
            lines.append((row.recall, figure.kind, *(sums if first else ("", "", "")), *shares))
    print_table(HEADS, lines)


def _members(row: RecallRow) -> Mapping[str, object]:
    """Return the figures with one kind of recall as JSON has them."""
    sums = row.sums
    return {
        "recall": row.recall,
        "conversations": sums.conversations,
        "compactions": sums.compactions,
        "tokens": sums.tokens,
        "whole_tokens": sums.whole_tokens,
        "kinds": [asdict(figure) for figure in sums.figures()],
    }


def _cell(share: Share) -> str:
    if not share.facts:
        return "-"
    return f"{share.survivors}/{share.facts} {share.survivors / share.facts:.0%}"
