"""Shows how far long work is: a bar on standard error where that is a terminal, and nothing elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProgressBar:
    """The bar of one piece of work."""

    advance: Callable[[int], None]
    """Takes the bytes that were moved since the last call."""

    def counted(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield pieces as they come, and count their bytes."""
        for piece in pieces:
            yield piece
            self.advance(len(piece))


@contextmanager
def progress(label: str, total_bytes: int | None = None, *, is_shown: bool = True) -> Iterator[ProgressBar]:
    """Yield a bar that disappears at its end.

    :param total_bytes: the size of the work; None where it is unknown, so that the bar only moves
    :param is_shown: whether a bar may be drawn at all
    """
    if not is_shown or not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield ProgressBar(lambda _: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeElapsedColumn, TransferSpeedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(label, total=total_bytes)
        yield ProgressBar(lambda count: bars.advance(task, count))
