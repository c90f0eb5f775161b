"""``tidemark bench fidelity``: measures what survives a compaction, without a server or a store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, get_args

import click

from proxy.cli.examples import example
from proxy.cli.models import config_option
from proxy.cli.progress import ProgressBar, progress
from proxy.cli.tables import print_json, print_table
from proxy.core.conversation.summary import Strategy

if TYPE_CHECKING:
    from proxy.app import Parts
    from proxy.core.ports import Caller
    from proxy.fidelity import Conversation, Figure

HEADS = ("corpus", "facts", "budget", "tokens left", "newest verbatim", "survived", "share")


@click.group(epilog=example("tidemark bench fidelity"))
def bench() -> None:
    """Measure Tidemark on this machine."""


@bench.command(epilog=example("tidemark bench fidelity --budgets 25,50 --json"))
@config_option
@click.option("--file", "talks", type=click.File("rb"), help="LoCoMo's locomo10.json; measured instead of the others.")
@click.option("--strategy", type=click.Choice(get_args(Strategy)), default="extractive", show_default=True)
@click.option("--budgets", default="10,25,50", show_default=True, help="Percent of each conversation's tokens.")
@click.option(
    "--recall",
    type=click.IntRange(0, 99),
    default=0,
    help="Percent of the tokens, within each budget, for messages recalled by questions; 0 measures no recall.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with a figure for each kind of facts.")
def fidelity(
    config: Path | None, talks: IO[bytes] | None, strategy: Strategy, budgets: str, recall: int, *, as_json: bool
) -> None:
    """Measure how many facts survive a compaction, beside the tokens that it leaves."""
    from proxy.app import Parts
    from proxy.config import load
    from proxy.fidelity import (
        generated_cases,
        locomo_cases,
        measure,
        measure_recall,
        measure_rounds,
        question_cases,
    )

    percent = _percent(budgets)
    if recall >= min(percent):
        raise click.BadParameter("use less than the smallest budget", param_hint="--recall")
    own_cases = question_cases if recall else generated_cases
    cases = own_cases() if talks is None else locomo_cases(talks.read())

    async def figures(bar: ProgressBar) -> list[Figure]:
        parts = Parts(load(config, os.environ), lambda warning: click.echo(f"warning: {warning}", err=True))
        try:
            offline = parts.offline_service()

            async def compact(body: bytes, max_tokens: int) -> bytes:
                request = await offline.dialect.parse(body, anonymous=True)
                compacted = await offline.compact_request(request, max_tokens, strategy, _caller())
                bar.advance(1)
                return compacted

            if recall:
                return await measure_recall(cases, compact, offline.count, percent, recall)
            result = await measure(cases, compact, offline.count, percent)
            if talks is None:
                result += await measure_rounds(_summarize(parts, strategy, bar), offline.count, percent)
            return result
        finally:
            await parts.upstream.aclose()

    with progress("compacting", unit="compactions") as bar:
        result = asyncio.run(figures(bar))
    _show(result, strategy, as_json=as_json)


def _percent(budgets: str) -> list[int]:
    """Return the budgets.

    :raises click.BadParameter: one is no percentage
    """
    numbers = [part.strip() for part in budgets.split(",")]
    if not all(number.isdecimal() and 0 < int(number) <= 100 for number in numbers):
        raise click.BadParameter("use whole percentages from 1 to 100, such as 10,25,50", param_hint="--budgets")
    return [int(number) for number in numbers]


def _summarize(
    parts: Parts, strategy: Strategy, bar: ProgressBar
) -> Callable[[str | None, Conversation, int], Awaitable[str]]:
    """Return a function that writes one summary from the one before and further messages."""
    import json

    from proxy.core.ports import SummaryTask
    from proxy.fidelity.measuring import MODEL

    async def summarize(previous: str | None, messages: Conversation, max_tokens: int) -> str:
        body = json.dumps({"model": MODEL, "messages": messages}).encode()
        request = await parts.offline_service().dialect.parse(body, anonymous=True)
        route = None if strategy == "extractive" else await parts.upstream.resolve(MODEL)
        task = SummaryTask(request.messages, previous, max_tokens, MODEL, route, _caller())
        summary = await parts.strategy(strategy).summarize(task)
        bar.advance(1)
        return summary

    return summarize


def _show(figures: list[Figure], strategy: Strategy, *, as_json: bool) -> None:
    from dataclasses import asdict

    if as_json:
        rows = [asdict(figure) | {"survival": round(figure.survival, 4)} for figure in figures]
        print_json({"strategy": strategy, "figures": rows})
        return
    shown = [figure for figure in figures if figure.kind in ("all", "rule", "identifier", "preference")]
    print_table(HEADS, [_row(figure) for figure in shown])


def _row(figure: Figure) -> tuple[str, ...]:
    newest = "-" if figure.newest is None else f"{figure.newest:.0%}"
    survivors = f"{figure.survivors}/{figure.facts}"
    return (
        figure.corpus,
        figure.kind,
        f"{figure.budget} %",
        f"{figure.ratio:.1%}",
        newest,
        survivors,
        f"{figure.survival:.0%}",
    )


def _caller() -> Caller:
    """Return a sender with the environment's key, for strategies that ask a model."""
    from proxy.core.ports import Caller

    key = os.environ.get("OPENAI_API_KEY")
    return Caller(b"", ((b"authorization", b"Bearer " + key.encode()),) if key else ())
