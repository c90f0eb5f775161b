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
RECALLS: Mapping[str, Mapping[str, Any]] = {"none": {"max_tokens": 0}, "as configured": {}}


@frozen
class RecallRow:
    """What was measured with one kind of recall."""

    recall: str
    sums: ProductionMeasurement


async def measure_window(
    config: Path | None, conversations: Sequence[ExportedConversation], window: int
) -> Sequence[RecallRow]:
    """Send the conversations through a window, once without recall and once as configured.

    :returns: a row for each, of the conversations that were compacted both times
    :raises click.ClickException: none could be measured; the message says why
    """
    configure("error")
    settings = load(config, os.environ)
    models = dict.fromkeys(conversation.model for conversation in conversations)
    turns = sum(len(turns_of(list(map(json.loads, each.messages)))) for each in conversations) * len(RECALLS)
    measured: dict[str, ProductionMeasurement] = {}
    with progress("sending", turns, unit=f"of {turns} requests") as bar:
        for name, recall in RECALLS.items():
            own = replay_settings(settings, models, window, recall)
            async with replaying(create_app, own) as replay:
                measured[name] = await measure_production(replay, conversations, advance=bar.advance)
    compacted = set.intersection(*(set(sums.parts) for sums in measured.values()))
    failures = {identifier: reason for sums in measured.values() for identifier, reason in sums.failures.items()}
    _tell(len(compacted), failures, len(conversations), window)
    return [RecallRow(name, sums.of_conversations(compacted)) for name, sums in measured.items()]


def _tell(compacted: int, failures: Mapping[str, str], count: int, window: int) -> None:
    """Say what is in no figure.

    :param compacted: how many conversations are in the figures
    :param failures: why others were left out
    :raises click.ClickException: nothing is in any
    """
    for identifier, reason in failures.items():
        click.echo(f"warning: left out: {printable(f'{identifier}: {reason}')}", err=True)
    whole = count - compacted - len(failures)
    others = f"{whole} not compacted, {len(failures)} left out"
    if compacted:
        click.echo(f"Measured {compacted} of {count} stored conversations, {others}; none was changed.", err=True)
        return
    if failures and whole:
        mend = f"{others}: a larger --window has space for those left out, a smaller one compacts the others."
    elif failures:
        mend = "Each has a request that was refused: use a larger --window if it does not fit."
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
        "conversations": len(sums.parts),
        "compactions": sums.compactions,
        "tokens": sums.tokens,
        "whole_tokens": sums.whole_tokens,
        "kinds": [asdict(figure) for figure in sums.figures()],
    }


def _cell(share: Share) -> str:
    if not share.facts:
        return "-"
    return f"{share.survivors}/{share.facts} {share.survivors / share.facts:.0%}"
