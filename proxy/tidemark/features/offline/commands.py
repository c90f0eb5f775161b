"""The commands ``tidemark count`` and ``tidemark compact``: one request of a file, without a server or a store."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import IO, TYPE_CHECKING, get_args

import click

from tidemark.core.conversation.summary import Strategy
from tidemark.terminal.options import config_option, example, sender, warn

if TYPE_CHECKING:
    from tidemark.features.offline.service import OfflineService


@click.command(epilog=example("tidemark count chat.json"))
@config_option
@click.argument("file", type=click.File("rb"), default="-")
def count(config: Path | None, file: IO[bytes]) -> None:
    """Count the input tokens of a chat request, locally. FILE is JSON; - or nothing is standard input."""
    _run_offline(config, lambda offline: offline.count(file.read()))


@click.command(epilog=example("tidemark compact --max-tokens 4000 chat.json"))
@config_option
@click.option(
    "--max-tokens",
    type=click.IntRange(1),
    show_default="the model's limit",
    help="The token budget of the result, which is filled as far as possible.",
)
@click.option(
    "--strategy",
    type=click.Choice(get_args(Strategy)),
    default="extractive",
    show_default=True,
    help="What writes the summary; llm and hybrid ask a model.",
)
@click.argument("file", type=click.File("rb"), default="-")
def compact(config: Path | None, max_tokens: int | None, strategy: str, file: IO[bytes]) -> None:
    """Compact a chat request, and print it with its summary. FILE is JSON; - or nothing is standard input."""

    async def run(offline: OfflineService) -> bytes:
        request = await offline.dialect.parse(file.read(), anonymous=True)
        return await offline.compact_request(request, max_tokens, strategy, sender())

    _run_offline(config, run)


def _run_offline(config: Path | None, run: Callable[[OfflineService], Awaitable[bytes]]) -> None:
    """Print the JSON that ``run`` makes with the service that needs neither store nor server."""
    from tidemark.config import load
    from tidemark.features.offline.feature import offline_service
    from tidemark.worker.worker import Worker

    async def answer() -> bytes:
        parts = Worker(load(config, os.environ), warn)
        try:
            return await run(offline_service(parts))
        finally:
            await parts.upstream.aclose()

    click.echo(asyncio.run(answer()).decode())


COMMANDS = (count, compact)
