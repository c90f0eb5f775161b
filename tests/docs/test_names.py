"""What the documentation names exists, and what exists is named: headers, codes, metrics, commands, files, links."""

from __future__ import annotations

import ast
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import click
import pytest
import yaml
from starlette.routing import Route

from tests.docs.pages import (
    ALL_PAGES,
    ROOT,
    anchors,
    cells,
    links,
    name_of,
    names_in,
    prose_of,
    quoted,
    section_of,
    text_of,
)
from tidemark.app.application import create_app
from tidemark.app.features import FEATURES
from tidemark.cli.main import cli
from tidemark.config import load
from tidemark.config.environment import VARIABLES
from tidemark.core.planning.budget import CompactionPolicy, ModelProfile, ModelWindow, budget_for
from tidemark.core.report import Action, Report
from tidemark.features.bill.feature import BillSeries
from tidemark.features.memory_flush.feature import FlushSeries
from tidemark.server import headers
from tidemark.telemetry.lines import ServedLine
from tidemark.telemetry.metrics import Metrics
from tidemark.upstream.refusals import CODES
from tidemark.worker.worker import Worker

EVERYTHING = "\n".join(page.read_text(encoding="utf-8") for page in ALL_PAGES)
NAMED = {name for page in ALL_PAGES for name in quoted(prose_of(page))}
SOURCES = sorted((ROOT / "proxy" / "tidemark").rglob("*.py"))

NOT_ANSWERED = {
    "config_error": "ends the command before it serves",
    "store_in_use": "the same",
    "invalid_request_error": "the ancestor's; every error that is raised has one of its own",
}
"""Codes of errors that no client is answered with."""


def request_headers() -> set[str]:
    """The headers that the edge reads."""
    source = Path(headers.__file__).read_text(encoding="utf-8")
    return {name.lower() for name in re.findall(r"X-Tidemark-[A-Za-z-]+\w", source)}


def response_headers() -> set[str]:
    """The headers that a full report becomes, and the one that a bill does."""
    full = Report(
        "id", "tenant", 1, strategy="llm", warning="w", gap="unseen=1", summarized=1, receipt="r", recall="nothing"
    )
    return {name.decode() for name, _ in [*headers.report_lines(full), headers.saved_line(0.01)]}


def codes_in(path: Path) -> set[str]:
    """The error codes that a source file states: a class's, a default's, an argument's, a dictionary's."""
    found: list[ast.expr | None] = []
    source = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(source)) if "code" in source else ():
        if isinstance(node, ast.keyword) and node.arg == "code":
            found.append(node.value)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found += [node.value for target in targets if isinstance(target, ast.Name) and target.id == "code"]
        elif isinstance(node, ast.arguments):
            found += [
                default
                for argument, default in zip(node.kwonlyargs, node.kw_defaults, strict=True)
                if argument.arg == "code"
            ]
        elif isinstance(node, ast.Dict):
            found += [
                value
                for key, value in zip(node.keys, node.values, strict=True)
                if isinstance(key, ast.Constant) and key.value == "code"
            ]
    return {one.value for one in found if isinstance(one, ast.Constant) and isinstance(one.value, str)}


def options_of(command: click.Command) -> set[str]:
    """A command's own options."""
    given = [option for option in command.params if isinstance(option, click.Option)]
    return {name for option in given for name in option.opts if name.startswith("--")}


def commands(group: click.Group, prefix: str = "") -> Iterator[tuple[str, click.Command]]:
    """Every command with its whole name; those of a group in its place."""
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            yield from commands(command, f"{prefix}{name} ")
        else:
            yield prefix + name, command


def test_headers_are_named_both_ways() -> None:
    """The tables list every header that is read or sent, and no other."""
    wire = [section_of("docs/wire.md", part) for part in ("Request headers", "Response headers")]
    tables = [set(re.findall(r"^\| `(X-Tidemark-[\w-]+)`", part, re.MULTILINE)) for part in wire]
    assert tables == [names_in("README.md", "request header"), names_in("README.md", "response header")]
    assert [{name.lower() for name in table} for table in tables] == [request_headers(), response_headers()]


def test_no_other_header_is_mentioned() -> None:
    """Anywhere."""
    mentioned = {name.lower() for name in re.findall(r"X-Tidemark-[A-Za-z-]+\w", EVERYTHING)}
    assert mentioned == request_headers() | response_headers()


@pytest.mark.parametrize("page", ["README.md", "docs/wire.md"])
def test_actions_are_listed(page: str) -> None:
    """All values of ``X-Tidemark-Action``, in the code's order."""
    row = re.search(r"^\| `X-Tidemark-Action` \|(.*)$", text_of(page), re.MULTILINE)
    assert row
    assert [word for word in quoted(row[1]) if word != "off"] == list(get_args(Action))


def test_error_codes_are_listed_both_ways() -> None:
    """Every code that a client can be answered with, and no other."""
    stated = {code for path in SOURCES for code in codes_in(path)} | set(CODES.values())
    assert names_in("docs/wire.md", "code") == stated - set(NOT_ANSWERED)
    assert set(NOT_ANSWERED) <= stated


def test_metrics_are_listed_both_ways_with_their_labels() -> None:
    """Counters end in ``_total``; the process's own are prometheus_client's."""
    rows = {quoted(row[0])[0]: (row[1], row[2]) for row in cells("docs/operations.md", "metric")}
    collected: dict[str, tuple[str, str]] = {}
    registry = Metrics().registry
    FlushSeries(registry)
    BillSeries(registry)
    for collector in registry._collector_to_names:  # noqa: SLF001 - nothing public tells the labels
        labels = ", ".join(getattr(collector, "_labelnames", ()))
        for family in collector.collect():
            if family.name.startswith("tidemark_"):
                name = family.name + "_total" * (family.type == "counter")
                collected[name] = (family.type, labels)
    assert rows == collected


def test_commands_and_options_are_listed_both_ways() -> None:
    """The table of the command line."""
    table = cells("docs/operations.md", "command")
    rows = {quoted(row[0])[0].removeprefix("tidemark "): set(quoted(row[1])) for row in table}
    assert rows == {name: options_of(command) for name, command in commands(cli)}


def test_every_command_that_is_mentioned_exists() -> None:
    """In prose and snippets: ``tidemark COMMAND --option``."""
    for name, rest in re.findall(r"\btidemark (serve|[a-z]+ --|check|count|compact|demo)([^`\n|]*)", EVERYTHING):
        command = cli.commands[name.split()[0]]
        assert set(re.findall(r"(?<!\S)--[a-z-]+", rest)) <= options_of(command), f"tidemark {name}{rest}"


def test_log_events_and_fields_are_listed_both_ways() -> None:
    """Of each fact its name, of a request every field."""
    source = (ROOT / "proxy" / "tidemark" / "telemetry" / "logging.py").read_text(encoding="utf-8")
    events = set(re.findall(r'"([a-z]+\.[a-z]+)"[,)]', source)) - {"aiohttp.access", "uvicorn.error", "uvicorn.asgi"}
    assert names_in("docs/operations.md", "event") == {name for name in events if not name.startswith("uvicorn")}
    assert names_in("docs/operations.md", "field of `request.served`") == set(ServedLine.__struct_fields__) - {
        "event",
        "level",
        "timestamp",
    }


def test_every_variable_that_is_mentioned_exists() -> None:
    """``docs/configuration.md`` is held to the code elsewhere."""
    compose = (ROOT / "deploy" / "compose.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"\bTIDEMARK_[A-Z_]+\b", EVERYTHING + compose)) <= set(VARIABLES)


def test_endpoints_are_listed_both_ways(tmp_path: Path) -> None:
    """Method and path, as the application has them: the console's on its page, all others on that of the wire."""
    settings = load(None, {"HOME": str(tmp_path)})
    app = create_app(settings, store_url="redis://127.0.0.1:1", secret=b"s", warn=lambda _: None)
    routes = {
        f"{method} {route.path.replace(':path', '')}"
        for route in app.routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    pages = {route for route in routes if "/console" in route}
    assert names_in("docs/wire.md", "endpoint") == routes - pages
    assert names_in("docs/console.md", "page") == pages


def test_the_worked_example_is_right() -> None:
    """The arithmetic of ``docs/compaction.md`` is the budget's."""
    profile = ModelProfile("m", ModelWindow(32_768, 4096), CompactionPolicy())
    budget, shorter = budget_for(profile, None), budget_for(profile, 500)
    text = section_of("docs/compaction.md", "A worked example")
    rows = re.findall(r"^\| ([a-z ]+) \|.*\| ([\d,]+) \|$", text, re.MULTILINE)
    assert {mark: int(tokens.replace(",", "")) for mark, tokens in rows} == {
        "margin": 32_768 - 4096 - budget.limit,
        "reply reserve": 4096,
        "limit": budget.limit,
        "high water": budget.high_water,
        "prepare mark": budget.prepare_mark,
        "low water": budget.low_water,
        "retention": budget.retention,
        "summary bound": budget.max_summary,
        "minimum": budget.min_tokens,
    }
    assert f"its limit is {shorter.limit:,} tokens, and so is its high water" in " ".join(text.split())
    assert shorter.high_water == shorter.limit


def contracts() -> list[dict[str, Any]]:
    """The contracts of import-linter."""
    found: list[dict[str, Any]] = tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    return found


def test_every_import_contract_is_explained() -> None:
    """By name, in order."""
    section = section_of("docs/architecture.md", "Import contracts")
    names = [contract["name"] for contract in contracts()]
    assert re.findall(r"^- \*\*(.+?)\*\*: ", section, re.MULTILINE) == names


def test_every_layer_is_explained() -> None:
    """Those of the first contract, from the top down, with the packages of each."""
    layers = [{package.strip() for package in layer.split("|")} for layer in contracts()[0]["layers"]]
    assert [set(quoted(row[0])) for row in cells("docs/architecture.md", "layer")] == layers


def test_the_path_of_a_request_is_the_list_of_steps(tmp_path: Path) -> None:
    """Each step by its class, in the order in which a request meets them."""
    settings = load(None, {"HOME": str(tmp_path)})
    steps = Worker(settings, pytest.fail, store_url="redis://127.0.0.1:1").pipeline.steps
    names = [re.sub(r"(?<!^)(?=[A-Z])", "_", type(step).__name__).lower() for step in steps]
    assert [quoted(row[0])[0] for row in cells("docs/architecture.md", "step")] == names


def test_every_feature_is_on_the_page() -> None:
    """The list that plugs them in, and the folders, which are the same."""
    listed = [name.partition(".")[0] for name in FEATURES]
    assert sorted(names_in("docs/architecture.md", "feature")) == sorted(listed)
    folders = (ROOT / "proxy/tidemark/features").glob("*/__init__.py")
    assert sorted(path.parent.name for path in folders) == sorted(listed)


def test_every_package_is_on_the_page() -> None:
    """Every file and folder at the top of ``proxy/tidemark/``."""
    listed = {name.rstrip("/") for name in names_in("docs/architecture.md", "package")}
    packages = {
        path.name
        for path in (ROOT / "proxy" / "tidemark").iterdir()
        if (path.suffix == ".py" or (path / "__init__.py").exists()) and not path.name.startswith("_")
    }
    assert listed == packages


def test_the_readme_is_read_in_minutes() -> None:
    """Fewer than 1,200 words, with a picture of the request's path."""
    readme = text_of("README.md")
    assert len(readme.split()) < 1200
    assert "docs/pictures/path.svg" in links(ROOT / "README.md")


def test_the_glossary_has_each_term_once_in_order() -> None:
    """A term that stands twice would have two meanings."""
    terms = re.findall(r"^- \*\*(.+?)\*\*: \S", text_of("docs/glossary.md"), re.MULTILINE)
    assert len(terms) > 50
    assert terms == sorted(set(terms))


def test_no_path_that_is_named_is_dead() -> None:
    """A file or folder of the project in back quotes is there, from the top or within the package."""
    files = {name for name in NAMED if re.fullmatch(r"[\w/.]+\.(?:py|toml|lua)", name)}
    folders = {name for name in NAMED if re.fullmatch(r"(?:proxy|tests|deploy|config|docs)/[\w/.]*", name)}
    assert files
    assert folders
    assert {
        name
        for name in files | folders
        if not any((top / name).exists() for top in (ROOT, ROOT / "proxy", ROOT / "proxy" / "tidemark"))
    } == set()


def test_make_targets_that_are_mentioned_exist() -> None:
    """``make TARGET``, variables aside."""
    phony = re.search(r"^\.PHONY: (.*)$", text_of("Makefile"), re.MULTILINE)
    assert phony
    mentioned = re.findall(r"(?:^|`)make (?:[A-Z]+=\S+ )*([a-z]+(?:-[a-z]+)*)", EVERYTHING, re.MULTILINE)
    assert {"demo", "test"} <= set(mentioned) <= set(phony[1].split())


@pytest.mark.parametrize("page", ALL_PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    """To a file that is there, and a heading that is in it; other sites are not asked."""
    for link in links(page):
        if link.startswith("https://"):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_relative_to(ROOT), link
        assert target.exists(), link
        assert not anchor or anchor in anchors(target), link


def test_the_compose_file_is_what_the_pages_say() -> None:
    """The proxy and a Valkey with persistence and a health check, and what shows them, open to this machine only."""
    services = yaml.safe_load(text_of("deploy/compose.yaml"))["services"]
    assert set(services) == {"proxy", "valkey", "prometheus", "grafana"}
    ports = [port for service in services.values() for port in service.get("ports", ())]
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert services["proxy"]["ports"] == ["127.0.0.1:8787:8787"]
    assert "healthcheck" in services["valkey"]
    assert "--appendonly" in services["valkey"]["command"]


def test_whoever_stops_it_waits_for_open_streams() -> None:
    """Docker kills after 10 s by itself; systemd ends the embedded Valkey before the proxy."""
    page = text_of("docs/operations.md")
    assert yaml.safe_load(text_of("deploy/compose.yaml"))["services"]["proxy"]["stop_grace_period"] == "10m"
    assert "`stop_grace_period` is 10 minutes" in page
    assert "KillMode=mixed" in page
