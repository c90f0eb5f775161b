"""``tidemark gain``: the bill as a table, for a person."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tests.features.bill.test_gain import PRICED
from tests.request.conftest import Bench, Client, benched
from tests.request.talk import history, user
from tests.support.scripted import says
from tidemark.cli.main import cli
from tidemark.store.embedded.server import EmbeddedValkey


@pytest.fixture
def own(tmp_path: Path) -> Iterator[Bench]:
    """A bench upon a store of the test's own: the bill is everybody's."""
    with EmbeddedValkey(tmp_path / "store") as server, benched(server.url, tmp_path) as made:
        yield made


def lines(client: Client, *options: str) -> tuple[list[str], str]:
    """Run the command, and return its rows with colours and its notes."""
    command = ["gain", "--url", str(client.http.base_url), *options]
    result = CliRunner().invoke(cli, command, color=True, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines(), result.stderr


def test_each_model_has_a_row_and_all_have_one(own: Bench) -> None:
    """What saved is told as such, and a model without a price in tokens."""
    client = own.client("gain", config=PRICED)
    client.chat(history(12), summarize="force")
    client.chat([user("Hello.")], model="unknown")
    own.settle()
    (heads, small, unknown, total), notes = lines(client)
    assert heads.split() == ["model", "requests", "input", "cached", "paid", "uncompacted", "saved"]
    assert small.split()[:2] == ["small", "1"]
    assert "$" in small.split()[-2]
    assert "more" not in small
    assert "no known price" in unknown
    assert total.split()[:2] == ["all", "2"]
    assert notes.startswith("1 requests have no known price")


def test_where_the_proxy_cost_more_the_row_says_so_in_red(own: Bench) -> None:
    """A summary that cost more than it saved."""
    client = own.client("loss", config=PRICED, strategy="llm")
    own.upstream.script = says("The summary tells of points and of what was said about them.")
    client.chat(history(12), summarize="force")
    own.settle()
    (_, *rows), _ = lines(client, "--by", "day", "--since", "1d")
    (row,) = rows
    assert click.unstyle(row) != row
    assert "\x1b[31m" in row
    assert " more (" in row


def test_json_has_what_the_server_answers(own: Bench) -> None:
    """For a script."""
    client = own.client("json", config=PRICED)
    client.chat([user("Hello.")])
    own.settle()
    ((line,), _) = lines(client, "--json")
    assert json.loads(line) == client.http.get("/tidemark/gain").json()


def test_nonsense_is_refused_in_the_server_s_words(own: Bench) -> None:
    """With what it may be."""
    client = own.client("nonsense", config=PRICED)
    result = CliRunner().invoke(cli, ["gain", "--url", str(client.http.base_url), "--since", "a week & more"])
    assert result.exit_code == 1
    assert "since must be days from 1d to 400d" in str(result.exception or result.output)


def test_the_forecast_of_shadow_mode_has_a_table_of_its_own(own: Bench) -> None:
    """What was paid, what it would have been, and the difference."""
    client = own.client("shadow", config=PRICED)
    client.chat([*history(12), user("Well?")], summarize="shadow")
    own.settle()
    (heads, small), _ = lines(client, "--shadow")
    assert heads.split() == ["model", "requests", "in", "shadow", "mode", "paid", "compacted", "would", "save"]
    assert small.split()[:2] == ["small", "1"]
    assert small.count("$") == 3
