"""Defines the ``tidemark`` command with its subcommands.

Each subcommand imports only what it needs, because importing litellm alone takes seconds.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, NoReturn, cast

import click

from tidemark import __version__
from tidemark.app.features import feature_modules
from tidemark.cli.bench import bench
from tidemark.cli.completion import COMPLETION_VARIABLE, completion
from tidemark.cli.init import init
from tidemark.cli.mcp import mcp
from tidemark.cli.serve import serve
from tidemark.cli.top import top
from tidemark.cli.unwrap import unwrap
from tidemark.cli.wrap import wrap
from tidemark.core.errors import ConfigError, TidemarkError
from tidemark.terminal.options import config_option, example, json_option
from tidemark.terminal.tables import print_json, printable

if TYPE_CHECKING:
    from tidemark.core.conversation.messages import JsonValue
    from tidemark.doctor.findings import Finding

EXIT_USAGE = 2
FIRST_STEPS = """\
tidemark init         write a configuration for the keys and local servers that are here
tidemark wrap claude  run Claude Code, or another client, through Tidemark; nothing else is needed
tidemark serve        serve clients at http://127.0.0.1:8787; tidemark --help lists all commands"""
"""What to do next, for a person who types the bare command."""
UNIX_MODULES = ("fcntl", "termios")
"""Modules of Python that Windows does not have, and some of our own need."""
_STYLES = {"ok": "green", "warning": "yellow", "error": "red"}
_WIDTH = len("warning")


@click.group(
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=example("tidemark serve", "tidemark wrap -- python agent.py"),
    invoke_without_command=True,
)
@click.version_option(__version__, prog_name="tidemark")
@click.pass_context
def cli(context: click.Context) -> None:
    """Keep long LLM conversations within their context window, without changing the client."""
    if context.invoked_subcommand is not None:
        return
    if not sys.stdout.isatty():
        raise click.exceptions.NoArgsIsHelpError(context)
    click.echo(FIRST_STEPS)


@cli.command(
    epilog=example("tidemark demo --turns 40"), short_help="Show a conversation that outgrows a real model's window."
)
@click.option("--serve", "stay", is_flag=True, help="Leave both servers running and print their addresses.")
@click.option("--turns", type=click.IntRange(1, 40), default=22, show_default=True, help="Length of the conversation.")
def demo(stay: bool, turns: int) -> None:
    """Show how a real model's conversation fails at its window, and goes on through Tidemark."""
    from tidemark.demo.run import main as run

    sys.exit(run(turns=turns, serve=stay))


@cli.command(epilog=example("tidemark check --config tidemark.yaml"))
@config_option
@click.option("--offline", is_flag=True, help="Do not ask whether the configured addresses can be reached.")
@json_option
def check(config: Path | None, offline: bool, as_json: bool) -> None:
    """Validate a configuration, and show its effect on each model.

    Each configured address is asked once, without a key, whether it can be reached.
    """
    from tidemark.config import check_json, check_report
    from tidemark.worker.encryption import key_warnings

    if as_json:
        report = check_json(config, os.environ, key_warnings)
        if report["ok"] and not offline:
            report["warnings"] = [*cast("list[JsonValue]", report["warnings"]), *_reach_warnings(config)]
        print_json(report)
        sys.exit(0 if report["ok"] else 1)
    lines, usable = check_report(config, os.environ, key_warnings)
    for line in lines:
        click.echo(line, err=not usable)
    for warning in _reach_warnings(config) if usable and not offline else ():
        click.echo(f"warning: {warning}")
    sys.exit(0 if usable else 1)


def _reach_warnings(config: Path | None) -> list[str]:
    """Return what ``tidemark check`` says of addresses that cannot be reached; nothing if none is configured."""
    from tidemark.config import load

    settings = load(config, os.environ)
    if not settings.upstream and not any(
        {"api_base", "base_url"} & entry.litellm_params.keys() for entry in settings.model_list
    ):
        return []
    from tidemark.doctor.reach import reach_warnings

    return asyncio.run(reach_warnings(settings))


@click.command(
    epilog=example("tidemark doctor --config tidemark.yaml"),
    short_help="Find what would not work, and say how to fix it.",
)
@config_option
@click.option("--offline", is_flag=True, help="Ask no upstream and no summarizer's model.")
@click.option("--model", "models", multiple=True, help="A further model to ask, which an entry with a pattern serves.")
@json_option
def doctor(config: Path | None, offline: bool, models: tuple[str, ...], as_json: bool) -> None:
    """Examine configuration, store, upstreams, clock, vocabularies and summarizer, and say how to fix what is wrong.

    Each model of the list gets one request for one token, and each summarizer one short conversation.
    """
    from tidemark.doctor.examination import examine
    from tidemark.doctor.findings import is_usable

    findings = asyncio.run(examine(config, os.environ, _show_progress, offline=offline, models=models))
    _clear_progress()
    if as_json:
        print_json({"ok": is_usable(findings), "findings": [asdict(finding) for finding in findings]})
    else:
        for finding in findings:
            _print(finding)
    sys.exit(0 if is_usable(findings) else 1)


def _print(finding: Finding) -> None:
    plain = bool(os.environ.get("NO_COLOR")) or _is_dumb()
    status = finding.status.ljust(_WIDTH)
    click.echo(
        f"{status if plain else click.style(status, fg=_STYLES[finding.status])}  "
        f"{printable(finding.check)}: {printable(finding.detail)}"
    )
    if finding.mend:
        click.echo(f"{' ' * _WIDTH}  {printable(finding.mend)}")


def _show_progress(text: str) -> None:
    """Say on a terminal what is examined now."""
    if sys.stderr.isatty() and not _is_dumb():
        click.echo(f"\r\x1b[2Kexamining {printable(text)} ...", nl=False, err=True)


def _clear_progress() -> None:
    if sys.stderr.isatty() and not _is_dumb():
        click.echo("\r\x1b[2K", nl=False, err=True)


def _is_dumb() -> bool:
    """Return whether the terminal knows no sequences, as the shell window of an editor."""
    return os.environ.get("TERM", "dumb") == "dumb"


@click.command(
    epilog=example("tidemark schema > tidemark.schema.json"), short_help="Print the JSON Schema of the configuration."
)
def schema() -> None:
    """Print the JSON Schema of the configuration, with which editors complete and validate it."""
    from tidemark.config import configuration_schema

    click.echo(json.dumps(configuration_schema(), indent=2, ensure_ascii=False))


cli.add_command(init)
cli.add_command(serve)
cli.add_command(doctor)
for _module in feature_modules("commands"):
    for _command in resolve_name(f"{_module}:COMMANDS"):  # they import what they do only once they run
        cli.add_command(_command)
cli.add_command(top)
cli.add_command(mcp)
cli.add_command(wrap)
cli.add_command(unwrap)
cli.add_command(schema)
cli.add_command(completion)
cli.add_command(bench)


def main() -> None:
    """Run the command; our own errors become a message and an exit code, never a traceback."""
    try:
        cli(standalone_mode=False, prog_name="tidemark" if COMPLETION_VARIABLE in os.environ else None)
    except click.exceptions.Exit as done:
        sys.exit(done.exit_code)
    except click.ClickException as error:
        if isinstance(error, click.UsageError):
            error.show()
            sys.exit(error.exit_code)
        _fail(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except ConfigError as error:
        _fail(str(error), EXIT_USAGE)
    except TidemarkError as error:
        _fail(str(error), 1)
    except ModuleNotFoundError as error:
        if error.name not in UNIX_MODULES:
            raise
        _fail(f"this needs {error.name}, which Windows does not have; use it in WSL, Linux or macOS.", 1)
    finally:
        # Dataclasses call `exec` while their module is imported. CPython remembers an interrupt inside `exec` although
        # it was caught, and `python -m` then ends by the signal instead of the exit code. The next `exec` clears that.
        exec("")  # noqa: S102


def _fail(message: str, code: int) -> NoReturn:
    click.echo(f"tidemark: {message}" if "\n" not in message else message, err=True)
    sys.exit(code)
