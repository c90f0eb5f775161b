"""Shows how far long work is: a bar on standard error if that is a terminal, and nothing elsewhere."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from tidemark.core.frozen import frozen


@frozen
class ProgressBar:
    """The bar of one piece of work."""

    advance: Callable[[int], None]
    """Takes the bytes, or other steps, that were done since the last call."""

    def counted(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        """Yield pieces as they come, and count their bytes."""
        for piece in pieces:
            yield piece
            self.advance(len(piece))


@contextmanager
def progress(
    label: str, total: int | None = None, *, is_shown: bool = True, unit: str = "bytes"
) -> Iterator[ProgressBar]:
    """Yield a bar that disappears at its end.

    :param total: the size of the work; None if it is unknown, so that the bar only moves
    :param is_shown: whether a bar may be drawn at all
    """
    if not is_shown or not sys.stderr.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield ProgressBar(lambda _: None)
        return
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, ProgressColumn, TextColumn, TimeElapsedColumn

    count: ProgressColumn = DownloadColumn() if unit == "bytes" else TextColumn(f"{{task.completed}} {unit}")
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        task = bars.add_task(label, total=total)
        yield ProgressBar(lambda steps: bars.advance(task, steps))
