"""``tidemark flush``: what left the context, from the command line, straight in the store.

Beside ``cli/main.py``, whose group it joins. ``work`` delivers; the others look, or have entries delivered once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from proxy.cli.models import config_option, json_option, store_url

if TYPE_CHECKING:
    from proxy.app import Flushing
    from proxy.config import Settings
    from proxy.core.events import Listener
    from proxy.core.ports import DeadLetter, FlushEntry

FOLLOW_SECONDS = 0.5
Ask = Callable[["Flushing"], Awaitable[None]]


@click.group()
def flush() -> None:
    """Show and deliver what left the context (memory_flush)."""


@flush.command()
@config_option
@json_option
@click.option(
    "--lines", "-n", type=click.IntRange(1, 100_000), default=10, show_default=True, help="So many, the newest."
)
@click.option("--follow", "-f", is_flag=True, help="Stay, and print what comes.")
@click.option("--dead", is_flag=True, help="Dead letters, all of them.")
def tail(config: Path | None, as_json: bool, lines: int, follow: bool, dead: bool) -> None:
    """Print the newest entries of the queue, one a line; with --json whole, messages and all."""

    async def show(flushing: Flushing) -> None:
        queue = flushing.queue
        if dead:
            async for letter in queue.dead():
                click.echo(_letter(letter, as_json=as_json))
            return
        newest = await queue.newest(lines)
        for entry in newest:
            click.echo(_line(entry, as_json=as_json))
        last = f"({newest[-1].id}" if newest else "-"
        while follow:
            async for entry in queue.since(last):
                click.echo(_line(entry, as_json=as_json))
                last = f"({entry.id}"
            await asyncio.sleep(FOLLOW_SECONDS)

    _asked(config, show)


@flush.command()
@config_option
@json_option
def pending(config: Path | None, as_json: bool) -> None:
    """Say how full the queue is, and how far each consumer."""

    async def show(flushing: Flushing) -> None:
        queue = flushing.queue
        state = await queue.state()
        rows = [
            {
                "consumer": one.name,
                "waiting": one.waiting,
                "pending": one.pending,
                "age_seconds": round(state.now - one.oldest_at, 1) if one.oldest_at is not None else 0.0,
                "delivered": one.delivered,
                "dead": one.dead,
                "lost": one.lost,
            }
            for one in state.consumers
        ]
        told = {"entries": state.length, "bytes": state.bytes_held, "dead_letters": state.dead, "noted": state.intents}
        if as_json:
            click.echo(json.dumps({**told, "consumers": rows}))
            return
        click.echo(", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in told.items()))
        if rows:
            cells = [list(rows[0]), *([_plain(value) for value in row.values()] for row in rows)]
            widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
            for row in cells:
                click.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())

    _asked(config, show)


@flush.command()
@config_option
@click.option("--dead", is_flag=True, help="Dead letters, each to the consumer that did not take it.")
@click.option("--since", metavar="ID", help="All entries from this one on; - is the oldest.")
@click.option("--consumer", default="", help="Only to this one: daily, webhook, entry:NAME.")
@click.argument("entries", metavar="[ID]...", nargs=-1)
def replay(config: Path | None, dead: bool, since: str | None, consumer: str, entries: tuple[str, ...]) -> None:
    """Queue entries once more: those of these IDs, or all. Keys stay the same, so consumers can tell."""
    if not entries and not dead and since is None:
        raise click.UsageError("Say which: IDs as tail shows them, --since ID, or --dead.")
    if dead and consumer and entries:
        raise click.UsageError("A dead letter goes to the consumer that did not take it: --consumer chooses among all.")
    if dead and since is not None:
        raise click.UsageError("--since is of the queue's entries; dead letters are chosen by ID or --consumer.")

    async def again(flushing: Flushing) -> None:
        queue = flushing.queue
        await _check_consumer(flushing, consumer)
        chosen = list(entries)
        if dead and not chosen:
            chosen = [one.entry.id async for one in queue.dead() if consumer in ("", one.consumer)]
        elif since is not None:
            chosen += [one.id async for one in queue.since(since)]
        done = [one for one in chosen if await queue.replay(one, dead=dead, only=consumer)]
        click.echo(f"{len(done)} queued once more")
        if missing := [one for one in entries if one not in done]:
            raise click.ClickException(f"there is no entry {', '.join(missing)}")

    for one in (*entries, *([since] if since not in (None, "-") else [])):
        if not _is_id(str(one)):
            raise click.UsageError(f"{one!r} is no ID; write it as tail shows it, such as 1700000000000-0.")
    _asked(config, again)


async def _check_consumer(flushing: Flushing, consumer: str) -> None:
    """Refuse a name that nobody has; to queue for it would be for nobody."""
    known = {one.name for one in (await flushing.queue.state()).consumers} | {one.name for one in flushing.consumers()}
    if consumer and consumer not in known:
        raise click.ClickException(f"there is no consumer {consumer!r}, but {', '.join(sorted(known)) or 'none'}")


@flush.command()
@config_option
def work(config: Path | None) -> None:
    """Deliver until a signal comes. Beside a server whose memory_flush.worker is false, or on another machine."""
    from proxy.telemetry.logging import FactLog, configure

    configure()

    async def deliver(flushing: Flushing) -> None:
        if not flushing.enabled:
            click.echo(
                "warning: memory_flush.enabled is false, so a server of this configuration queues nothing", err=True
            )
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        flushing.start(work=True)
        names = ", ".join(one.name for one in flushing.consumers()) or "nobody"
        click.echo(f"Tidemark delivers what leaves the context to: {names}", err=True)
        await ended.wait()

    _asked(config, deliver, FactLog())


def _asked(config: Path | None, ask: Ask, emit: Listener = lambda _: None) -> None:
    """Run with the store open; everything that was started for it is stopped again."""
    from proxy.app import Flushing, build_codec
    from proxy.config import load

    async def run(settings: Settings, url: str) -> None:
        flushing = Flushing(settings, url, emit, build_codec())
        try:
            await flushing.store.ping()
            await ask(flushing)
        finally:
            await flushing.aclose()

    settings = load(config, os.environ)
    with ExitStack() as stack, contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        asyncio.run(run(settings, store_url(settings, stack)))


def _line(entry: FlushEntry, *, as_json: bool) -> str:
    if as_json:
        return f'{{"id": "{entry.id}", {entry.body.decode()[1:]}'
    told: Any = json.loads(entry.body)
    count, last = len(told["messages"]), told["last"]
    tokens, only = told["tokens"], f" only {entry.only}" if entry.only else ""
    at = datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="seconds")
    return (
        f"{entry.id}  {at}  {entry.conversation}  {count} messages to {last}, {tokens['messages']} tokens, "
        f"summary {tokens['summary']}{only}"
    )


def _letter(letter: DeadLetter, *, as_json: bool) -> str:
    if as_json:
        about = {"consumer": letter.consumer, "reason": letter.reason, "attempts": letter.attempts}
        return f"{json.dumps({**about, 'died_at': letter.died_at})[:-1]}, {_line(letter.entry, as_json=True)[1:]}"
    reason = "".join(char if char.isprintable() else "?" for char in letter.reason)
    return f"{_line(letter.entry, as_json=False)}  {letter.consumer}, {letter.attempts} attempts: {reason}"


def _plain(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _is_id(text: str) -> bool:
    parts = text.split("-")
    return len(parts) == 2 and all(part.isdecimal() for part in parts)
