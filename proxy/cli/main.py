"""Defines the ``tidemark`` command with its subcommands.

Each subcommand imports only what it needs, because importing litellm alone takes seconds.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NoReturn, get_args

import click

from proxy import __version__
from proxy.cli.completion import VARIABLE, completion
from proxy.cli.conversations import conversations
from proxy.cli.flush import flush
from proxy.cli.models import config_option, models
from proxy.cli.run_file import announced
from proxy.cli.schema import schema
from proxy.cli.wrap import wrap
from proxy.core.conversation.summary import Strategy
from proxy.core.errors import ConfigError, TidemarkError

if TYPE_CHECKING:
    from proxy.config import Settings
    from proxy.pipeline.offline import OfflineService
    from proxy.server.connections import Bounds

BACKLOG = 2048
KEEP_ALIVE_SECONDS = 75
"""The time until an idle client connection is closed; common load balancers use the same."""
EXIT_USAGE = 2


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tidemark")
def cli() -> None:
    """Keep long LLM conversations within their context window, without changing the client."""


@cli.command()
@config_option
@click.option("--host", help="Interface to listen on (server.host; 127.0.0.1).")
@click.option("--port", type=click.IntRange(0, 65535), help="TCP port (server.port; 8787); 0 for any free one.")
@click.option("--workers", type=click.IntRange(1, 256), help="Processes that share port and store (server.workers; 1).")
def serve(config: Path | None, host: str | None, port: int | None, workers: int | None) -> None:
    """Run the proxy."""
    from proxy.config import exposure_warnings, load
    from proxy.telemetry.logging import configure

    configure()
    settings = load(config, os.environ).listening(host=host, port=port, workers=workers)
    for warning in (*settings.warnings, *exposure_warnings(settings)):
        click.echo(f"warning: {warning}", err=True)
    if (flush_settings := settings.memory_flush).enabled and flush_settings.worker and flush_settings.entry_points:
        from proxy.memory_flush import installed_consumers

        installed_consumers()  # here its error is one message; a failing worker would be restarted again and again
    with ExitStack() as stack:
        stack.enter_context(_ended_by_signals())
        listener = stack.enter_context(_bound(settings.server.host, settings.server.port))
        store_url = _store(settings, stack)
        stack.enter_context(announced(settings.data_dir, _address(listener)))
        _run(settings, config, listener, store_url, _secret(settings))


@cli.command()
@click.option("--serve", "stay", is_flag=True, help="Leave both servers running and print their addresses.")
@click.option(
    "--turns", type=click.IntRange(1, 1000), default=40, show_default=True, help="Length of the conversation."
)
@click.option(
    "--dialect",
    type=click.Choice(["chat", "responses", "messages"]),
    default="chat",
    show_default=True,
    help="The client's format: chat completions, OpenAI's Responses, or Anthropic's messages.",
)
def demo(stay: bool, turns: int, dialect: Literal["chat", "responses", "messages"]) -> None:
    """Show how a real model's conversation fails at its window, and goes on through Tidemark."""
    from proxy.demo.run import main as run

    sys.exit(run(turns=turns, serve=stay, dialect=dialect))


@cli.command()
@config_option
def check(config: Path | None) -> None:
    """Validate a configuration, and show its effect on each model."""
    from proxy.config import check_report

    lines, usable = check_report(config, os.environ)
    for line in lines:
        click.echo(line, err=not usable)
    sys.exit(0 if usable else 1)


@cli.command()
@config_option
@click.argument("file", type=click.File("rb"), default="-")
def count(config: Path | None, file: IO[bytes]) -> None:
    """Count the input tokens of a chat request, locally. FILE is JSON; - or nothing is standard input."""
    _run_offline(config, lambda offline: offline.count(file.read()))


@cli.command()
@config_option
@click.option(
    "--max-tokens", type=click.IntRange(1), help="The token budget of the result, which is filled as far as possible."
)
@click.option("--strategy", type=click.Choice(get_args(Strategy)), default="extractive", show_default=True)
@click.argument("file", type=click.File("rb"), default="-")
def compact(config: Path | None, max_tokens: int | None, strategy: str, file: IO[bytes]) -> None:
    """Compact a chat request. FILE is JSON; - or nothing is standard input. No network for extractive."""
    from proxy.core.ports import Caller

    key = os.environ.get("OPENAI_API_KEY")
    caller = Caller(b"", ((b"authorization", b"Bearer " + key.encode()),) if key else ())

    async def run(offline: OfflineService) -> bytes:
        request = await offline.dialect.parse(file.read(), anonymous=True)
        return await offline.compact_request(request, max_tokens, strategy, caller)

    _run_offline(config, run)


cli.add_command(models)
cli.add_command(conversations)
cli.add_command(flush)
cli.add_command(wrap)
cli.add_command(schema)
cli.add_command(completion)


def main() -> None:
    """Run the command; our own errors become a message and an exit code, never a traceback."""
    try:
        cli(standalone_mode=False, prog_name="tidemark" if VARIABLE in os.environ else None)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except ConfigError as error:
        _fail(str(error), EXIT_USAGE)
    except TidemarkError as error:
        _fail(str(error), 1)
    finally:
        # Dataclasses call `exec` while their module is imported. CPython remembers an interrupt inside `exec` although
        # it was caught, and `python -m` then ends by the signal instead of the exit code. The next `exec` clears that.
        exec("")  # noqa: S102


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"tidemark: {message}" if "\n" not in message else message, err=True)
    sys.exit(code)


def _run_offline(config: Path | None, run: Callable[[OfflineService], Awaitable[bytes]]) -> None:
    """Print the JSON that ``run`` makes with the service that needs neither store nor server."""
    from proxy.app import Parts
    from proxy.config import load

    async def answer() -> bytes:
        parts = Parts(load(config, os.environ), lambda warning: click.echo(f"warning: {warning}", err=True))
        try:
            return await run(parts.offline_service())
        finally:
            await parts.upstream.aclose()

    click.echo(asyncio.run(answer()).decode())


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM unwind the stack as Ctrl-C does, so that everything started is stopped.

    While uvicorn serves, it handles both signals, lets open streams finish, and raises the signal again.
    """

    def leave(number: int, _: object) -> NoReturn:
        sys.exit(128 + number if number != signal.SIGTERM else 0)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(0)
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _bound(host: str, port: int) -> Iterator[socket.socket]:
    """Open the listening socket, which all workers share.

    :raises ConfigError: the address is in use, or not permitted
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listener = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        message = f"Cannot listen on {host}:{port}: {error.strerror}. Choose another with --host or --port."
        raise ConfigError(message) from error
    listener.set_inheritable(True)
    with listener:
        yield listener


def _address(listener: socket.socket) -> str:
    """Return the address of a listening socket, without a path."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def _store(settings: Settings, stack: ExitStack) -> str:
    """Return the store's address; start and supervise an embedded store until ``stack`` unwinds."""
    if str(settings.store.url) != "embedded":
        return str(settings.store.url)
    from proxy.store.embedded.server import EmbeddedValkey
    from proxy.store.embedded.supervision import Supervised

    most = settings.store.max_mb
    options = () if most is None else ("--maxmemory", f"{most}mb", "--maxmemory-policy", "noeviction")
    server = EmbeddedValkey(settings.data_dir / "store", options=options)
    return stack.enter_context(Supervised(server, logging.getLogger("tidemark").warning)).url


def _secret(settings: Settings) -> str:
    """Return the configured secret, or the generated one in the data folder."""
    if settings.secrets.signing is not None:
        return settings.secrets.signing.reveal()
    from proxy.config.signing import stored_secret

    return stored_secret(settings.data_dir)


def _bounds(settings: Settings) -> Bounds:
    """Return the bounds of one worker's clients, and raise the limit of open files for them."""
    from proxy.server.connections import Bounds, allowed_connections, raise_descriptor_limit

    server = settings.server
    descriptors = raise_descriptor_limit(server.max_connections)
    connections = allowed_connections(descriptors, server.max_connections)
    if server.max_connections is not None and connections < server.max_connections:
        message = f"warning: server.max_connections is {server.max_connections}, but only {descriptors} files may be"
        click.echo(f"{message} open (ulimit -n): each worker takes {connections} connections.", err=True)
    return Bounds(
        head_seconds=server.head_seconds,
        body_seconds=server.body_seconds,
        bodies_bytes=max(server.max_bodies_mb, server.max_body_mb) * 1024 * 1024,
        connections=connections,
    )


def _run(settings: Settings, config: Path | None, listener: socket.socket, store_url: str, secret: str) -> None:
    """Serve until a signal arrives."""
    from proxy.server.connections import run

    bounds: Bounds | None = _bounds(settings)
    if settings.transport.server == "library":
        message = "warning: transport.server is library: nothing bounds requests and connections as they come in, so"
        click.echo(f"{message} the limits of the section server do not apply, but for max_body_mb.", err=True)
        bounds = None
    options: dict[str, Any] = {
        "log_config": None,
        "access_log": False,
        "server_header": False,  # the client gets the upstream's own Server and Date
        "date_header": False,
        "timeout_keep_alive": KEEP_ALIVE_SECONDS,
        "backlog": BACKLOG,
        "proxy_headers": False,  # the operator is recognised by the real peer address
        "ws": "none",
    }
    address = _address(listener)
    click.echo(f"Tidemark listens on {address} (OPENAI_BASE_URL={address}/v1)", err=True)
    if settings.server.workers == 1:
        from proxy.app import create_app

        warn = logging.getLogger("tidemark").warning
        app = create_app(settings, store_url=store_url, secret=secret.encode(), warn=warn)
        gc.freeze()  # as in app/workers.py
        run(app, listener, bounds, **options)
        return
    with tempfile.TemporaryDirectory(prefix="tidemark-metrics-") as counters:
        environment = {"TIDEMARK_STORE_URL": store_url, "TIDEMARK_SECRET": secret, "PROMETHEUS_MULTIPROC_DIR": counters}
        environment["TIDEMARK_HOST"] = settings.server.host
        os.environ.update(environment | ({"TIDEMARK_CONFIG": str(config)} if config else {}))
        workers = settings.server.workers
        run("proxy.app.workers:from_environment", listener, bounds, workers=workers, **options)
