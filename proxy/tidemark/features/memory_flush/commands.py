"""The command ``tidemark flush``: it shows and delivers queued entries, directly from the store.

``cli/main.py`` adds it to its group. ``work`` delivers entries; the other commands show them or queue them once more.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemark.terminal.audited import audit
from tidemark.terminal.options import config_option, example, json_option, warn, with_store
from tidemark.terminal.tables import print_json, print_table

if TYPE_CHECKING:
    from tidemark.config import Settings
    from tidemark.core.events import Listener
    from tidemark.core.ports import DeadLetter, FlushEntry
    from tidemark.features.memory_flush.feature import MemoryFlushFeature

FOLLOW_SECONDS = 0.5
Ask = Callable[["MemoryFlushFeature"], Awaitable[None]]


@click.group(epilog=example("tidemark flush pending"), short_help="Show and deliver messages that left the context.")
def flush() -> None:
    """Show and deliver the messages that left the context (memory_flush)."""


@flush.command(
    epilog=example("tidemark flush tail --lines 20 --follow"), short_help="Print the newest entries of the queue."
)
@config_option
@json_option
@click.option(
    "--lines",
    "-n",
    type=click.IntRange(1, 100_000),
    default=10,
    show_default=True,
    help="The number of newest entries.",
)
@click.option("--follow", "-f", is_flag=True, help="Stay, and print new entries.")
@click.option("--dead", is_flag=True, help="All dead letters.")
def tail(config: Path | None, as_json: bool, lines: int, follow: bool, dead: bool) -> None:
    """Print the newest entries of the queue, one on each line; --json prints them with their messages."""

    async def show(flushing: MemoryFlushFeature) -> None:
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

    _run_with_flushing(config, show, action="flush.read" if as_json else "")


@flush.command(epilog=example("tidemark flush pending --json"))
@config_option
@json_option
def pending(config: Path | None, as_json: bool) -> None:
    """Show the size of the queue and the progress of each consumer."""

    async def show(flushing: MemoryFlushFeature) -> None:
        queue = flushing.queue
        state = await queue.state()
        rows = [
            {
                "consumer": consumer.name,
                "waiting": consumer.waiting,
                "pending": consumer.pending,
                "age_seconds": round(state.now - consumer.oldest_at, 1) if consumer.oldest_at is not None else 0.0,
                "delivered": consumer.delivered,
                "dead": consumer.dead,
                "lost": consumer.lost,
            }
            for consumer in state.consumers
        ]
        totals = {
            "entries": state.length,
            "bytes": state.bytes_held,
            "dead_letters": state.dead,
            "noted": state.intents,
        }
        if as_json:
            print_json({**totals, "consumers": rows})
            return
        click.echo(", ".join(f"{value:,} {name.replace('_', ' ')}" for name, value in totals.items()))
        if rows:
            print_table(list(rows[0]), [[_plain(value) for value in row.values()] for row in rows])

    _run_with_flushing(config, show)


@flush.command(epilog=example("tidemark flush replay --dead", "tidemark flush replay 1700000000000-0"))
@config_option
@json_option
@click.option("--dead", is_flag=True, help="Dead letters, each for the consumer that did not take it.")
@click.option("--since", metavar="ID", help="All entries from this one on; - is the oldest.")
@click.option("--consumer", default="", show_default="all", help="Only for this consumer: daily, webhook, entry:NAME.")
@click.argument("entries", metavar="[ID]...", nargs=-1)
def replay(
    *, config: Path | None, as_json: bool, dead: bool, since: str | None, consumer: str, entries: tuple[str, ...]
) -> None:
    """Queue entries once more, by ID or all of them. Their keys stay the same, so consumers recognise them."""
    _check_choice(entries, consumer, since, dead=dead)

    async def again(flushing: MemoryFlushFeature) -> None:
        queue = flushing.queue
        await _check_consumer(flushing, consumer)
        chosen = list(entries)
        if dead and not chosen:
            chosen = [letter.entry.id async for letter in queue.dead() if consumer in ("", letter.consumer)]
        elif since is not None:
            chosen += [entry.id async for entry in queue.since(since)]
        done = [id_ for id_ in chosen if await queue.replay(id_, dead=dead, only=consumer)]
        missing = [id_ for id_ in entries if id_ not in done]
        if as_json:
            print_json({"queued": done, "missing": missing})
        elif done or not missing:
            click.echo(f"{len(done)} queued once more")
        if missing:
            raise click.ClickException(f"there is no entry {', '.join(missing)}")

    _run_with_flushing(config, again, action="flush.replay")


def _check_choice(entries: Sequence[str], consumer: str, since: str | None, *, dead: bool) -> None:
    """Refuse a choice of entries that means nothing, or two things."""
    if not entries and not dead and since is None:
        raise click.UsageError("Choose the entries: IDs as tail shows them, --since ID, or --dead.")
    if dead and consumer and entries:
        raise click.UsageError("A dead letter goes to the consumer that did not take it: --consumer chooses among all.")
    if dead and since is not None:
        raise click.UsageError("--since chooses entries of the queue; dead letters are chosen by ID or --consumer.")
    for id_ in (*entries, *([since] if since not in (None, "-") else [])):
        if not _is_id(str(id_)):
            raise click.UsageError(f"{id_!r} is no ID; write it as tail shows it, such as 1700000000000-0.")


async def _check_consumer(flushing: MemoryFlushFeature, consumer: str) -> None:
    """Refuse the name of a consumer that does not exist."""
    stored = (await flushing.queue.state()).consumers
    names = {state.name for state in stored} | {consumer.name for consumer in flushing.consumers()}
    if consumer and consumer not in names:
        raise click.ClickException(f"there is no consumer {consumer!r}, but {', '.join(sorted(names)) or 'none'}")


@flush.command(
    epilog=example("tidemark flush work --config tidemark.yaml"), short_help="Deliver until a signal arrives."
)
@config_option
def work(config: Path | None) -> None:
    """Deliver until a signal arrives, for servers whose memory_flush.worker is false."""
    from tidemark.telemetry.logging import FactLog, configure

    configure()

    async def deliver(flushing: MemoryFlushFeature) -> None:
        if not flushing.enabled:
            click.echo(
                "warning: memory_flush.enabled is false, so a server of this configuration queues nothing", err=True
            )
        ended, loop = asyncio.Event(), asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, ended.set)
        flushing.begin(work=True)
        names = ", ".join(consumer.name for consumer in flushing.consumers()) or "no consumer"
        click.echo(f"Tidemark delivers what leaves the context to: {names}", err=True)
        await ended.wait()

    _run_with_flushing(config, deliver, FactLog())


@flush.command(
    epilog=example("tidemark flush read 2026-11-27.jsonl"), short_help="Print a daily FILE, with what is sealed opened."
)
@config_option
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def read(config: Path | None, file: Path) -> None:
    """Print the lines of a daily FILE; sealed ones are opened."""
    from tidemark.config import load
    from tidemark.core.errors import RecordUnreadable, StoreError
    from tidemark.delivery.daily_lines import opened_line
    from tidemark.worker.worker import Worker

    codec = Worker(load(config, os.environ), warn).codec
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            try:
                click.echo(opened_line(codec, line.rstrip(b"\n")).decode())
            except RecordUnreadable as error:
                click.echo(f"{file}:{number}: {error.internal}", err=True)
            except StoreError as error:
                raise click.ClickException(str(error)) from error


def _run_with_flushing(config: Path | None, ask: Ask, emit: Listener = lambda _: None, *, action: str = "") -> None:
    """Run an operation with the store open, and stop everything that this started.

    :param action: what the audit log says of it; empty if it shows no text
    """
    from tidemark.features.memory_flush.feature import MemoryFlushFeature
    from tidemark.worker.worker import Worker

    async def run(settings: Settings, url: str) -> None:
        worker = Worker(settings, warn, store_url=url)
        worker.emit.listeners.append(emit)
        flushing = MemoryFlushFeature(worker)
        try:
            await flushing.store.ping()
            if action:
                await audit(flushing.store.ask, settings, action)
            await ask(flushing)
        finally:
            await flushing.aclose()
            await worker.aclose()

    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        with_store(config, run)


def _line(entry: FlushEntry, *, as_json: bool) -> str:
    if as_json:
        return f'{{"id": "{entry.id}", {entry.body.decode()[1:]}'
    body: Any = json.loads(entry.body)
    count, last = len(body["messages"]), body["last"]
    tokens, only = body["tokens"], f" only {entry.only}" if entry.only else ""
    at = datetime.fromtimestamp(entry.at, UTC).isoformat(timespec="seconds")
    return (
        f"{entry.id}  {at}  {entry.conversation}  {count} messages to {last}, {tokens['messages']} tokens, "
        f"summary {tokens['summary']}{only}"
    )


def _letter(letter: DeadLetter, *, as_json: bool) -> str:
    if as_json:
        fields = {"consumer": letter.consumer, "reason": letter.reason, "attempts": letter.attempts}
        return f"{json.dumps({**fields, 'died_at': letter.died_at})[:-1]}, {_line(letter.entry, as_json=True)[1:]}"
    reason = "".join(char if char.isprintable() else "?" for char in letter.reason)
    return f"{_line(letter.entry, as_json=False)}  {letter.consumer}, {letter.attempts} attempts: {reason}"


def _plain(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _is_id(text: str) -> bool:
    parts = text.split("-")
    return len(parts) == 2 and all(part.isdecimal() for part in parts)


COMMANDS = (flush,)
