"""Measures how many known facts survive a compaction, beside the tokens it leaves; ``make bench-fidelity`` runs it.

``cases`` has the values; ``talks``, ``sessions`` and ``languages`` make conversations, ``questions`` makes some that
are asked about afterwards, ``corpora`` reads talks that were written for the measure, and ``locomo`` reads a file.
``survival`` compares texts, ``measuring`` and ``recalling`` make the figures, ``compacting`` the compactions, and
``drawing`` plots. ``production`` feeds the written talks to a whole Tidemark, turn by turn. Rows and tables are those
of ``tidemark bench fidelity``, which measures the user's own conversations.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO

import click

from benchmarks.fidelity.compacting import CaseCompactions, served_model
from benchmarks.fidelity.corpora import FOLDER, HELD_OUT, KINDS, corpus_cases
from benchmarks.fidelity.drawing import draw_figures
from benchmarks.fidelity.generated import generated_cases
from benchmarks.fidelity.locomo import locomo_cases
from benchmarks.fidelity.measuring import MODEL, ROUNDS, SEEDS, measure, measure_rounds
from benchmarks.fidelity.questions import question_cases
from benchmarks.fidelity.recalling import measure_recall
from tidemark.cli.bench import Row, Subject, measure_options, parts_of, percentages, refuse_unasked, rows_of, show
from tidemark.cli.variants import variants_of
from tidemark.core.conversation.summary import Strategy
from tidemark.features.offline.service import MIN_BUDGET_TOKENS
from tidemark.fidelity import Figure
from tidemark.terminal.options import config_option

CASE_KINDS = ("all", "rule", "identifier", "preference")
"""The kinds of planted facts that a table shows; JSON has all of them."""


@click.command()
@config_option
@click.option("--file", "talks", type=click.File("rb"), help="LoCoMo's locomo10.json; measured instead of the others.")
@click.option(
    "--corpora",
    "kinds",
    metavar="KINDS",
    help=f"Written talks of these kinds, measured instead of the others: all, or some of {','.join(KINDS)}.",
)
@click.option("--held-out", is_flag=True, help="Of the written talks, those by authors who knew no rule.")
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
@measure_options
def main(
    *,
    config: Path | None,
    talks: IO[bytes] | None,
    kinds: str | None,
    held_out: bool,
    recall: int,
    plot: Path | None,
    strategy: Strategy,
    templates: str | None,
    models: str | None,
    budgets: str,
    as_json: bool,
) -> None:
    """Measure how many facts survive a compaction, beside the tokens that it leaves.

    With several templates or models, each is measured with each, and one table has them all.
    """
    percent = percentages(budgets)
    if recall >= min(percent):
        raise click.BadParameter("use less than the smallest budget", param_hint="--recall")
    refuse_unasked(strategy, templates, models)
    if kinds is None and held_out:
        raise click.BadParameter("name the kinds, as in --corpora all", param_hint="--held-out")
    if kinds is None:
        subject = _subject(talks, percent, recall=recall)
    else:
        subject = _corpora_subject(kinds, percent, recall, HELD_OUT if held_out else FOLDER)
    rows = asyncio.run(_measure(config, subject, strategy, templates, models))
    if plot:
        _draw(rows, plot)
    shown = rows if as_json else [row for row in rows if row.figure.kind in CASE_KINDS]
    show(shown, strategy, as_json=as_json)


async def _measure(
    config: Path | None, subject: Subject, strategy: Strategy, templates: str | None, models: str | None
) -> Sequence[Row]:
    async with parts_of(config) as parts:
        model = None if strategy == "extractive" else await served_model(parts, MODEL, has_own_summarizer=not models)
        variants = await variants_of(parts, templates, models)
        return await rows_of(parts, subject, strategy, variants, partial(CaseCompactions, model=model))


def _subject(talks: IO[bytes] | None, percent: list[int], *, recall: int) -> Subject:
    """Return generated conversations, or LoCoMo's."""
    own_cases = question_cases if recall else generated_cases
    cases = own_cases() if talks is None else locomo_cases(talks.read())

    async def measured(run: CaseCompactions) -> Sequence[Figure]:
        spent = run.meter.take
        if recall:
            return await measure_recall(cases, run.compact, run.count, percent, share=recall, spent=spent)
        result = await measure(cases, run.compact, run.count, percent, spent=spent)
        if talks is None:
            result += await measure_rounds(run.summarize, run.count, percent, spent=spent)
        return result

    rounds = 0 if recall or talks else ROUNDS * SEEDS
    return Subject((len(cases) * (2 if recall else 1) + rounds) * len(percent), measured)


def _corpora_subject(kinds: str, percent: list[int], recall: int, folder: Path) -> Subject:
    """Return the written talks; those that nobody asks about are measured without recall.

    :raises click.BadParameter: there are no talks of that kind
    """
    chosen = KINDS if kinds == "all" else [kind.strip() for kind in kinds.split(",")]
    if unknown := [kind for kind in chosen if kind not in KINDS]:
        message = f"there is no corpus {unknown[0]!r}; use all, or some of {', '.join(KINDS)}"
        raise click.BadParameter(message, param_hint="--corpora")
    cases = corpus_cases(chosen, folder)
    with_questions = [case for case in cases if recall and all(fact.question for fact in case.facts)]
    without_questions = [case for case in cases if case not in with_questions]

    async def measured(run: CaseCompactions) -> Sequence[Figure]:
        async def compact(body: bytes, max_tokens: int) -> bytes:
            return await run.compact(body, max(max_tokens, MIN_BUDGET_TOKENS))

        spent = run.meter.take
        result = await measure(without_questions, compact, run.count, percent, spent=spent)
        return result + await measure_recall(with_questions, compact, run.count, percent, share=recall, spent=spent)

    return Subject((len(without_questions) + 2 * len(with_questions)) * len(percent), measured)


def _draw(rows: Sequence[Row], file: Path) -> None:
    """Write the plots: one for each corpus, and for each variant of it if there are several.

    :raises click.BadParameter: the file cannot be written
    """
    several = len({(row.template, row.model) for row in rows}) > 1
    figures = [
        replace(row.figure, corpus=f"{row.figure.corpus}, {row.template}, {row.model}") if several else row.figure
        for row in rows
    ]
    try:
        file.write_bytes(draw_figures(figures, "Facts that survive a compaction"))
    except OSError as error:
        raise click.BadParameter(f"{file} cannot be written: {error.strerror}", param_hint="--plot") from error


if __name__ == "__main__":
    main()
