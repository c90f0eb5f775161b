"""``tidemark bench fidelity``: measures what survives a compaction, of known facts or of the user's conversations.

It compacts in its own process, so that nothing is stored. A server is asked for stored conversations only.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, get_args

import click

from tidemark.cli.variants import Compactions, served_model, variants_of
from tidemark.core.conversation.summary import Strategy
from tidemark.terminal.examples import example
from tidemark.terminal.http_client import server_options
from tidemark.terminal.progress import progress
from tidemark.terminal.tables import print_json, print_table, printable

if TYPE_CHECKING:
    from tidemark.fidelity import Figure
    from tidemark.worker.worker import Worker

CASE_KINDS = ("all", "rule", "identifier", "preference")
"""The kinds of planted facts that a table shows; JSON has all of them."""
SPENDING_HEADS = ("template", "model", "asked", "answered", "USD", "seconds", "rejected")
HEADS = ("corpus", "facts", "budget", "tokens left", "newest verbatim", "survived", "share")


@click.group(epilog=example("tidemark bench fidelity"))
def bench() -> None:
    """Measure Tidemark: what survives its compactions."""


@bench.command(
    epilog=example("tidemark bench fidelity --budgets 25,50 --json"),
    short_help="Measure how many facts survive a compaction.",
)
@server_options
@click.option("--file", "talks", type=click.File("rb"), help="LoCoMo's locomo10.json; measured instead of the others.")
@click.option(
    "--stored",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Measure your own N conversations that were used last, from the running server; nothing is changed.",
)
@click.option(
    "--strategy",
    type=click.Choice(get_args(Strategy)),
    default="extractive",
    show_default=True,
    help="What writes the summaries; llm and hybrid ask a model.",
)
@click.option("--template", "templates", metavar="NAMES", help="Its templates, as in general,coding: each is measured.")
@click.option("--model", "models", metavar="NAMES", help="Its models: of model_list, or any of litellm's.")
@click.option("--budgets", default="10,25,50", show_default=True, help="Percent of each conversation's tokens.")
@click.option(
    "--recall",
    type=click.IntRange(0, 99),
    default=0,
    show_default=True,
    help="Percent of the tokens, within each budget, for messages recalled by questions; 0 measures no recall.",
)
@click.option(
    "--plot", type=click.Path(dir_okay=False, path_type=Path), help="Also draw the figures into this SVG file."
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with a figure for each kind of facts.")
def fidelity(
    *,
    talks: IO[bytes] | None,
    stored: int | None,
    strategy: Strategy,
    templates: str | None,
    models: str | None,
    budgets: str,
    recall: int,
    plot: Path | None,
    as_json: bool,
    **server: Any,
) -> None:
    """Measure how many facts survive a compaction, beside the tokens that it leaves.

    With several templates or models, each is measured with each, and one table has them all.
    """
    percent = _percent(budgets)
    if recall >= min(percent):
        raise click.BadParameter("use less than the smallest budget", param_hint="--recall")
    if stored and (talks or recall):
        raise click.UsageError("--stored goes with neither --file nor --recall: nobody has asked questions about it.")
    if strategy == "extractive" and (templates is not None or models is not None):
        raise click.UsageError("--template and --model go with --strategy llm or hybrid: extractive asks no model.")
    subject = _stored_subject(server, stored, percent) if stored else _case_subject(talks, percent, recall=recall)
    rows = asyncio.run(_measure(server["config"], subject, strategy, templates, models))
    if plot:
        _draw(rows, plot)
    _show(rows, strategy, as_json=as_json, kinds=None if stored else CASE_KINDS)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is measured with each variant."""

    compactions: int
    """How many compactions one variant makes."""
    measure: Callable[[Compactions], Awaitable[Sequence[Figure]]]
    has_models: bool = False
    """Whether the conversations name models that are to be used."""


@dataclass(frozen=True, slots=True)
class Row:
    """A figure of one variant."""

    figure: Figure
    template: str
    model: str


async def _measure(
    config: Path | None, subject: Subject, strategy: Strategy, templates: str | None, models: str | None
) -> Sequence[Row]:
    """Return the figures of each template with each model; those of one conversation and budget stand together."""
    from tidemark.fidelity.measuring import MODEL
    from tidemark.fidelity.spending import Meter

    rows: list[Row] = []
    asks = strategy != "extractive"
    async with _parts(config) as parts:
        model = await served_model(parts, MODEL) if asks and not subject.has_models else None
        variants = await variants_of(parts, templates, models, model)
        prices = await parts.model_data.prices() if asks else {}
        total = len(variants) * subject.compactions
        work = f"of {total} compactions" + (", each a call or more" if asks else "")
        with progress("compacting", total, unit=work) as bar:
            for variant in variants:
                meter = Meter(parts.counter, prices)
                compactions = Compactions(parts, strategy, variant, meter, advance=bar.advance, model=model)
                figures = await subject.measure(compactions)
                rows += [Row(figure, *compactions.label) for figure in figures]
                for reason, times in compactions.rejections.items():
                    click.echo(f"warning: {times} rejected: {printable(reason)}", err=True)
    places: dict[tuple[str, str, int], int] = {}
    for row in rows:
        places.setdefault(_place(row.figure), len(places))
    return sorted(rows, key=lambda row: places[_place(row.figure)])


def _place(figure: Figure) -> tuple[str, str, int]:
    return figure.corpus, figure.kind, figure.budget


def _case_subject(talks: IO[bytes] | None, percent: list[int], *, recall: int) -> Subject:
    """Return generated conversations, or LoCoMo's."""
    from tidemark.fidelity import (
        generated_cases,
        locomo_cases,
        measure,
        measure_recall,
        measure_rounds,
        question_cases,
    )
    from tidemark.fidelity.measuring import ROUNDS, SEEDS

    own_cases = question_cases if recall else generated_cases
    cases = own_cases() if talks is None else locomo_cases(talks.read())

    async def measured(run: Compactions) -> Sequence[Figure]:
        spent = run.meter.take
        if recall:
            return await measure_recall(cases, run.compact, run.count, percent, share=recall, spent=spent)
        result = await measure(cases, run.compact, run.count, percent, spent=spent)
        if talks is None:
            result += await measure_rounds(run.summarize, run.count, percent, spent=spent)
        return result

    rounds = 0 if recall or talks else ROUNDS * SEEDS
    return Subject((len(cases) * (2 if recall else 1) + rounds) * len(percent), measured)


def _stored_subject(server: Mapping[str, Any], stored: int, percent: list[int]) -> Subject:
    """Return the caller's own conversations."""
    from tidemark.cli.stored_talks import stored_conversations
    from tidemark.fidelity import measure_stored
    from tidemark.fidelity.stored import LEAST_MESSAGES

    conversations = list(stored_conversations(server, stored))
    long_enough = [talk for talk in conversations if len(talk.messages) >= LEAST_MESSAGES]

    async def measured(run: Compactions) -> Sequence[Figure]:
        result = await measure_stored(long_enough, run.compact, run.count, run.details, percent, spent=run.meter.take)
        for failure in result.failures:
            click.echo(f"warning: left out: {printable(failure)}", err=True)
        if not result.figures:
            message = f"No stored conversation of {LEAST_MESSAGES} messages or more could be measured."
            raise click.ClickException(message)
        click.echo(f"Measured {result.measured} stored conversations; none was changed.", err=True)
        return result.figures

    return Subject(len(long_enough) * len(percent), measured, has_models=True)


@asynccontextmanager
async def _parts(config: Path | None) -> AsyncIterator[Worker]:
    """Yield the parts that compact without a server or a store."""
    from tidemark.config import load
    from tidemark.worker.worker import Worker

    parts = Worker(load(config, os.environ), lambda warning: click.echo(f"warning: {warning}", err=True))
    try:
        yield parts
    finally:
        await parts.upstream.aclose()


def _draw(rows: Sequence[Row], file: Path) -> None:
    """Write the plots: one for each corpus, and for each variant of it if there are several.

    :raises click.BadParameter: the file cannot be written
    """
    from tidemark.fidelity import draw_figures

    several = len({(row.template, row.model) for row in rows}) > 1
    figures = [
        replace(row.figure, corpus=f"{row.figure.corpus}, {row.template}, {row.model}") if several else row.figure
        for row in rows
    ]
    try:
        file.write_bytes(draw_figures(figures, "Facts that survive a compaction"))
    except OSError as error:
        raise click.BadParameter(f"{file} cannot be written: {error.strerror}", param_hint="--plot") from error


def _percent(budgets: str) -> list[int]:
    """Return the budgets.

    :raises click.BadParameter: one is no percentage
    """
    numbers = [part.strip() for part in budgets.split(",")]
    if not all(number.isdecimal() and 0 < int(number) <= 100 for number in numbers):
        raise click.BadParameter("use whole percentages from 1 to 100, such as 10,25,50", param_hint="--budgets")
    return [int(number) for number in numbers]


def _show(rows: Sequence[Row], strategy: Strategy, *, as_json: bool, kinds: Collection[str] | None) -> None:
    """Print the figures.

    :param kinds: those of a table; None for all
    """
    asks = strategy != "extractive"
    if as_json:
        print_json({"strategy": strategy, "figures": [_members(row, asks=asks) for row in rows]})
        return
    shown = [row for row in rows if kinds is None or row.figure.kind in kinds]
    heads = (*HEADS, *SPENDING_HEADS) if asks else HEADS
    print_table(heads, [(*_cells(row.figure), *(_spending_cells(row) if asks else ())) for row in shown])


def _members(row: Row, *, asks: bool) -> Mapping[str, object]:
    """Return a figure as JSON has it."""
    members = asdict(row.figure) | {"survival": round(row.figure.survival, 4)}
    spending = members.pop("spending")
    return members | {"template": row.template, "model": row.model} | spending if asks else members


def _cells(figure: Figure) -> tuple[str, ...]:
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


def _spending_cells(row: Row) -> tuple[str, ...]:
    """Return the variant and what it cost, which stands once for all kinds of facts."""
    if row.figure.kind != "all":
        return row.template, row.model, "", "", "", "", ""
    spending = row.figure.spending
    mark = "~" if spending.is_estimated else ""
    return (
        row.template,
        row.model,
        f"{mark}{spending.asked_tokens:,}",
        f"{mark}{spending.answered_tokens:,}",
        "-" if spending.usd is None else f"{mark}{spending.usd:.4f}",
        f"{spending.seconds:.1f}",
        str(spending.rejected),
    )
