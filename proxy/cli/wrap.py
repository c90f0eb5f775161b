"""The command ``tidemark wrap``: it runs another command with Tidemark between it and its models.

``cli/main.py`` adds it to its group. It uses the server that the data folder's run file names, or starts one.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from proxy.cli.examples import example
from proxy.cli.http_client import page, running_url
from proxy.cli.models import config_option
from proxy.core.errors import TidemarkError

EXIT_NOT_FOUND = 127
EXIT_NOT_EXECUTABLE = 126
"""Exit codes of a command that cannot be run, as shells have them."""
_COUNTS = re.compile(r"^(tidemark_[a-z_]+_total)(?:\{[^}]*\})? ([0-9.e+]+)$", re.MULTILINE)
REQUESTS, SENT, SAVED, COMPACTIONS = (
    f"tidemark_{name}_total" for name in ("requests", "tokens_before", "tokens_saved", "compactions")
)


@dataclass(frozen=True, slots=True)
class Saved:
    """What a server counted while a command ran."""

    requests: int
    sent_tokens: int
    saved_tokens: int
    compactions: int

    def line(self) -> str:
        """Return one line for a person."""
        if not self.requests:
            return "tidemark: no requests came through"
        share = self.saved_tokens / self.sent_tokens if self.sent_tokens else 0
        return (
            f"tidemark: {self.requests:,} requests with {self.sent_tokens:,} tokens, of which "
            f"{self.saved_tokens:,} ({share:.0%}) were saved by {self.compactions:,} summaries"
        )


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False},
    epilog=example("tidemark wrap -- python agent.py --model gpt-4o"),
)
@config_option
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def wrap(config: Path | None, command: tuple[str, ...]) -> None:
    """Run COMMAND with Tidemark between it and its models.

    It sets OPENAI_BASE_URL and ANTHROPIC_BASE_URL for the command, ends with the command's exit code, and says what
    was saved. A server that runs on the same data folder is used; otherwise one is started, and ended afterwards.
    """
    with _server(config) as url:
        before = counts(url)
        code = _run(command, {**os.environ, **addresses(url)})
        after = counts(url)
    if before is not None and after is not None:
        click.echo(difference(before, after).line(), err=True)
    sys.exit(code)


def addresses(url: str) -> Mapping[str, str]:
    """Return the environment variables that lead clients to a server.

    :param url: its address without a path
    """
    return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_BASE": f"{url}/v1", "ANTHROPIC_BASE_URL": url}


def counts(url: str) -> Mapping[str, int] | None:
    """Return the sums of a server's counters by their names; None where it does not answer."""
    metrics = page(url, "/metrics")
    if metrics is None:
        return None
    sums: dict[str, int] = {}
    for name, value in _COUNTS.findall(metrics):
        sums[name] = sums.get(name, 0) + int(float(value))
    return sums


def difference(before: Mapping[str, int], after: Mapping[str, int]) -> Saved:
    """Return what was counted between two moments."""
    names = (REQUESTS, SENT, SAVED, COMPACTIONS)
    return Saved(*[after.get(name, 0) - before.get(name, 0) for name in names])


@contextlib.contextmanager
def _server(config: Path | None) -> Iterator[str]:
    """Yield the address of a running server, which ends with the block where it was started for it."""
    from proxy.config import load
    from proxy.demo.children import HOST, ChildError, child, free_port

    running = running_url(load(config, os.environ).data_dir)
    if running is not None:
        yield running
        return
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemark-wrap-")))
        port = free_port()
        where = ["--config", str(config)] if config is not None else []
        line = [sys.executable, "-m", "proxy", "serve", *where, "--host", HOST, "--port", str(port), "--workers", "1"]
        try:
            server = stack.enter_context(child("Tidemark", line, folder / "serve.log", dict(os.environ)))
            server.wait_ready(port, "/health/liveliness")
        except ChildError as error:
            raise TidemarkError(str(error)) from error
        yield f"http://{HOST}:{port}"


def _run(command: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run a command to its end, and return the exit code that a shell would return."""
    try:
        process = subprocess.Popen(command, env=environ)
    except FileNotFoundError:
        click.echo(f"tidemark: {command[0]}: command not found", err=True)
        return EXIT_NOT_FOUND
    except OSError as error:
        click.echo(f"tidemark: {command[0]}: {error.strerror}", err=True)
        return EXIT_NOT_EXECUTABLE
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the command, too
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda received, _: process.send_signal(received))
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code
