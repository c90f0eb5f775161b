"""The command ``tidemark wrap``: it runs another command with Tidemark between it and its models.

``cli/main.py`` adds it to its group. It uses the server that the data folder's run file names, or starts one.
"""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import click

from tidemark.cli.agents import AGENTS
from tidemark.cli.agents.agent import Agent, Place, Spoken
from tidemark.cli.metrics_text import MetricsReading, read_metrics
from tidemark.cli.unwrap import install
from tidemark.core.errors import TidemarkError
from tidemark.core.frozen import frozen
from tidemark.features.bill.commands import dollars
from tidemark.terminal.http_client import configured_url, page, request, running_url
from tidemark.terminal.options import config_option, example

if TYPE_CHECKING:
    from tidemark.config import Settings

EXIT_NOT_FOUND = 127
EXIT_NOT_EXECUTABLE = 126
"""Exit codes of a command that cannot be run, as shells have them."""
PASSED_ON = [number for name in ("SIGTERM", "SIGHUP") if (number := getattr(signal, name, None))]
"""Signals that the command gets, too. Windows has but the first."""
REQUESTS, SENT, SAVED, COMPACTIONS = (
    f"tidemark_{name}_total" for name in ("requests", "tokens_before", "tokens_saved", "compactions")
)
GAIN_PATH = "/tidemark/gain?since=400d"
"""All days: the sums of two readings differ by what came between them, also over midnight."""
Gain = Mapping[str, Any]
"""What the server answers there."""


@frozen
class Saved:
    """What a server counted while a command ran."""

    requests: int
    sent_tokens: int
    saved_tokens: int
    compactions: int

    def line(self) -> str:
        if not self.requests:
            return "tidemark: no requests came through"
        share = self.saved_tokens / self.sent_tokens if self.sent_tokens else 0
        return (
            f"tidemark: {self.requests:,} requests with {self.sent_tokens:,} tokens, of which "
            f"{self.saved_tokens:,} ({share:.0%}) were saved by {self.compactions:,} summaries"
        )


class WrapCommand(click.Command):
    """Notes whether ``--`` stands before the command, which then is no client's name."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words, and add the parameter ``is_plain``."""
        words = list(args)
        rest = super().parse_args(ctx, args)
        number = len(ctx.params.get("command") or ())
        ctx.params["is_plain"] = words[len(words) - number - 1 : len(words) - number] == ["--"]
        return rest


@click.command(
    cls=WrapCommand,
    context_settings={"allow_interspersed_args": False},
    epilog=example("tidemark wrap claude", "tidemark wrap -- python agent.py --model gpt-4o"),
    short_help="Run a client, or any command, with Tidemark between it and its models.",
)
@config_option
@click.option("--print", "prints", is_flag=True, help="Print what would be set and run; start nothing.")
@click.option("--install", "installs", is_flag=True, help="Set it in the client's own settings; start nothing.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def wrap(config: Path | None, prints: bool, installs: bool, command: tuple[str, ...], is_plain: bool) -> None:
    """Run COMMAND with Tidemark between it and its models.

    COMMAND is a client (aider, claude, codex, llm, opencode, pi, qwen) with its words, which gets the switches that it
    needs, or behind -- any other command, which gets OPENAI_BASE_URL and ANTHROPIC_BASE_URL.

    It ends with the command's exit code, and says what was saved. A server that runs on the same data folder is used;
    otherwise one is started, and ended afterwards. Its own options stand before COMMAND.
    """
    from tidemark.config import load

    settings = load(config, os.environ)
    agent = None if is_plain else AGENTS.get(command[0])
    spoken = spoken_behind(settings)
    if installs:
        if agent is None:
            raise click.UsageError(f"--install needs a client: {', '.join(sorted(AGENTS))}.")
        place = Place(configured_url(config), spoken, os.environ)
        click.echo(f"set {install(agent, place, settings.data_dir)}; take it back with: tidemark unwrap {command[0]}")
        return
    if prints:
        place = Place(running_url(settings.data_dir) or configured_url(config), spoken, os.environ)
        variables, words = _switched(agent, command, place)
        for name, value in variables.items():
            click.echo(f"{name}={shlex.quote(value)}")
        click.echo(shlex.join(words))
        return
    if agent is not None and shutil.which(agent.program) is None:
        click.echo(f"tidemark: {agent.program} is not installed. Install it: {agent.install}", err=True)
        sys.exit(EXIT_NOT_FOUND)
    with _server(config, settings) as url:
        variables, words = _switched(agent, command, Place(url, spoken, os.environ))
        before, bill_before = reading(url), read_gain(url)
        code = _run(words, {**os.environ, **variables})
        after, bill_after = reading(url), read_gain(url)
    if before is not None and after is not None:
        click.echo(_last_line(before, after, (bill_before, bill_after)), err=True)
    sys.exit(code)


def addresses(url: str) -> Mapping[str, str]:
    """Return the environment variables that lead clients to a server.

    :param url: its address without a path
    """
    return {"OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_BASE": f"{url}/v1", "ANTHROPIC_BASE_URL": url}


def spoken_behind(settings: Settings) -> Spoken:
    """Return what is behind Tidemark, by the configuration alone.

    Without one, litellm sends names of Anthropic's models to Anthropic.
    """
    from tidemark.upstream.providers import ANTHROPIC_BASE

    own = urlsplit(ANTHROPIC_BASE).hostname
    bases = [str(settings.upstream)] if settings.upstream else []
    if settings.model_list and any(not entry.upstream_model.startswith("anthropic/") for entry in settings.model_list):
        return "other"
    for entry in settings.model_list:
        params = entry.litellm_params
        bases += [str(base)] if (base := params.get("api_base") or params.get("base_url")) else []
    if all(urlsplit(base).hostname == own for base in bases):
        return "anthropic"
    return "messages" if settings.model_list and not settings.upstream else "other"


def reading(url: str) -> MetricsReading | None:
    """Return a server's metrics; None if it does not answer."""
    metrics = page(url, "/metrics")
    return None if metrics is None else read_metrics(metrics)


def read_gain(url: str) -> Gain | None:
    """Return a server's bill of all days; None if it does not give it, as to no operator."""
    server = {"url": url, "config": None, "operator": bool(os.environ.get("TIDEMARK_ADMIN_TOKEN"))}
    try:
        gain: Gain = json.loads(b"".join(request(server, "GET", GAIN_PATH)))
    except (TidemarkError, ValueError):
        return None
    return gain


def bill_between(before: Gain | None, after: Gain | None) -> str:
    """Return a part of a line for a person; empty if no upstream has counted, or a bill is missing."""
    if before is None or after is None or not (tokens := _more(before, after, "input_tokens")):
        return ""
    share = _more(before, after, "cached_tokens") / tokens
    text = f"; upstreams read {tokens:,} tokens ({share:.0%} from a cache) and wrote "
    text += f"{_more(before, after, 'output_tokens'):,}{_money(before, after)}"
    earlier = {row["model"]: row["unpriced_requests"] for row in before["data"]}
    names = [row["model"] for row in after["data"] if row["unpriced_requests"] > earlier.get(row["model"], 0)]
    return text + (f", no known price for {', '.join(sorted(names))}" if names else "")


def _money(before: Gain, after: Gain) -> str:
    """Return what was paid, and how much more or less that is than uncompacted; empty if nothing has a price."""
    paid = _more(before, after, "paid_usd")
    if not paid:
        return ""
    if _more(before, after, "unknown_summaries"):
        return f" for {dollars(paid)}, summaries of unknown cost apart"
    saved = round(_more(before, after, "uncompacted_usd") - paid, 9)
    words = f", {dollars(abs(saved))} {'more' if saved < 0 else 'less'} than uncompacted" if saved else ""
    return f" for {dollars(paid)}{words}"


def _more(before: Gain, after: Gain, name: str) -> Any:
    return (after[name] or 0) - (before[name] or 0)


def _switched(agent: Agent | None, command: Sequence[str], place: Place) -> tuple[Mapping[str, str], Sequence[str]]:
    """Return the variables and words of a command. What the user has set stays, unless it is an address."""
    if agent is None:
        return addresses(place.url), command
    variables = {
        name: value for name, value in agent.variables(place).items() if place.url in value or name not in place.environ
    }
    return variables, [command[0], *agent.arguments(place), *command[1:]]


def _last_line(before: MetricsReading, after: MetricsReading, gains: Sequence[Gain | None]) -> str:
    """Return what the command used and saved, with what it cost.

    :param gains: the server's bill before and after
    """
    saved = difference(before.sums, after.sums)
    return saved.line() + (bill_between(*gains) if saved.requests else "")


def difference(before: Mapping[str, float], after: Mapping[str, float]) -> Saved:
    """Return what was counted between two moments."""
    names = (REQUESTS, SENT, SAVED, COMPACTIONS)
    return Saved(*[int(after.get(name, 0) - before.get(name, 0)) for name in names])


@contextlib.contextmanager
def _server(config: Path | None, settings: Settings) -> Iterator[str]:
    """Yield the address of a running server, which ends with the block if it was started for it."""
    from tidemark.demo.children import HOST, ChildError, child, free_port

    running = running_url(settings.data_dir)
    if running is not None:
        yield running
        return
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tidemark-wrap-")))
        port = free_port()
        where = ["--config", str(config)] if config is not None else []
        line = [
            sys.executable,
            "-m",
            "tidemark",
            "serve",
            *where,
            "--host",
            HOST,
            "--port",
            str(port),
            "--workers",
            "1",
        ]
        try:
            server = stack.enter_context(child("Tidemark", port, line, folder / "serve.log", dict(os.environ)))
            server.wait_ready("/health/liveliness")
        except ChildError as error:
            raise TidemarkError(str(error)) from error
        yield server.url


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
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, *PASSED_ON)}
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to the command, too
    for number in PASSED_ON:
        signal.signal(number, lambda received, _: process.send_signal(received))
    try:
        code = process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    return code if code >= 0 else 128 - code
