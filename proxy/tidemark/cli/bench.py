"""``tidemark bench fidelity``: measures what would survive of the user's own conversations.

They come from a running server. It compacts them in its own process, so that nothing is stored. ``make bench-fidelity``
of the project measures conversations with known facts, by the same rows.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args
from urllib.parse import quote, urlencode

import click
from click.core import ParameterSource

from tidemark.cli.variants import Compactions, Variant, variants_of
from tidemark.core.conversation.summary import Strategy
from tidemark.core.frozen import frozen
from tidemark.terminal.http_client import request, server_options
from tidemark.terminal.options import example, warn
from tidemark.terminal.progress import progress
from tidemark.terminal.tables import print_json, print_table, printable

if TYPE_CHECKING:
    from tidemark.fidelity import ExportedConversation, Figure
    from tidemark.worker.worker import Worker

F = TypeVar("F", bound=Callable[..., Any])
MOVED = (
    "--stored N measures your own conversations. Those with known facts, LoCoMo, recall and plots are measured by"
    " `make bench-fidelity` in a checkout of Tidemark: its ARGS may have --file, --recall and --plot."
)
MOVED_OPTIONS = ("--file", "--recall", "--plot")
CONVERSATIONS = "/tidemark/conversations"
LEAST_WINDOW = 1024
"""In tokens: no summary is worth its tokens in less."""
PAGE = 200
"""The most conversations that the server lists at once."""
SPENDING_HEADS = ("template", "model", "asked", "answered", "USD", "seconds", "rejected")
HEADS = ("corpus", "facts", "budget", "tokens left", "newest verbatim", "survived", "share")


def measure_options(command: F) -> F:
    """Add the options that every measure of fidelity has."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON, with a figure for each kind of facts."),
        click.option("--budgets", default="10,25,50", show_default=True, help="Percent of each conversation's tokens."),
        click.option("--model", "models", metavar="NAMES", help="Its models: of model_list, or any of litellm's."),
        click.option(
            "--template", "templates", metavar="NAMES", help="Its templates, as in general,coding: each is measured."
        ),
        click.option(
            "--strategy",
            type=click.Choice(get_args(Strategy)),
            default="extractive",
            show_default=True,
            help="What writes the summaries; llm and hybrid ask a model.",
        ),
    ):
        command = option(command)
    return command


class _Measure(click.Command):
    """A command that says what became of the options it once had."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            if error.option_name in MOVED_OPTIONS:
                raise click.UsageError(MOVED, ctx) from error
            raise


@click.group(epilog=example("tidemark bench fidelity --stored 20"))
def bench() -> None:
    """Measure Tidemark: what survives its compactions."""


@bench.command(
    cls=_Measure,
    epilog=example(
        "tidemark bench fidelity --stored 20 --budgets 25,50", "tidemark bench fidelity --stored 20 --window 8192"
    ),
    short_help="Measure what would survive of your own conversations.",
)
@server_options
@click.option(
    "--stored",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="How many of your conversations, those that were used last; the running server has them, and keeps them.",
)
@click.option(
    "--window",
    type=click.IntRange(min=LEAST_WINDOW),
    metavar="TOKENS",
    help="Send them turn by turn through a Tidemark of this process whose models have this window.",
)
@measure_options
def fidelity(
    *,
    stored: int | None,
    window: int | None,
    strategy: Strategy,
    templates: str | None,
    models: str | None,
    budgets: str,
    as_json: bool,
    **server: Any,
) -> None:
    """Measure what would survive a compaction of your own conversations, beside the tokens that it leaves.

    With several templates or models, each is measured with each, and one table has them all. Nothing is changed. With
    --window, no provider is asked, and the table says what stands in the requests that Tidemark forwards.
    """
    if stored is None:
        raise click.UsageError(MOVED)
    if window is not None:
        _refuse_beside_window(strategy, templates, models)
        _measure_window(server, stored, window, as_json=as_json)
        return
    percent = percentages(budgets)
    refuse_unasked(strategy, templates, models)
    subject = _stored_subject(server, stored, percent)
    rows = asyncio.run(_measure(server["config"], subject, strategy, templates, models))
    show(rows, strategy, as_json=as_json)


def _refuse_beside_window(strategy: Strategy, templates: str | None, models: str | None) -> None:
    """Refuse what a measure in a window does not have.

    :raises click.UsageError: the message names the option
    """
    if strategy != "extractive" or templates is not None or models is not None:
        raise click.UsageError("--window asks no model: leave --strategy, --template and --model out.")
    if click.get_current_context().get_parameter_source("budgets") is not ParameterSource.DEFAULT:
        raise click.UsageError("--window takes the place of --budgets: the configuration says when to compact.")


def _measure_window(server: Mapping[str, Any], stored: int, window: int, *, as_json: bool) -> None:
    """Measure what a whole Tidemark forwards."""
    conversations = _long_conversations(server, stored)
    from tidemark.cli.bench_window import measure_window, show_window

    rows = asyncio.run(measure_window(server["config"], conversations, window))
    show_window(rows, window, as_json=as_json)


@frozen
class Subject:
    """What is measured with each variant."""

    compactions: int
    """How many compactions one variant makes."""
    measure: Callable[[Any], Awaitable[Sequence[Figure]]]
    """Measures with the ``Compactions`` of one variant."""


@frozen
class Row:
    """A figure of one variant."""

    figure: Figure
    template: str
    model: str


async def _measure(
    config: Path | None, subject: Subject, strategy: Strategy, templates: str | None, models: str | None
) -> Sequence[Row]:
    async with parts_of(config) as parts:
        return await rows_of(parts, subject, strategy, await variants_of(parts, templates, models))


async def rows_of(
    parts: Worker,
    subject: Subject,
    strategy: Strategy,
    variants: Sequence[Variant],
    compactions_of: Callable[..., Compactions] = Compactions,
) -> Sequence[Row]:
    """Return the figures of each variant; those of one corpus, kind and budget stand together.

    :param compactions_of: takes what ``Compactions`` takes
    """
    from tidemark.fidelity import Meter

    rows: list[Row] = []
    asks = strategy != "extractive"
    prices = await parts.model_data.prices() if asks else {}
    total = len(variants) * subject.compactions
    work = f"of {total} compactions" + (", each a call or more" if asks else "")
    with progress("compacting", total, unit=work) as bar:
        for variant in variants:
            meter = Meter(parts.counter, prices)
            compactions = compactions_of(parts, strategy, variant, meter, advance=bar.advance)
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


def _stored_subject(server: Mapping[str, Any], stored: int, percent: list[int]) -> Subject:
    """Return the caller's own conversations."""
    from tidemark.fidelity import LEAST_MESSAGES, measure_exported

    conversations = _long_conversations(server, stored)

    async def measured(run: Compactions) -> Sequence[Figure]:
        result = await measure_exported(
            conversations, run.compact, run.count, run.details, percent, spent=run.meter.take
        )
        for failure in result.failures:
            click.echo(f"warning: left out: {printable(failure)}", err=True)
        if not result.figures:
            message = f"No stored conversation of {LEAST_MESSAGES} messages or more could be measured."
            raise click.ClickException(message)
        click.echo(f"Measured {result.measured} stored conversations; none was changed.", err=True)
        return result.figures

    return Subject(len(conversations) * len(percent), measured)


def _long_conversations(server: Mapping[str, Any], stored: int) -> Sequence[ExportedConversation]:
    """Return those of the conversations that are long enough to be measured."""
    from tidemark.fidelity import LEAST_MESSAGES

    return [talk for talk in _conversations(server, stored) if len(talk.messages) >= LEAST_MESSAGES]


def _conversations(server: Mapping[str, Any], count: int) -> Iterator[ExportedConversation]:
    """Yield the conversations that were used last, without messages that cannot be read.

    :raises ServerRefusal: the server refuses, or does not answer
    """
    from tidemark.fidelity import ExportedConversation

    for entry in _entries(server, count):
        export = b"".join(request(server, "GET", f"{CONVERSATIONS}/{quote(entry['id'], safe='')}/export"))
        lines = [line for line in export.split(b"\n") if line.strip()]
        messages = [line for line in lines if "role" in json.loads(line)]
        yield ExportedConversation(entry["id"], entry["model"], messages)


def _entries(server: Mapping[str, Any], count: int) -> Iterator[Mapping[str, Any]]:
    cursor = None
    while count > 0:
        query = {"limit": min(count, PAGE)} | ({"cursor": cursor} if cursor else {})
        page = json.loads(b"".join(request(server, "GET", f"{CONVERSATIONS}?{urlencode(query)}")))
        yield from page["data"]
        count -= len(page["data"])
        if not page["has_more"]:
            return
        cursor = page["next_cursor"]


@asynccontextmanager
async def parts_of(config: Path | None) -> AsyncIterator[Worker]:
    """Yield the parts that compact without a server or a store."""
    from tidemark.config import load
    from tidemark.worker.worker import Worker

    parts = Worker(load(config, os.environ), warn)
    try:
        yield parts
    finally:
        await parts.upstream.aclose()


def percentages(budgets: str) -> list[int]:
    """Return the budgets.

    :raises click.BadParameter: one is no percentage
    """
    numbers = [part.strip() for part in budgets.split(",")]
    if not all(number.isdecimal() and 0 < int(number) <= 100 for number in numbers):
        raise click.BadParameter("use whole percentages from 1 to 100, such as 10,25,50", param_hint="--budgets")
    return [int(number) for number in numbers]


def refuse_unasked(strategy: Strategy, templates: str | None, models: str | None) -> None:
    """Refuse a choice of templates or models for a strategy that asks no model.

    :raises click.UsageError: ``extractive`` asks no model
    """
    if strategy == "extractive" and (templates is not None or models is not None):
        raise click.UsageError("--template and --model go with --strategy llm or hybrid: extractive asks no model.")


def show(rows: Sequence[Row], strategy: Strategy, *, as_json: bool) -> None:
    """Print the figures."""
    asks = strategy != "extractive"
    if as_json:
        print_json({"strategy": strategy, "figures": [_members(row, asks=asks) for row in rows]})
        return
    heads = (*HEADS, *SPENDING_HEADS) if asks else HEADS
    print_table(heads, [(*_cells(row.figure), *(_spending_cells(row) if asks else ())) for row in rows])


def _members(row: Row, *, asks: bool) -> Mapping[str, object]:
    """Return a figure as JSON has it."""
    members = asdict(row.figure) | {"survival": round(row.figure.survival, 4)}
    spending = members.pop("spending")
    return members | {"template": row.template, "model": row.model} | spending if asks else members


def _cells(figure: Figure) -> tuple[str, ...]:
    return (
        figure.corpus,
        figure.kind,
        f"{figure.budget} %",
        f"{figure.ratio:.1%}",
        "-" if figure.newest is None else f"{figure.newest:.0%}",
        f"{figure.survivors}/{figure.facts}",
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
