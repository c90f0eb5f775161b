"""Real LangGraph graphs and agents, with checkpointers in memory and in Redis."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypedDict

import pytest
from langchain.agents import AgentState, create_agent
from langchain.agents.middleware import before_model
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, AnyMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import tool
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph import START, MessagesState, StateGraph
from pydantic import BaseModel, Field

from tests.integrations.saver import ValkeySaver
from tests.integrations.scribe import Scribe, calls, ids, orphans, talk
from tidemark.integrations.langgraph import RunningSummary, SummarizationNode
from tidemark.store.embedded.server import EmbeddedValkey

LIMITS: dict[str, Any] = {"max_tokens": 6, "max_summary_tokens": 1, "token_counter": len}
THREAD: RunnableConfig = {"configurable": {"thread_id": "one"}}
EMPTY: Any = {}
Savers = Callable[[], "BaseCheckpointSaver[Any]"]


class State(MessagesState):
    """As LangMem's documentation has it."""

    context: dict[str, RunningSummary]


class WideState(State):
    """The same, with a place for what the model is to be sent."""

    summarized_messages: list[AnyMessage]


class PydanticState(BaseModel):
    """The same as pydantic has it."""

    messages: list[AnyMessage] = Field(default_factory=list)
    context: dict[str, RunningSummary] = Field(default_factory=dict)
    summarized_messages: list[AnyMessage] = Field(default_factory=list)


@pytest.fixture(scope="module")
def valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server for the checkpoints."""
    with EmbeddedValkey(tmp_path_factory.mktemp("checkpoints")) as server:
        yield server.url


@pytest.fixture(params=["memory", "redis"])
def savers(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Savers]:
    """Gives checkpointers over one set of checkpoints; each stands for a process that was started anew."""
    if request.param == "memory":
        one = InMemorySaver()
        yield lambda: one
        return
    url = request.getfixturevalue("valkey")
    made: list[ValkeySaver] = []

    def connect() -> BaseCheckpointSaver[Any]:
        made.append(ValkeySaver(url))
        return made[-1]

    yield connect
    made[0]._db.flushall()  # noqa: SLF001 - the tests' own
    for saver in made:
        saver.close()


def graph(node: SummarizationNode, saver: BaseCheckpointSaver[Any], state: Any = WideState) -> Any:
    """A graph of one summarizing node."""
    builder = StateGraph(state)
    builder.add_node("summarize", node)
    builder.add_edge(START, "summarize")
    return builder.compile(checkpointer=saver)


def test_a_thread_lives_on_its_summary(savers: Savers) -> None:
    """Turn by turn, each in a graph built anew: the history grows, what the model is sent does not."""
    model, state = Scribe(), EMPTY
    for turn in range(8):
        built = graph(SummarizationNode(model=model, **LIMITS), savers())
        state = built.invoke({"messages": talk(3 * turn + 3, 3 * turn)}, THREAD)
        assert len(state["messages"]) == 3 * turn + 3
        assert len(state["summarized_messages"]) <= 6
        assert state["summarized_messages"][-1] == state["messages"][-1]
    running = state["context"]["running_summary"]
    assert isinstance(running, RunningSummary), "the checkpoint gives it back as it was"
    assert running.summary == f"Notes, number {len(model.asked)}."
    assert len(model.asked) > 2
    assert set(model.read) == running.summarized_message_ids, "each message was read, and read once"
    assert len(model.read) == len(set(model.read))


def test_a_thread_whose_keys_are_equal_holds_only_what_is_sent(savers: Savers) -> None:
    """The state's messages are replaced, and one summary stands among them."""
    model, state = Scribe(), EMPTY
    for turn in range(8):
        node = SummarizationNode(model=model, output_messages_key="messages", **LIMITS)
        state = graph(node, savers(), State).invoke({"messages": talk(3 * turn + 3, 3 * turn)}, THREAD)
        assert len(state["messages"]) <= 6
        assert state["messages"][-1].id == f"m{3 * turn + 2}"
        assert sum(message.type == "system" for message in state["messages"]) == (1 if turn else 0)
    told = state["context"]["running_summary"].summarized_message_ids
    assert told | {one for one in ids(state["messages"]) if one and one.startswith("m")} == {f"m{n}" for n in range(24)}


async def test_an_asynchronous_graph_with_a_pydantic_state(savers: Savers) -> None:
    """The model's ``ainvoke`` is asked."""
    model = Scribe()
    built = graph(SummarizationNode(model=model, **LIMITS), savers(), PydanticState)
    state = await built.ainvoke({"messages": talk(9)}, THREAD)
    assert ids(state["summarized_messages"]) == [None, "m6", "m7", "m8"]
    state = await built.ainvoke({"messages": talk(12)}, THREAD)
    assert ids(state["summarized_messages"]) == [None, "m11"]
    assert len(model.asked) == 2


def test_a_node_that_failed_is_taken_up_again(savers: Savers) -> None:
    """The checkpoint before it holds; the next try summarizes the same."""

    class Failing:
        def invoke(self, _: Any) -> Any:
            message = "rate limit"
            raise ConnectionError(message)

    saver = savers()
    with pytest.raises(ConnectionError):
        graph(SummarizationNode(model=Failing(), **LIMITS), saver).invoke({"messages": talk(9)}, THREAD)  # type: ignore[arg-type]
    state = graph(SummarizationNode(model=Scribe(), **LIMITS), saver).invoke(None, THREAD)
    assert ids(state["summarized_messages"]) == [None, "m6", "m7", "m8"]


def test_a_checkpointer_that_blocks_unknown_classes_keeps_the_summary() -> None:
    """LangGraph's strict mode gives back the fields where it does not know a class: they are read as well."""
    saver = InMemorySaver(serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    model, state = Scribe(), EMPTY
    for turn in range(4):
        built = graph(SummarizationNode(model=model, **LIMITS), saver)
        state = built.invoke({"messages": talk(3 * turn + 3, 3 * turn)}, THREAD)
    assert isinstance(state["context"]["running_summary"], RunningSummary)
    assert len(model.read) == len(set(model.read)), "nothing was summarized twice"
    assert RunningSummary.__module__ == "tidemark.integrations.langgraph", "what may be allowed by name"


async def test_the_summarizers_words_are_streamed() -> None:
    """The graph's callbacks reach the model, so ``stream_mode="messages"`` shows it at work, as it does LangMem's."""
    built = graph(SummarizationNode(model=Scribe(), **LIMITS), InMemorySaver())
    given, other = {"messages": talk(9)}, {"configurable": {"thread_id": "two"}}
    streams = [
        list(built.stream(given, THREAD, stream_mode="messages")),
        [part async for part in built.astream(given, other, stream_mode="messages")],
    ]
    for number, stream in enumerate(streams, 1):
        words = "".join(str(said.content) for said, _ in stream if isinstance(said, AIMessageChunk))
        assert words == f"Notes, number {number}."
        assert {told["langgraph_node"] for _, told in stream} == {"summarize"}


class Agent(BaseChatModel):
    """A model that looks two things up in parallel, then answers; it refuses what a provider would refuse."""

    sent: list[list[BaseMessage]] = Field(default_factory=list)

    @property
    def _llm_type(self) -> str:
        return "agent of the tests"

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Runnable[Any, AIMessage]:
        """Tools are known."""
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        assert orphans(messages) == []
        self.sent.append(messages)
        number = len(self.sent)
        answered = isinstance(messages[-1], ToolMessage)
        said = AIMessage(f"Done {number}.") if answered else calls(f"t{number}", f"a{number}", f"b{number}")
        return ChatResult(generations=[ChatGeneration(message=said)])


@tool
def look() -> str:
    """Look something up."""
    return "found"


def test_an_agent_with_tools_goes_on_past_its_budget(savers: Savers) -> None:
    """``create_agent``, the successor of ``create_react_agent``: the node is its middleware, in one line."""
    model, scribe = Agent(), Scribe()
    node = SummarizationNode(model=scribe, output_messages_key="messages", **{**LIMITS, "max_tokens": 9})

    class Thread(AgentState[Any]):
        context: dict[str, RunningSummary]

    @before_model(state_schema=Thread)
    def summarize(state: Any, runtime: Any) -> dict[str, Any]:
        return node.invoke(state)

    for turn in range(6):
        agent = create_agent(model, [look], middleware=[summarize], checkpointer=savers())
        state = agent.invoke({"messages": [HumanMessage(f"Question {turn}?", id=f"q{turn}")]}, THREAD)
        assert state["messages"][-1].content.startswith("Done")
    assert len(scribe.asked) > 2
    assert max(len(sent) for sent in model.sent) <= 9
    assert [sent[-1].type for sent in model.sent] == ["human", "tool"] * 6, "the newest message is always sent"


def test_the_older_agent_takes_the_node_as_its_hook(savers: Savers) -> None:
    """``create_react_agent(pre_model_hook=node)``, as LangMem's documentation shows it; deprecated, and in use."""
    with deprecated():
        from langgraph.prebuilt import create_react_agent
        from langgraph.prebuilt.chat_agent_executor import AgentState as OldState
    model, scribe = Agent(), Scribe()

    class Thread(OldState):
        context: dict[str, RunningSummary]

    node = SummarizationNode(model=scribe, output_messages_key="llm_input_messages", **{**LIMITS, "max_tokens": 9})
    with deprecated():
        agent = create_react_agent(model, [look], pre_model_hook=node, state_schema=Thread, checkpointer=savers())
    state = EMPTY
    for turn in range(6):
        state = agent.invoke({"messages": [HumanMessage(f"Question {turn}?", id=f"q{turn}")]}, THREAD)
    assert len(state["messages"]) == 6 * 5
    assert len(scribe.asked) > 2
    assert max(len(sent) for sent in model.sent) <= 9


@contextmanager
def deprecated() -> Iterator[None]:
    """LangGraph says at every step that this agent has a successor."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def test_a_state_without_context_summarizes_anew_each_time() -> None:
    """LangGraph drops what the state has no place for: nothing is lost but the saving."""

    class Bare(TypedDict):
        messages: list[AnyMessage]
        summarized_messages: list[AnyMessage]

    model = Scribe()
    built = graph(SummarizationNode(model=model, **LIMITS), InMemorySaver(), Bare)
    for _ in range(2):
        state = built.invoke({"messages": talk(9)}, THREAD)
        assert ids(state["summarized_messages"]) == [None, "m6", "m7", "m8"]
    assert len(model.asked) == 2
