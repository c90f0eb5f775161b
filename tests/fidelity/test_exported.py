"""Shadow mode: the user's own conversations are measured by what loss receipts count, and nothing changes them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.request.conftest import Bench, Client, benched
from tests.support.scripted import says
from tidemark.cli.main import cli
from tidemark.core.errors import ContextLengthExceeded
from tidemark.core.receipt import Detail
from tidemark.fidelity import LEAST_MESSAGES, ExportedConversation, measure_exported
from tidemark.store.embedded.server import EmbeddedValkey

SAID = [
    {"role": role, "content": f"Sentence {number} of this talk is about the harbour and its {number + 20} boats."}
    for number in range(12)
    for role in ("user", "assistant")
]
RULE = {"role": "user", "content": "Never write to the table orders_2024 without my permission."}


def stored(messages: Sequence[object], name: str = "c") -> ExportedConversation:
    """Return messages as an export has them."""
    return ExportedConversation(name, "small", [json.dumps(message).encode() for message in messages])


async def counted(_: bytes) -> bytes:
    """Say that every request has a thousand tokens."""
    return b'{"input_tokens": 1000}'


async def newest_three(body: bytes, max_tokens: int) -> bytes:
    """Keep a summary and the three newest messages, and use the budget whole."""
    messages = [{"role": "system", "content": "Summary"}, *json.loads(body)["messages"][-3:]]
    return json.dumps({"request": {"model": "small", "messages": messages}, "tokens_after": max_tokens}).encode()


async def two_of_three(_: bytes, __: bytes) -> Sequence[Detail]:
    """Say that one rule and one number survive, and one number does not."""
    return [Detail("rules", "a", "kept"), Detail("numbers", "1", "shortened"), Detail("numbers", "2", "dropped")]


async def test_what_a_receipt_counts_is_summed_up_by_kind() -> None:
    """A shortened detail survives, as in the header."""
    talks = [stored(SAID), stored(SAID, "d")]
    result = await measure_exported(talks, newest_three, counted, two_of_three, [10, 25])
    assert result.measured == 2
    figures = {(figure.kind, figure.budget): figure for figure in result.figures}
    assert [(each.kind, each.survivors, each.facts) for each in result.figures if each.budget == 10] == [
        ("all", 4, 6),
        ("rules", 2, 2),
        ("numbers", 2, 4),
    ]
    assert figures["all", 25].ratio == 0.25
    assert figures["all", 10].newest == 0.3


async def test_a_conversation_that_does_not_fit_a_budget_is_named() -> None:
    """The others are measured all the same."""

    async def refuses(body: bytes, max_tokens: int) -> bytes:
        if max_tokens == 100:
            raise ContextLengthExceeded("The newest message alone is larger.")
        return await newest_three(body, max_tokens)

    result = await measure_exported([stored(SAID)], refuses, counted, two_of_three, [10, 25])
    assert result.failures == ["c at 10 %: The newest message alone is larger."]
    assert {figure.budget for figure in result.figures} == {25}


async def test_a_short_conversation_is_left_out() -> None:
    """Nothing of it would be summarized."""
    result = await measure_exported([stored(SAID[: LEAST_MESSAGES - 1])], newest_three, counted, two_of_three, [10])
    assert (result.measured, list(result.figures)) == (0, [])


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a running Tidemark."""
    folder = tmp_path_factory.mktemp("stored")
    with EmbeddedValkey(folder / "valkey") as server, benched(server.url, folder) as bench:
        yield own_client(bench)


def own_client(bench: Bench) -> Client:
    """Return a client with one conversation that is long enough, and one that is not."""
    client = bench.client("sk-mine", window=200_000)
    bring(client, [*SAID[:20], RULE, *SAID[20:]])
    bring(client, SAID[:4])
    return client


def bring(client: Client, messages: Sequence[object]) -> None:
    """Import a conversation."""
    lines = b"\n".join(json.dumps(message).encode() for message in messages)
    done = client.http.post("/tidemark/conversations/import?model=small", content=lines, headers=client.headers())
    assert done.status_code == 201


def run(client: Client, *arguments: str) -> Result:
    """Run the command with the client's key."""
    words = ["bench", "fidelity", "--url", str(client.http.base_url), *arguments]
    return CliRunner().invoke(cli, words, env={"OPENAI_API_KEY": client.key})


def test_ones_own_conversations_are_measured_and_stay_as_they_are(client: Client) -> None:
    """The rule is counted."""
    listed = client.http.get("/tidemark/conversations", headers=client.headers()).content
    done = run(client, "--stored", "5", "--budgets", "25,50", "--json")
    assert done.exit_code == 0, done.output
    figures = json.loads(done.stdout)["figures"]
    assert ("rules", 25, 1, 1) in [(each["kind"], each["budget"], each["survivors"], each["facts"]) for each in figures]
    assert done.stderr == "Measured 1 stored conversations; none was changed.\n"
    assert client.http.get("/tidemark/conversations", headers=client.headers()).content == listed


def test_ones_own_conversations_compare_templates(tmp_path: Path) -> None:
    """Each is summarized for the model that it names, by that model's summarizer."""
    with EmbeddedValkey(tmp_path / "valkey") as server, benched(server.url, tmp_path) as bench:
        client = own_client(bench)
        bench.upstream.script = says("They spoke of the harbour and its boats, one sentence after the other.")
        words = ["--config", str(tmp_path / "tidemark.yaml"), "--strategy", "llm", "--template", "general,coding"]
        done = run(client, "--stored", "5", "--budgets", "25", "--json", *words)
        assert done.exit_code == 0, done.output
        asked = [request.messages[0]["content"].split()[2] for request in bench.upstream.received]
    found = [each for each in json.loads(done.stdout)["figures"] if each["kind"] == "all"]
    assert [(each["template"], each["model"], each["rejected"]) for each in found] == [
        ("general", "scripted", 0),
        ("coding", "scripted", 0),
    ]
    assert asked == ["conversations.", "programming"]


def test_nothing_is_measured_where_all_are_short(client: Client) -> None:
    """The message names the bound; another client's conversations are none of it."""
    other = Client(client.http, "sk-other")
    bring(other, SAID[:4])
    done = run(other, "--stored", "5")
    assert done.exit_code == 1
    assert f"{LEAST_MESSAGES} messages or more" in done.output


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (["--template", "general,brief"], "no summary template 'brief'; use one of general, technical, coding"),
        (["--model", "nothing-like-it"], "'nothing-like-it' does not exist"),
        (["--budgets", "0"], "percentages"),
    ],
)
def test_an_unknown_choice_is_refused_with_the_possible_ones(client: Client, options: list[str], told: str) -> None:
    """Before anything is compacted."""
    done = run(client, "--stored", "5", "--strategy", "llm", *options)
    assert done.exit_code == 2
    assert told in " ".join(done.output.split())


def test_what_asks_no_model_has_none_to_choose() -> None:
    """``extractive`` takes neither a template nor a model."""
    done = CliRunner().invoke(cli, ["bench", "fidelity", "--stored", "3", "--template", "coding"])
    assert (done.exit_code, "extractive asks no model" in done.output) == (2, True)


@pytest.mark.parametrize(
    "options", [[], ["--file", "locomo10.json"], ["--recall", "5"], ["--stored", "3", "--plot", "figures.svg"]]
)
def test_what_was_here_is_refused_with_its_new_place(options: list[str]) -> None:
    """The command measured conversations with known facts, too; a checkout still does."""
    done = CliRunner().invoke(cli, ["bench", "fidelity", *options])
    assert done.exit_code == 2
    assert "make bench-fidelity" in done.output
    assert "--stored" in done.output


def test_without_a_server_the_command_says_so() -> None:
    """It names the address."""
    done = CliRunner().invoke(cli, ["bench", "fidelity", "--stored", "3", "--url", "http://127.0.0.1:9"])
    assert done.exit_code == 1
    assert "does not answer at 127.0.0.1:9" in str(done.exception or done.output)
