"""A graph and a client of the proxy see one running summary: real proxy, real store, scripted upstream."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, convert_to_messages, convert_to_openai_messages
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph

from tests.integrations.scribe import Scribe, ids
from tests.integrations.test_graphs import THREAD, WideState
from tests.request.compaction.test_masking import AGENTS, PROMPT, STEPS
from tests.request.conftest import SECRET, Bench, Client, benched
from tests.request.talk import Said, assistant, history, long, system, user
from tests.support.scripted import says
from tidemark.core.conversation.summary import OPENING
from tidemark.core.errors import ModelNotFound
from tidemark.integrations.langgraph import SummarizationNode, asummarize_messages, summarize_messages
from tidemark.integrations.shared import SharedSummaries
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.upstream.litellm import load as load_litellm

ROOM: dict[str, Any] = {"max_tokens": 300, "max_summary_tokens": 150}


@pytest.fixture(scope="module")
def store_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One server for the proxy and the graphs."""
    load_litellm().result(60)
    with EmbeddedValkey(tmp_path_factory.mktemp("shared")) as server:
        yield server.url


@pytest.fixture
def bench(store_url: str, tmp_path: Path) -> Iterator[Bench]:
    """A proxy before a scripted upstream."""
    with benched(store_url, tmp_path) as made:
        yield made


@pytest.fixture
def client(bench: Bench, request: pytest.FixtureRequest) -> Client:
    """Its client; the test's name is the key."""
    return bench.client(request.node.nodeid)


def shelf(folder: Path, store_url: str, key: str, **given: Any) -> SharedSummaries:
    """What a graph's author writes, with the proxy's own file and environment."""
    environ = {
        "TIDEMARK_DATA_DIR": str(folder),
        "TIDEMARK_SECRET": SECRET.decode(),
        "TIDEMARK_STORE_URL": store_url,
    }
    return SharedSummaries(model="small", api_key=key, config=folder / "tidemark.yaml", environ=environ, **given)


@pytest.fixture
def shared(tmp_path: Path, store_url: str, client: Client) -> Iterator[SharedSummaries]:
    """The client's summaries, as a graph sees them."""
    with shelf(tmp_path, store_url, client.key) as made:
        yield made


def messages(said: list[Said]) -> list[AnyMessage]:
    """The same conversation as a graph holds it."""
    converted: list[Any] = convert_to_messages(said)
    for number, message in enumerate(converted):
        message.id = f"m{number}"
    return converted


def compacted(client: Client, bench: Bench, said: list[Said]) -> str:
    """Talk through the proxy until it has summarized; returns its summary message."""
    for _ in range(40):
        said.append(user(long(len(said))))
        answer = long(len(said))
        bench.upstream.script = says(answer)
        got = client.chat(said)
        said.append(assistant(answer))
        if got.headers["x-tidemark-action"] == "compacted":
            found = next(one for one in bench.upstream.last.messages if str(one["content"]).startswith(OPENING))
            return str(found["content"])
    raise AssertionError


def test_a_graph_goes_on_with_the_summary_of_a_proxied_client(
    bench: Bench, client: Client, shared: SharedSummaries
) -> None:
    """The graph asks no model: it sends on what the proxy wrote, before the same messages."""
    said: list[Said] = [system("Be brief.")]
    summary = compacted(client, bench, said)
    model = Scribe(responses=["Notes."])
    given = messages([*said, user("And now?")])
    got = summarize_messages(given, running_summary=None, model=model, max_tokens=4000, store=shared)
    assert got.running_summary
    assert got.running_summary.summary in summary
    assert model.asked == []
    count = len(got.running_summary.summarized_message_ids)
    assert got.running_summary.last_summarized_message_id == f"m{count}"
    assert got.messages[-1] == given[-1]
    client.chat([*said, user("And now?")])
    forwarded = [one["content"] for one in bench.upstream.last.messages]
    assert [message.content for message in got.messages[2:]] == forwarded[2:], "the same messages stand after it"


async def test_a_proxied_client_goes_on_with_the_summary_of_a_graph(
    bench: Bench, client: Client, shared: SharedSummaries, store_url: str
) -> None:
    """The proxy forwards the graph's text as its own summary, and there is one for both."""
    said = [system("Be brief."), *history(12), user("What was first?")]
    model = Scribe(responses=["Ada asked twelve times."])
    got = await asummarize_messages(messages(said), running_summary=None, model=model, store=shared, **ROOM)
    assert got.running_summary
    reply = client.chat(said)
    assert reply.headers["x-tidemark-action"] == "reused"
    count = int(reply.headers["x-tidemark-summarized-messages"])
    assert count == len(got.running_summary.summarized_message_ids)
    sent = bench.upstream.last.messages
    assert "Ada asked twelve times." in sent[1]["content"]
    assert [one["content"] for one in sent[2:]] == [message.content for message in got.messages[2:]]
    store = RedisStore(store_url, Codec(), ttl_seconds=None)
    kept = await store.summaries(reply.headers["x-tidemark-conversation"])
    await store.close()
    assert [(one.text, one.covered) for one in kept] == [("Ada asked twelve times.", count)]


def test_a_graph_and_a_client_hand_one_summary_to_and_fro(
    bench: Bench, client: Client, shared: SharedSummaries
) -> None:
    """A real graph whose models are asked through the proxy: each side's summary takes in the other's."""

    class Proxied(BaseChatModel):
        @property
        def _llm_type(self) -> str:
            return "through the proxy"

        def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
            bench.upstream.script = says("The graph's notes.")
            reply = client.chat(convert_to_openai_messages(messages))
            said = AIMessage(reply.json()["choices"][0]["message"]["content"])
            return ChatResult(generations=[ChatGeneration(message=said)])

    said: list[Said] = [system("Be brief.")]
    first = compacted(client, bench, said)
    builder = StateGraph(WideState)
    node = SummarizationNode(model=Proxied(), store=shared, **ROOM)
    builder.add_node("summarize", node)
    builder.add_edge(START, "summarize")
    graph: Any = builder.compile(checkpointer=InMemorySaver())
    said += [*history(6), user("What next?")]
    state = graph.invoke({"messages": messages(said), "context": {}}, THREAD)
    running = state["context"]["running_summary"]
    assert running.summary == "The graph's notes."
    told = first.split("<<<\n")[1].split("\n>>>")[0]
    asked = [one.messages[-1]["content"] for one in bench.upstream.received]
    assert any(told in one for one in asked), "the graph's summary took in the proxy's"
    reply = client.chat(said)
    assert reply.headers["x-tidemark-action"] == "reused"
    assert "The graph's notes." in bench.upstream.last.messages[1]["content"]
    assert int(reply.headers["x-tidemark-summarized-messages"]) == len(running.summarized_message_ids)


def test_another_credential_sees_nothing(bench: Bench, client: Client, tmp_path: Path, store_url: str) -> None:
    """Promise 8: the same messages under another key are another tenant's."""
    said: list[Said] = [system("Be brief.")]
    compacted(client, bench, said)
    model = Scribe(responses=["Notes."])
    with shelf(tmp_path, store_url, f"{client.key} of somebody else") as other:
        given = messages([*said, user("And now?")])
        got = summarize_messages(given, running_summary=None, model=model, store=other, **ROOM)
    assert got.running_summary
    assert got.running_summary.summary == "Notes."


def test_a_conversation_that_the_client_names_is_named_for_the_graph(
    bench: Bench, client: Client, tmp_path: Path, store_url: str
) -> None:
    """``X-Tidemark-Conversation``: the same messages under another name are another conversation."""
    said = [system("Be brief."), *history(12), user("What was first?")]
    with shelf(tmp_path, store_url, client.key, conversation="mine") as named:
        model = Scribe(responses=["Ada asked twelve times."])
        summarize_messages(messages(said), running_summary=None, model=model, store=named, **ROOM)
    client.chat(said, conversation="mine")
    assert "Ada asked twelve times." in bench.upstream.last.messages[1]["content"]
    client.chat(said, conversation="another")
    assert "Ada asked twelve times." not in str(bench.upstream.last.messages)


def test_two_graphs_at_once_agree_on_the_first_summary(shared: SharedSummaries, client: Client) -> None:
    """Of two summaries of one prefix the first stays, as between two workers of the proxy."""
    said = messages([*history(12), user("What was first?")])
    one, two = Scribe(responses=["First."]), Scribe(responses=["Second."])

    class Slow:
        def invoke(self, prompt: Any) -> Any:
            summarize_messages(said, running_summary=None, model=one, store=shared, **ROOM)
            return two.invoke(prompt)

    got = summarize_messages(said, running_summary=None, model=Slow(), store=shared, **ROOM)  # type: ignore[arg-type]
    assert got.running_summary
    assert got.running_summary.summary == "First."


def test_a_store_that_is_gone_fails_no_graph(bench: Bench, client: Client, tmp_path: Path) -> None:
    """The graph summarizes by itself."""
    with shelf(tmp_path, f"unix://{tmp_path}/nobody.sock", client.key) as gone:
        said = messages([*history(12), user("What was first?")])
        got = summarize_messages(said, running_summary=None, model=Scribe(responses=["Notes."]), store=gone, **ROOM)
    assert got.running_summary
    assert got.running_summary.summary == "Notes."


def test_the_embedded_store_and_the_stored_secret_are_found_by_the_data_folder(bench: Bench, tmp_path: Path) -> None:
    """As ``tidemark serve`` without a configured store leaves them."""
    bench.start()
    data = tmp_path / "data"
    with EmbeddedValkey(data / "store"):
        environ = {"TIDEMARK_DATA_DIR": str(data), "TIDEMARK_CONFIG": str(tmp_path / "tidemark.yaml")}
        said = messages([*history(12), user("What was first?")])
        for expected in (True, False):
            model = Scribe(responses=["Notes."])
            with SharedSummaries(model="small", api_key="key", environ=environ) as shared:
                got = summarize_messages(said, running_summary=None, model=model, store=shared, **ROOM)
            assert bool(model.asked) == expected
            assert got.running_summary
            assert got.running_summary.summary == "Notes."
            assert ids(got.messages)[-1] == said[-1].id


def test_what_cannot_be_shared_is_refused_at_once(
    bench: Bench, client: Client, shared: SharedSummaries, tmp_path: Path
) -> None:
    """Equal keys remove the history that a summary is found by; a model that nobody serves has no place."""
    with pytest.raises(ValueError, match="whole history"):
        SummarizationNode(model=Scribe(), output_messages_key="messages", store=shared, **ROOM)
    with pytest.raises(ModelNotFound):
        SharedSummaries(
            model="unknown", config=tmp_path / "tidemark.yaml", environ={"TIDEMARK_DATA_DIR": str(tmp_path)}
        )


def test_a_graph_leaves_the_masks_of_a_proxied_client_alone(
    bench: Bench, request: pytest.FixtureRequest, tmp_path: Path, store_url: str
) -> None:
    """They are no summary: a graph that took them for one would lose all that was said."""
    client = bench.client(request.node.nodeid, more=", mask_results: true", window=16_000)
    bench.upstream.script = says("Fine.")
    said: list[Said] = [user(PROMPT)]
    for number in range(STEPS):
        said += AGENTS["chat"].step(number)
        if client.chat(said).headers["x-tidemark-action"] == "compacted":
            break
    bench.settle()
    assert client.chat(said).headers["x-tidemark-action"] == "reused"
    given, model = messages(said), Scribe(responses=["Notes."])
    with shelf(tmp_path, store_url, client.key) as shared:
        got = summarize_messages(given, running_summary=None, model=model, max_tokens=100_000, store=shared)
    assert got.running_summary is None
    assert got.messages == given
