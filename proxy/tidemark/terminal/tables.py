"""Prints lists: as a table with styles on a terminal, as plain text in a pipe, or as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

import click

ID = "id"
"""The heading of a column whose cells are copied: others get narrower before it."""


def print_json(answer: object) -> None:
    """Print a value as one line of JSON."""
    click.echo(json.dumps(answer, ensure_ascii=False))


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows beneath their headings: with styles if standard output is a terminal, else without any."""
    cells = [[printable(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_styled(heads, cells)
        return
    for line in plain_lines(heads, cells):
        click.echo(line)


def plain_lines(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a table as lines of aligned columns; the first line has the headings."""
    cells = [list(heads), *rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    return ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def printable(text: str) -> str:
    """Replace control characters: clients choose the texts, and a terminal would obey them."""
    return "".join(char if char.isprintable() else "?" for char in text)


def _print_styled(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for head, column in zip(heads, zip(*([heads, *rows]), strict=True), strict=True):
        table.add_column(head, overflow="fold", width=max(map(len, column)) if head == ID else None)
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)  # honours NO_COLOR and TERM by itself
