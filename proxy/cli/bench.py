"""``tidemark bench fidelity``: measures what survives a compaction, of known facts or of the user's conversations.

It compacts in its own process, so that nothing is stored. A server is asked for stored conversations only.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, get_args

import click

from proxy.cli.examples import example
from proxy.cli.http_client import server_options
from proxy.cli.progress import ProgressBar, progress
from proxy.cli.tables import print_json, print_table, printable
from proxy.core.conversation.summary import Strategy
from proxy.core.recall.meaning import RecallMethod

if TYPE_CHECKING:
    from proxy.app import Parts
    from proxy.core.ports import Caller
    from proxy.core.recall.index import MessageIndex
    from proxy.core.receipt import Detail
    from proxy.fidelity import Conversation, Figure
    from proxy.fidelity.measuring import Compact
    from proxy.fidelity.stored import Details

CASE_KINDS = ("all", "rule", "identifier", "preference")
"""The kinds of planted facts that a table shows; JSON has all of them."""
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
@click.option("--budgets", default="10,25,50", show_default=True, help="Percent of each conversation's tokens.")
@click.option(
    "--recall",
    type=click.IntRange(0, 99),
    default=0,
    show_default=True,
    help="Percent of the tokens, within each budget, for messages recalled by questions; 0 measures no recall.",
)
@click.option(
    "--recall-method",
    type=click.Choice(get_args(RecallMethod)),
    default="bm25",
    show_default=True,
    help="How they are found; embedding needs the extra of that name.",
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
    budgets: str,
    recall: int,
    recall_method: RecallMethod,
    plot: Path | None,
    as_json: bool,
    **server: Any,
) -> None:
    """Measure how many facts survive a compaction, beside the tokens that it leaves."""
    percent = _percent(budgets)
    if recall >= min(percent):
        raise click.BadParameter("use less than the smallest budget", param_hint="--recall")
    if stored and (talks or recall):
        raise click.UsageError("--stored goes with neither --file nor --recall: nobody has asked questions about it.")
    with progress("compacting", unit="compactions") as bar:
        if stored:
            result = asyncio.run(_measure_stored(server, stored, strategy, percent, bar))
        else:
            config, method = server["config"], recall_method
            result = asyncio.run(_measure_cases(config, talks, strategy, percent, bar, recall=recall, method=method))
    if plot:
        _draw(result, plot)
    _show(result, strategy, as_json=as_json, kinds=None if stored else CASE_KINDS)


async def _measure_cases(
    config: Path | None,
    talks: IO[bytes] | None,
    strategy: Strategy,
    percent: list[int],
    bar: ProgressBar,
    *,
    recall: int,
    method: RecallMethod,
) -> Sequence[Figure]:
    """Return the figures of generated conversations, or of LoCoMo's."""
    from proxy.fidelity import (
        generated_cases,
        locomo_cases,
        measure,
        measure_recall,
        measure_rounds,
        question_cases,
    )

    own_cases = question_cases if recall else generated_cases
    cases = own_cases() if talks is None else locomo_cases(talks.read())
    async with _parts(config) as parts:
        compact, count = _compact(parts, strategy, bar), parts.offline_service().count
        if recall:
            return await measure_recall(cases, compact, count, percent, share=recall, new_index=_new_index(method))
        result = await measure(cases, compact, count, percent)
        if talks is None:
            result += await measure_rounds(_summarize(parts, strategy, bar), count, percent)
        return result


def _new_index(method: RecallMethod) -> Callable[[], MessageIndex]:
    """Return what makes the indexes of a method.

    :raises click.ClickException: its extra is not installed
    """
    from proxy.core.recall.index import MessageIndex
    from proxy.vectors import load_vectors

    try:
        new_vectors = load_vectors([method])
    except ModuleNotFoundError as error:
        raise click.ClickException(f"{method} needs a package: pip install 'tidemark[{method}]'") from error
    return lambda: MessageIndex(new_vectors() if new_vectors else None)


async def _measure_stored(
    server: Mapping[str, Any], stored: int, strategy: Strategy, percent: list[int], bar: ProgressBar
) -> Sequence[Figure]:
    """Return the figures of the caller's own conversations.

    :raises click.ClickException: there is none to measure
    """
    from proxy.cli.stored_talks import stored_conversations
    from proxy.fidelity import measure_stored
    from proxy.fidelity.stored import LEAST_MESSAGES

    conversations = stored_conversations(server, stored)
    async with _parts(server["config"]) as parts:
        compact, count = _compact(parts, strategy, bar), parts.offline_service().count
        result = await measure_stored(conversations, compact, count, _details(parts), percent)
    for failure in result.failures:
        click.echo(f"warning: left out: {printable(failure)}", err=True)
    if not result.figures:
        message = f"No stored conversation of {LEAST_MESSAGES} messages or more could be measured."
        raise click.ClickException(message)
    click.echo(f"Measured {result.measured} stored conversations; none was changed.", err=True)
    return result.figures


@asynccontextmanager
async def _parts(config: Path | None) -> AsyncIterator[Parts]:
    """Yield the parts that compact without a server or a store."""
    from proxy.app import Parts
    from proxy.config import load

    parts = Parts(load(config, os.environ), lambda warning: click.echo(f"warning: {warning}", err=True))
    try:
        yield parts
    finally:
        await parts.upstream.aclose()


def _compact(parts: Parts, strategy: Strategy, bar: ProgressBar) -> Compact:
    """Return a function that compacts a request, and moves the bar."""
    offline = parts.offline_service()

    async def compact(body: bytes, max_tokens: int) -> bytes:
        request = await offline.dialect.parse(body, anonymous=True)
        compacted = await offline.compact_request(request, max_tokens, strategy, _caller())
        bar.advance(1)
        return compacted

    return compact


def _details(parts: Parts) -> Details:
    """Return a function that compares a request with its compacted form, as loss receipts do."""
    from proxy.summarizers.receipts import ReceiptWriter

    dialect, writer = parts.offline_service().dialect, ReceiptWriter()

    async def details(body: bytes, compacted: bytes) -> Sequence[Detail]:
        before = await dialect.parse(body, anonymous=True)
        after = await dialect.parse(compacted, anonymous=True)
        return await writer.details(before.messages, "", "\n".join(message.text for message in after.messages))

    return details


def _draw(figures: Sequence[Figure], file: Path) -> None:
    """Write the plots.

    :raises click.BadParameter: the file cannot be written
    """
    from proxy.fidelity import draw_figures

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
        written = await parts.strategy(strategy).summarize(task)
        bar.advance(1)
        return written.source

    return summarize


def _show(figures: Sequence[Figure], strategy: Strategy, *, as_json: bool, kinds: Collection[str] | None) -> None:
    """Print the figures.

    :param kinds: those of a table; None for all
    """
    from dataclasses import asdict

    if as_json:
        rows = [asdict(figure) | {"survival": round(figure.survival, 4)} for figure in figures]
        print_json({"strategy": strategy, "figures": rows})
        return
    shown = [figure for figure in figures if kinds is None or figure.kind in kinds]
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
