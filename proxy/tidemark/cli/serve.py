"""The command ``tidemark serve``: it opens the port, starts the embedded store, and serves until a signal arrives.

``cli/main.py`` adds it to its group.
"""

from __future__ import annotations

import errno
import gc
import logging
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click

from tidemark.core.errors import ConfigError
from tidemark.core.hosts import is_loopback
from tidemark.terminal.options import config_option, example, warn
from tidemark.terminal.run_file import announced

if TYPE_CHECKING:
    from tidemark.config import Settings
    from tidemark.server.connections import Bounds, TlsFiles

BACKLOG = 2048
FIRST_INHERITED = 3
"""The descriptor of the first socket that systemd passes (``SD_LISTEN_FDS_START``)."""
LOCALHOST = "localhost"
NO_FAMILY = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
THIS_MACHINE: Mapping[str, str] = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - it says what a client connects to
"""What clients of this machine connect to, if the server listens on all addresses of a family."""
KEEP_ALIVE_SECONDS = 75
"""The time until an idle client connection is closed; common load balancers use the same."""


@click.command(epilog=example("tidemark serve --config tidemark.yaml --port 8790"))
@config_option
@click.option("--host", show_default="server.host: 127.0.0.1", help="Interface to listen on.")
@click.option(
    "--port", type=click.IntRange(0, 65535), show_default="server.port: 8787", help="TCP port; 0 for any free port."
)
@click.option(
    "--workers",
    type=click.IntRange(1, 256),
    show_default="server.workers: 1",
    help="Processes that share port and store.",
)
def serve(config: Path | None, host: str | None, port: int | None, workers: int | None) -> None:
    """Run the proxy, until Ctrl-C or SIGTERM."""
    from tidemark.app.features import check_settings
    from tidemark.config import exposure_warnings, load
    from tidemark.config.signing import secret_of
    from tidemark.telemetry.logging import configure
    from tidemark.worker.encryption import cipher_of, warn_of_lost_keys

    configure()
    inherited = _inherited()
    if inherited:
        host, port = inherited[0].getsockname()[:2]
    arguments: dict[str, Any] = {"host": host, "port": port, "workers": workers}
    settings = load(config, os.environ).listening(**arguments)
    for warning in (*settings.warnings, *exposure_warnings(settings)):
        warn(warning)
    check_settings(settings)
    tls = _tls(settings)
    cipher = cipher_of(settings, warn)
    if cipher is not None:
        warn_of_lost_keys(cipher, warn)
    with ExitStack() as stack:
        stack.enter_context(_ended_by_signals())
        listeners = inherited or bound(settings.server.host, settings.server.port)
        for listener in listeners:
            listener.set_inheritable(True)
            stack.enter_context(listener)
        store_url = _store(settings, stack)
        stack.enter_context(announced(settings.data_dir, _address(listeners[0], is_tls=tls is not None)))
        order = {"store_url": store_url, "secret": secret_of(settings)}
        _run(settings, listeners, tls, order, are_inherited=bool(inherited))


@contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM unwind the stack as Ctrl-C does, so that everything started is stopped.

    While uvicorn serves, it handles both signals, lets open streams finish, and raises the signal again. SIGHUP, of a
    terminal that closes, does as SIGTERM, unless ``nohup`` has it ignored; a parent of several workers begins them
    anew.
    """

    def leave(number: int, _: object) -> NoReturn:
        sys.exit(128 + number if number != signal.SIGTERM else 0)

    before = signal.signal(signal.SIGTERM, leave)
    hangup = getattr(signal, "SIGHUP", None)  # Windows has none
    if hangup is not None and signal.getsignal(hangup) is signal.SIG_DFL:
        signal.signal(hangup, lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    try:
        yield
    except KeyboardInterrupt:
        sys.exit(0)
    finally:
        signal.signal(signal.SIGTERM, before)


def _inherited() -> list[socket.socket]:
    """Return the sockets on which systemd listens for this process; none without socket activation (sd_listen_fds(3)).

    :raises ConfigError: one of them takes no TCP connections
    """
    process, count = os.environ.pop("LISTEN_PID", ""), os.environ.pop("LISTEN_FDS", "")
    if process != str(os.getpid()) or not count.isdecimal():
        return []
    listeners = [socket.socket(fileno=FIRST_INHERITED + number) for number in range(int(count))]
    for listener in listeners:
        is_tcp = listener.family in (socket.AF_INET, socket.AF_INET6) and listener.type == socket.SOCK_STREAM
        if not is_tcp or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise ConfigError(
                "systemd passed a socket that takes no TCP connections. Set ListenStream to ADDRESS:PORT."
            )
    return listeners


def bound(host: str, port: int) -> list[socket.socket]:
    """Open the listening sockets, which all workers share.

    ``localhost`` has an address of each family, and a client may try either first.

    :raises ConfigError: the address is in use, or not permitted
    """
    listeners: list[socket.socket] = []
    for address in ("127.0.0.1", "::1") if host.lower() == LOCALHOST else (host,):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        try:
            listener = socket.create_server((address, port), family=family, backlog=BACKLOG)
        except OSError as error:
            if listeners and error.errno in NO_FAMILY:  # a machine or container without IPv6
                continue
            message = f"Cannot listen on {address}:{port}: {error.strerror}. Choose another with --host or --port."
            raise ConfigError(message) from error
        listeners.append(listener)
        port = listener.getsockname()[1]
    return listeners


def _tls(settings: Settings) -> TlsFiles | None:
    """Return the files of the certificate, once they were tried; None for plain HTTP.

    :raises ConfigError: they cannot be used
    """
    from tidemark.server.connections import Certificates, TlsFiles

    tls = settings.server.tls
    if tls.cert is None or tls.key is None:
        return None
    files = TlsFiles(tls.cert, tls.key, tls.client_ca)
    for warning in files.warnings():
        warn(warning)
    Certificates(files, logging.getLogger("tidemark").warning)
    return files


def _address(listener: socket.socket, *, is_tls: bool) -> str:
    """Return an address that clients of this machine can use, without a path.

    A socket that listens on all addresses names none.
    """
    host, port = listener.getsockname()[:2]
    host = THIS_MACHINE.get(host, host)
    scheme = "https" if is_tls else "http"
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"


def _first_lines(settings: Settings, listener: socket.socket) -> Iterator[str]:
    """Yield what a person needs first: where clients and browsers go, and by which file."""
    address = _address(listener, is_tls=settings.server.tls.cert is not None)
    yield f"Tidemark listens on {address} (OPENAI_BASE_URL={address}/v1), with its console at {address}/console"
    host = listener.getsockname()[0]
    if host in THIS_MACHINE:
        yield f"Other machines reach it by this machine's name or address: it listens on all of them ({host})."
    if not is_loopback(host) and settings.secrets.admin_token is None:
        yield "The console is closed until TIDEMARK_ADMIN_TOKEN is set, since other machines may reach this port."
    elif settings.secrets.admin_token is None and not settings.server.trusted_proxies:
        yield (
            "Whoever reaches it from this machine is the operator. Where a reverse proxy here adds no forwarding "
            "header, that is everybody: set TIDEMARK_ADMIN_TOKEN, or name the proxy in server.trusted_proxies."
        )
    if settings.path is not None:
        yield f"It goes by the configuration {settings.path}."


def _store(settings: Settings, stack: ExitStack) -> str:
    """Return the store's address; start and supervise an embedded store until ``stack`` unwinds."""
    if str(settings.store.url) != "embedded":
        return str(settings.store.url)
    from tidemark.store.embedded.server import EmbeddedValkey, memory_options
    from tidemark.store.embedded.supervision import Supervised

    warn = logging.getLogger("tidemark").warning
    server = EmbeddedValkey(settings.data_dir / "store", options=memory_options(settings.store.max_mb), tell=warn)
    return stack.enter_context(Supervised(server, warn)).url


def _bounds(settings: Settings) -> Bounds:
    """Return the bounds of one worker's clients, and raise the limit of open files for them."""
    from tidemark.server.connections import Bounds, allowed_connections, raise_descriptor_limit

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


def _run(
    settings: Settings,
    listeners: list[socket.socket],
    tls: TlsFiles | None,
    order: Mapping[str, Any],
    *,
    are_inherited: bool,
) -> None:
    """Serve until a signal arrives.

    :param order: what each worker gets beside the configuration: ``store_url`` and ``secret``
    :param are_inherited: systemd keeps the listening sockets, for the next process
    """
    from tidemark.server.connections import run

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
        "are_inherited": are_inherited,
        **({} if tls is None else {"tls": tls}),
    }
    for line in _first_lines(settings, listeners[0]):
        click.echo(line, err=True)
    if settings.server.workers == 1:
        from tidemark.app.application import create_app

        warn = logging.getLogger("tidemark").warning
        app = create_app(settings, **order, warn=warn)
        gc.freeze()  # as in app/workers.py
        run(app, listeners, bounds, **options)
        return
    with tempfile.TemporaryDirectory(prefix="tidemark-metrics-") as counters:
        os.environ["PROMETHEUS_MULTIPROC_DIR"] = counters  # its library reads it when it is imported
        order = {**order, "shared_metrics": Path(counters)}
        run(partial(_build_worker, settings, order), listeners, bounds, workers=settings.server.workers, **options)


def _build_worker(settings: Settings, order: Mapping[str, Any]) -> Any:
    """Build the application in a worker process, which gets the settings as the parent read them."""
    from tidemark.app.workers import build_worker

    return build_worker(settings, **order)
