"""The production measure: exported conversations go through a whole Tidemark, and what it forwards is searched."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from benchmarks.fidelity.corpora import written_talks
from tests.fidelity.test_exported import bring
from tests.request.conftest import Client, benched
from tests.support.logs import logging_put_back
from tidemark.app.application import create_app
from tidemark.cli.main import cli
from tidemark.config import load
from tidemark.core.conversation.summary import render_text
from tidemark.core.recall.quotation import CLOSING, OPENING
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.fidelity import ExportedConversation
from tidemark.fidelity.production import ProductionMeasurement, Share, measure_production
from tidemark.fidelity.replaying import ReplayRefused, replay_settings, replaying, taken_apart, turns_of
from tidemark.store.embedded.server import EmbeddedValkey

WINDOW = 1024
PLACES = ("harbour", "lighthouse", "market", "garden", "library", "station")


@pytest.fixture(autouse=True)
def _process_as_before() -> Iterator[None]:
    """The command silences the log of its process."""
    with logging_put_back():
        yield


def message(role: str, text: str, **members: Any) -> dict[str, Any]:
    """Return a message."""
    return {"role": role, "content": text, **members}


def small_talk(turns: int, start: int = 0) -> list[dict[str, Any]]:
    """Return questions with their answers, none of which has a value."""
    return [
        message(role, f"{text} {number} times round the {PLACES[number % 6]}, and it was a quiet and long afternoon.")
        for number in range(start, start + turns)
        for role, text in (("user", "We walked"), ("assistant", "So you were there"))
    ]


TICKET = [message("user", "The broken crane is ticket PAY-3428, please remember it."), message("assistant", "I will.")]
AGAIN = [message("user", "What about PAY-3428 now?"), message("assistant", "The crane of PAY-3428 still waits.")]
OTHER = [message("user", "The night shift has ticket OPS-7712."), message("assistant", "Noted.")]
UNNAMED = [message("user", "Which ticket did the night shift have?"), message("assistant", "It is OPS-7712.")]
TALK = [*TICKET, *OTHER, *small_talk(30), *AGAIN, *AGAIN, *UNNAMED]


def exported(messages: list[dict[str, Any]], name: str = "c") -> ExportedConversation:
    """Return messages as an export has them."""
    return ExportedConversation(name, "gpt-4o", [json.dumps(message).encode() for message in messages])


async def test_a_forwarded_request_is_taken_apart() -> None:
    """The newest message's own text is no part of what is searched, and each quotation counts as recalled."""
    quoting = f"{OPENING}\n<<<user\nthree\n>>>\n<<<assistant\nfour\n>>>\n{CLOSING}\nfive"
    call = {"id": "1", "type": "function", "function": {"name": "read", "arguments": '{"path": "a \\"b\\".py"}'}}
    messages = [
        message("system", render_text("User: one", 4).text),
        message("user", "two"),
        message("assistant", "", tool_calls=[call]),
        message("user", quoting),
    ]
    body = json.dumps({"model": "m", "messages": messages}).encode()
    parts = taken_apart((await ChatDialect().parse(body, anonymous=True)).messages)
    assert "User: one" in parts.summary
    assert [text.strip() for text in parts.messages] == ["two", 'a "b".py', "five"]
    assert ["three" in quote for quote in parts.recalled[:2]] == [True, False]
    assert "three" in parts.text
    assert "five" not in parts.text


def test_a_turn_ends_with_a_reply_to_a_user_or_a_tool() -> None:
    """A conversation may begin with a reply, and have several in a row."""
    roles = ("assistant", "user", "assistant", "assistant", "tool", "assistant", "user")
    assert turns_of([message(role, "x") for role in roles]) == [2, 5]


async def test_what_a_later_message_names_again_is_looked_for_in_its_own_request() -> None:
    """A value counts that no message before it still says; a reply's only if the question does not have it."""
    async with replaying(create_app, replay_settings(load(None, {}), ["gpt-4o"], WINDOW)) as replay:
        sums = await measure_production(replay, [exported(TALK), exported(TALK[:12], "short")])
    assert (list(sums.parts), sums.uncompacted, sums.failures) == (["c"], 1, {})
    assert sums.compactions > 1
    assert sums.tokens < WINDOW < sums.whole_tokens
    whole, *kinds = sums.figures()
    named = {figure.kind: (figure.asked, figure.answered) for figure in kinds}
    assert named["identifiers"] == (Share(1, 1), Share(1, 1))
    assert (whole.asked, whole.answered) == named["identifiers"]
    assert whole.last.facts == sum(figure.last.facts for figure in kinds)


async def test_without_recall_less_stands_in_the_request() -> None:
    """Of what had left the request by then, and is named again."""
    crates = [f"CR-{1000 + 37 * number}" for number in range(60)]
    told = [
        each
        for crate in crates
        for each in (message("user", f"Crate {crate} came by a boat this morning."), message("assistant", "Noted."))
    ]
    asked = [
        each
        for crate in crates[::6]
        for each in (message("user", f"And where is crate {crate}?"), message("assistant", "In the shed."))
    ]
    talk = exported([*told, *asked])
    shares = []
    for recall in ({"max_tokens": 0}, {"max_tokens": 200}):
        settings = replay_settings(load(None, {}), ["gpt-4o"], WINDOW, recall)
        async with replaying(create_app, settings) as replay:
            whole = (await measure_production(replay, [talk])).figures()[0]
        shares.append(whole.asked)
    without, with_recall = shares
    assert min(without.facts, with_recall.facts) >= len(asked) // 2 - 2, "what had not left yet is not counted"
    assert without.survivors / without.facts < with_recall.survivors / with_recall.facts


async def test_a_message_that_no_request_holds_is_a_failure() -> None:
    """The reason is the refusal's; other conversations are measured all the same."""
    large = [message("user", "harbour boats and nets " * 400), message("assistant", "Yes.")]
    async with replaying(create_app, replay_settings(load(None, {}), ["gpt-4o"], WINDOW)) as replay:
        sums = await measure_production(replay, [exported([*large, *TALK], "large"), exported(TALK)])
        with pytest.raises(ReplayRefused):
            await replay.send(b'{"model":"gpt-4o","messages":[]}', message("assistant", ""), "k")
    assert list(sums.parts) == ["c"]
    assert list(sums.failures) == ["large"]


def test_a_replay_compacts_as_configured_and_alone(tmp_path: Path) -> None:
    """It keeps the marks of a model and how it is counted, and takes no address, consumer or model."""
    path = tmp_path / "tidemark.yaml"
    path.write_text(
        "model_list:\n"
        "- model_name: own\n"
        "  litellm_params: {model: anthropic/claude-x, api_key: sk-real}\n"
        "  compaction: {target: 0.3, recall: {max_tokens: 77, tool: true}, strategy: llm, mode: shadow}\n"
        "store: {url: 'redis://elsewhere:6379'}\n"
        "compaction: {defaults: {threshold: 0.8, mode: shadow, recall: {tool: true}}}\n"
    )
    settings = replay_settings(load(path, {}), ["own", "other"], 4096)
    policy = settings.policy_for("own")
    assert (policy.strategy, policy.target, policy.threshold, policy.max_recall_tokens) == ("extractive", 0.3, 0.8, 77)
    assert [(settings.policy_for(name).mode, settings.policy_for(name).recall_tool) for name in ("own", "other")] == [
        ("active", False)
    ] * 2
    assert [entry.litellm_params for entry in settings.model_list] == [
        {"model": "openai/own"},
        {"model": "openai/other"},
    ]
    assert settings.model_list[0].counted_as == "anthropic/claude-x"
    assert str(settings.store.url) == "embedded"
    assert replay_settings(load(path, {}), ["own"], 4096, {"max_tokens": 0}).policy_for("own").max_recall_tokens == 0


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    """A client of a running Tidemark that has the talk."""
    folder = tmp_path_factory.mktemp("window")
    with EmbeddedValkey(folder / "valkey") as server, benched(server.url, folder) as bench:
        own = bench.client("sk-mine", window=200_000)
        bring(own, TALK)
        yield own


def run(client: Client, *arguments: str, env: Mapping[str, str] | None = None) -> Result:
    """Run the command with the client's key."""
    words = ["bench", "fidelity", "--url", str(client.http.base_url), "--stored", "5", *arguments]
    return CliRunner().invoke(cli, words, env={"OPENAI_API_KEY": client.key, **(env or {})})


def test_ones_own_conversations_go_through_a_window(client: Client) -> None:
    """Once without recall and once with it; the server's conversations stay as they are."""
    listed = client.http.get("/tidemark/conversations", headers=client.headers()).content
    done = run(client, "--window", str(WINDOW), "--json")
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert (printed["strategy"], printed["window"]) == ("extractive", WINDOW)
    assert [(each["recall"], each["conversations"]) for each in printed["figures"]] == [
        ("none", 1),
        ("as configured", 1),
    ]
    assert all(each["tokens"] < WINDOW < each["whole_tokens"] for each in printed["figures"])
    assert printed["figures"][1]["kinds"][0]["asked"] == {"facts": 1, "survivors": 1}
    assert done.stderr == "Measured 1 of 1 stored conversations, 0 not compacted, 0 left out; none was changed.\n"
    assert client.http.get("/tidemark/conversations", headers=client.headers()).content == listed


def test_the_page_shows_what_the_command_prints(client: Client) -> None:
    """The talks are those of the page's figures."""
    own = Client(client.http, "sk-coding")
    for talk in written_talks(["coding"]):
        bring(own, talk.messages)
    done = run(own, "--window", "4096")
    page = Path("docs/fidelity.md").read_text("utf-8")
    shown = [line for line in page.splitlines() if line.startswith(("recall  ", "as configured  "))]
    printed = [line.split() for line in done.stdout.splitlines()]
    assert len(shown) == 2
    assert all(line.split() in printed for line in shown), done.stdout


@pytest.mark.parametrize(
    ("options", "code", "told"),
    [
        (["--window", "64"], 2, "not in the range x>=1024"),
        (["--window", "8192", "--strategy", "llm"], 2, "--window asks no model"),
        (["--window", "8192", "--model", "gpt-4o"], 2, "--window asks no model"),
        (["--window", "8192", "--budgets", "25"], 2, "takes the place of --budgets"),
        (["--window", "100000"], 1, "use a smaller --window"),
    ],
)
def test_what_cannot_be_measured_in_a_window_is_refused_with_the_mend(
    client: Client, options: list[str], code: int, told: str
) -> None:
    """The message names the option to change."""
    done = run(client, *options)
    assert done.exit_code == code
    assert told in " ".join(done.output.split())


def test_a_window_that_holds_no_request_says_so(client: Client) -> None:
    """The warning has the first reason."""
    own = Client(client.http, "sk-large")
    bring(own, [message("user", "harbour boats and nets " * 400), message("assistant", "Yes."), *TALK])
    done = run(own, "--window", str(WINDOW))
    assert done.exit_code == 1
    assert "use a larger --window" in " ".join(done.output.split())
    assert "warning: left out: " in done.output


def test_conversations_that_are_too_small_and_too_large_have_each_a_mend(client: Client) -> None:
    """Neither a larger nor a smaller window alone would measure all."""
    own = Client(client.http, "sk-both")
    bring(own, [message("user", "harbour boats and nets " * 4000), message("assistant", "Yes."), *TALK])
    bring(own, small_talk(10))
    done = run(own, "--window", "8192")
    assert done.exit_code == 1
    told = " ".join(done.output.split())
    assert "1 not compacted, 1 left out: a larger --window has space for those left out, a smaller one" in told


def test_the_sums_are_of_the_conversations_that_are_asked_for() -> None:
    """So that two kinds of recall are compared by the same ones."""
    sums = ProductionMeasurement()
    for name, tokens in (("a", 10), ("b", 32)):
        sums.add(name, ProductionMeasurement(tokens=tokens, compactions=1))
    part = sums.of_conversations({"b", "c"})
    assert (list(part.parts), part.tokens, part.compactions, sums.tokens) == (["b"], 32, 1, 42)


def test_an_export_without_messages_says_what_to_export(client: Client) -> None:
    """Nothing is started for it."""
    done = run(Client(client.http, "sk-nobody"), "--window", str(WINDOW))
    assert done.exit_code == 1
    assert "None of 0 stored conversations" in done.output
