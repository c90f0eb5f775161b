"""OpenAI's Conversations API through the official ``openai`` SDK, before an upstream that has no conversations."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import openai
import pytest
import redis
from openai import OpenAI

from tests.e2e.test_stored_responses_sdk import client_of
from tests.request.conftest import Bench, benched
from tests.support.keeping import TWO_UPSTREAMS, WORDS, StatelessUpstream, items, response
from tests.support.scripted import Answer, Call, Received, ScriptedUpstream, Turn, error, says, tells
from tidemark.core.conversation.kept import PREFIX

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("imported_litellm")]


@pytest.fixture(scope="module")
def bench(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all of these tests; each has a key of its own."""
    with benched(store_url, tmp_path_factory.mktemp("conversations")) as made:
        yield made


@pytest.fixture(scope="module")
def base_url(bench: Bench) -> str:
    """What an application sets ``OPENAI_BASE_URL`` to."""
    return bench.start() + "/v1"


def without_conversations(answer: Any) -> Any:
    """A script of an upstream that knows no path of conversations, as llama.cpp's server."""

    def script(received: Received) -> Answer:
        if "/conversations" in received.path:
            return Answer([b'{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}'], 404)
        given: Answer = answer(received)
        return given

    return script


@pytest.fixture
def upstream(bench: Bench) -> ScriptedUpstream:
    """An upstream that keeps nothing."""
    bench.upstream.received.clear()
    bench.upstream.dialects = {"chat", "responses", "messages"}
    bench.upstream.script = without_conversations(StatelessUpstream())
    bench.upstream.others.kept = None
    return bench.upstream


@pytest.fixture
def sdk(base_url: str, upstream: ScriptedUpstream, request: pytest.FixtureRequest) -> Iterator[OpenAI]:
    """A client with a credential of its own."""
    del upstream
    with client_of(base_url, request.node.nodeid) as made:
        yield made


def user(text: str) -> Any:
    """A message of the user."""
    return {"type": "message", "role": "user", "content": text}


def ask(sdk: OpenAI, text: Any, conversation: Any, **more: Any) -> Any:
    """Create a response in a conversation."""
    asked = {"model": "small", "max_output_tokens": 100, **more}
    return sdk.responses.create(input=text, conversation=conversation, **asked)


def texts(sdk: OpenAI, conversation: str) -> list[str]:
    """The texts of a conversation's messages, oldest first."""
    listed: Any = sdk.conversations.items.list(conversation, order="asc", limit=100)
    return [item.content[0].text for item in listed]


def forwarded(upstream: ScriptedUpstream) -> list[str]:
    """The texts of the newest request."""
    return [item["content"] for item in upstream.last.json["input"]]


def test_a_conversation_is_created_shown_changed_and_deleted(sdk: OpenAI) -> None:
    """As OpenAI's reference has it."""
    made = sdk.conversations.create(metadata={"ship": "Argo"}, items=[user("Hello.")])
    assert (made.object, made.metadata, made.id.startswith(PREFIX)) == ("conversation", {"ship": "Argo"}, True)
    assert sdk.conversations.retrieve(made.id).to_dict() == made.to_dict()
    changed = sdk.conversations.update(made.id, metadata={"ship": "Beagle"})
    assert (changed.metadata, changed.created_at) == ({"ship": "Beagle"}, made.created_at)
    assert sdk.conversations.retrieve(made.id).metadata == {"ship": "Beagle"}
    assert texts(sdk, made.id) == ["Hello."]
    assert sdk.conversations.delete(made.id).to_dict() == {
        "id": made.id,
        "object": "conversation.deleted",
        "deleted": True,
    }
    for call in (sdk.conversations.retrieve, sdk.conversations.delete, sdk.conversations.items.list):
        with pytest.raises(openai.NotFoundError) as refused:
            call(made.id)
        assert refused.value.code == "conversation_not_found"


def test_items_are_added_listed_in_pages_shown_and_deleted(sdk: OpenAI) -> None:
    """The newest first; each has an id and its parts, and a page says whether more follow."""
    made = sdk.conversations.create()
    added: Any = sdk.conversations.items.create(made.id, items=[user(f"{n}") for n in range(5)])
    assert [item.content[0].text for item in added.data] == ["0", "1", "2", "3", "4"]
    assert len({item.id for item in added.data}) == 5
    assert not added.has_more
    listed: Any = list(sdk.conversations.items.list(made.id, limit=2))
    assert [item.content[0].text for item in listed] == ["4", "3", "2", "1", "0"]
    page: Any = sdk.conversations.items.list(made.id, limit=2, order="asc", after=added.data[0].id)
    assert [item.content[0].text for item in page.data] == ["1", "2"]
    assert (page.has_more, page.last_id) == (True, added.data[2].id)
    one = sdk.conversations.items.retrieve(added.data[2].id, conversation_id=made.id)
    assert one.to_dict() == added.data[2].to_dict()
    assert sdk.conversations.items.delete(added.data[2].id, conversation_id=made.id).id == made.id
    assert texts(sdk, made.id) == ["0", "1", "3", "4"]
    for call in (sdk.conversations.items.retrieve, sdk.conversations.items.delete):
        with pytest.raises(openai.NotFoundError) as refused:
            call(added.data[2].id, conversation_id=made.id)
        assert refused.value.code == "item_not_found"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("as_object", [False, True])
def test_a_conversation_is_the_history_of_a_response(
    sdk: OpenAI, upstream: ScriptedUpstream, *, as_object: bool, stream: bool
) -> None:
    """In both forms: its items come before the input, and input and output are added once the answer is complete."""
    rule: Any = {**user("Be brief."), "role": "developer"}
    made = sdk.conversations.create(items=[rule])
    upstream.script = without_conversations(tells(Turn("Fine weather.")))
    name: Any = {"id": made.id} if as_object else made.id
    for question in ("How is the weather?", "And the tide?"):
        answer = ask(sdk, question, name, stream=stream)
        if stream:
            list(answer)
    assert "conversation" not in upstream.last.json
    assert forwarded(upstream) == ["Be brief.", "How is the weather?", "Fine weather.", "And the tide?"]
    assert texts(sdk, made.id) == [
        "Be brief.",
        "How is the weather?",
        "Fine weather.",
        "And the tide?",
        "Fine weather.",
    ]


def test_the_items_of_an_answer_keep_their_ids(sdk: OpenAI) -> None:
    """A client can delete what it got; deleted items are not sent again."""
    made = sdk.conversations.create()
    answer = ask(sdk, "How is the weather?", made.id)
    assert sdk.conversations.items.list(made.id).data[0].id == answer.output[0].id
    sdk.conversations.items.delete(answer.output[0].id, conversation_id=made.id)
    assert texts(sdk, made.id) == ["How is the weather?"]
    asked: Any = list(sdk.responses.input_items.list(answer.id))
    assert [item.content[0].text for item in asked] == ["How is the weather?"]


def test_calls_and_their_results_go_on_in_a_conversation(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """A call, what its client answers, and the reasoning between them."""
    made = sdk.conversations.create()
    upstream.script = without_conversations(tells(Turn(thought="Hm.", calls=(Call("tide", "{}"),))))
    call = ask(sdk, "The tide?", made.id).output[-1]
    upstream.script = without_conversations(says("High."))
    ask(sdk, [{"type": "function_call_output", "call_id": call.call_id, "output": "5 m"}], made.id)
    assert [item.get("type") or item["role"] for item in upstream.last.json["input"]] == [
        "user",
        "reasoning",
        "function_call",
        "function_call_output",
    ]
    listed: Any = sdk.conversations.items.list(made.id, order="asc").data
    assert [item.type for item in listed] == [
        "message",
        "reasoning",
        "function_call",
        "function_call_output",
        "message",
    ]


def test_the_items_of_a_conversation_count(sdk: OpenAI) -> None:
    """``/v1/responses/input_tokens``: the request would be sent with them."""
    made = sdk.conversations.create(items=[user(WORDS)])
    alone = sdk.responses.input_tokens.count(model="small", input="And?")
    together = sdk.responses.input_tokens.count(model="small", input="And?", conversation=made.id)
    assert together.input_tokens > alone.input_tokens + 15


def test_a_long_conversation_is_compacted(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """The summary is made and used as for any conversation; the stored items stay whole."""
    made = sdk.conversations.create()
    actions = []
    for number in range(14):
        raw = sdk.responses.with_raw_response.create(
            model="small", input=f"{number}: {WORDS * 10}", conversation=made.id, max_output_tokens=100
        )
        actions.append(raw.headers["x-tidemark-action"])
    assert {"compacted", "reused"} <= set(actions)
    assert upstream.last.json["input"][0]["role"] == "system"
    assert len(texts(sdk, made.id)) == 28


def test_an_answer_over_a_bridge_names_its_conversation(bench: Bench, upstream: ScriptedUpstream) -> None:
    """An upstream of chat completions gets messages, and the response says where it was added."""
    upstream.dialects = {"chat"}
    upstream.script = without_conversations(says("Fine weather."))
    with client_of(bench.start() + "/v1", "bridged") as sdk:  # its server remembers what the upstream does not speak
        made = sdk.conversations.create()
        ask(sdk, "How is the weather?", made.id)
        answer = ask(sdk, "And the tide?", made.id)
        assert answer.conversation.id == made.id
        assert len(texts(sdk, made.id)) == 4
    assert [message["content"] for message in upstream.last.messages] == [
        "How is the weather?",
        "Fine weather.",
        "And the tide?",
    ]


def test_what_is_refused_or_breaks_off_adds_nothing(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """Neither the input nor half of an answer."""
    made = sdk.conversations.create()
    upstream.script = without_conversations(lambda _: error(400, "no"))
    with pytest.raises(openai.BadRequestError):
        ask(sdk, "How is the weather?", made.id)
    upstream.script = without_conversations(lambda r: tells(Turn("Fine."))(r).cut(4))
    events = list(ask(sdk, "How is the weather?", made.id, stream=True))
    assert events[-1].type == "error"
    assert texts(sdk, made.id) == []


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_cannot_be_added_is_an_error(sdk: OpenAI, upstream: ScriptedUpstream, *, stream: bool) -> None:
    """Its client would go on without it and never know: here somebody deletes the conversation meanwhile."""
    made = sdk.conversations.create()

    def script(received: Received) -> Answer:
        sdk.conversations.delete(made.id)
        return tells(Turn("Fine weather."))(received)

    upstream.script = without_conversations(script)
    if stream:
        events = list(ask(sdk, "How is the weather?", made.id, stream=True))
        assert (events[-1].type, events[-1].code) == ("error", "turn_not_stored")
        assert "response.completed" not in [event.type for event in events]
    else:
        with pytest.raises(openai.InternalServerError) as refused:
            ask(sdk, "How is the weather?", made.id)
        assert refused.value.code == "turn_not_stored"


def test_an_earlier_response_and_a_conversation_exclude_each_other(sdk: OpenAI) -> None:
    """As at OpenAI; but each can be gone on from by itself."""
    made = sdk.conversations.create()
    first = ask(sdk, "How is the weather?", made.id)
    with pytest.raises(openai.BadRequestError) as refused:
        ask(sdk, "And?", made.id, previous_response_id=first.id)
    assert refused.value.code == "mutually_exclusive_parameters"
    ask(sdk, "And the tide?", None, previous_response_id=first.id)
    assert texts(sdk, made.id) == ["How is the weather?", "Fine weather. (1)"]


def test_the_conversation_of_somebody_else_does_not_exist(
    sdk: OpenAI, base_url: str, upstream: ScriptedUpstream
) -> None:
    """Promise 8: on every path the same 404 as for an id that nobody has, and no upstream hears of it."""
    made = sdk.conversations.create(items=[user("A secret.")])
    asked = len(upstream.received)
    with client_of(base_url, "a stranger") as stranger:
        for name in (made.id, PREFIX + "nobody"):
            for call in (
                stranger.conversations.retrieve,
                stranger.conversations.delete,
                stranger.conversations.items.list,
                lambda id_: stranger.conversations.items.create(id_, items=[user("Hi.")]),
                lambda id_: ask(stranger, "Hi.", id_),
            ):
                with pytest.raises(openai.NotFoundError) as refused:
                    call(name)
                assert refused.value.code == "conversation_not_found"
    assert len(upstream.received) == asked
    assert texts(sdk, made.id) == ["A secret."]


def test_items_go_to_no_other_upstream_than_the_one_that_answered(bench: Bench, upstream: ScriptedUpstream) -> None:
    """Promise 8, as for stored responses. With several upstreams nobody need be asked for a conversation."""
    with client_of(bench.start(config=TWO_UPSTREAMS) + "/v1", "several") as sdk:
        made = sdk.conversations.create()
        assert upstream.received == []
        ask(sdk, "How is the weather?", made.id)
        with pytest.raises(openai.NotFoundError) as refused:
            ask(sdk, "And the tide?", made.id, model="other")
        assert "another upstream" in str(refused.value)
        assert len(upstream.received) == 1


def test_an_upstream_that_has_conversations_is_asked(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """What it made is carried, as before; so is an id in a response's ``conversation``."""
    made = {"id": "conv_1", "object": "conversation", "created_at": 1, "metadata": {}}
    told = response(1, items("Fine.", 1), conversation={"id": "conv_1"})

    def script(received: Received) -> Answer:
        return Answer([json.dumps(made if "/conversations" in received.path else told).encode()])

    upstream.script = script
    assert sdk.conversations.create(metadata={"a": "b"}).id == "conv_1"
    assert upstream.last.json == {"metadata": {"a": "b"}}
    sdk.conversations.update("conv_1", metadata={"c": "d"})
    assert (upstream.last.path, upstream.last.json) == ("/v1/conversations/conv_1", {"metadata": {"c": "d"}})
    ask(sdk, "Hi.", "conv_1")
    assert upstream.last.json["conversation"] == "conv_1"


def test_two_answers_at_once_are_both_added_whole(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """Each after its own question."""
    made = sdk.conversations.create()
    upstream.script = without_conversations(lambda r: says("To " + r.json["input"][-1]["content"])(r))
    threads = [threading.Thread(target=ask, args=(sdk, f"{n}", made.id)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    told = texts(sdk, made.id)
    assert sorted(told[::2]) == ["0", "1", "2", "3"]
    assert told[1::2] == [f"To {question}" for question in told[::2]]


class Session:
    """What the Agents SDK's ``OpenAIConversationsSession`` asks for, call by call."""

    def __init__(self, sdk: OpenAI) -> None:
        self.sdk = sdk
        self.id = sdk.conversations.create(items=[]).id

    def add_items(self, added: list[Any]) -> None:
        """In chunks of 20."""
        for place in range(0, len(added), 20):
            self.sdk.conversations.items.create(conversation_id=self.id, items=added[place : place + 20])

    def get_items(self, limit: int | None = None) -> list[dict[str, Any]]:
        """All of them, or the newest ones; oldest first."""
        found: list[dict[str, Any]] = []
        order: Any = {"order": "asc"} if limit is None else {"order": "desc", "limit": limit}
        for item in self.sdk.conversations.items.list(conversation_id=self.id, **order):
            found.append(item.model_dump(exclude_unset=True))
            if limit is not None and len(found) >= limit:
                break
        return found if limit is None else found[::-1]

    def pop_item(self) -> dict[str, Any] | None:
        """The newest one."""
        newest = self.get_items(limit=1)
        if not newest:
            return None
        self.sdk.conversations.items.delete(conversation_id=self.id, item_id=newest[0]["id"])
        return newest[0]


def test_a_session_of_the_agents_sdk_works(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """It keeps an agent's items in a conversation, and sends all of them itself, with their ids."""
    session = Session(sdk)
    session.add_items([user(f"{n}") for n in range(45)])
    assert [item["content"][0]["text"] for item in session.get_items()] == [f"{n}" for n in range(45)]
    assert [item["content"][0]["text"] for item in session.get_items(limit=3)] == ["42", "43", "44"]
    popped = session.pop_item()
    assert popped is not None
    assert popped["content"][0]["text"] == "44"
    history: Any = session.get_items()
    answer = sdk.responses.create(model="small", input=[*history, user("And?")], max_output_tokens=100)
    assert len(upstream.last.json["input"]) == 45
    session.add_items([user("And?"), *[item.to_dict() for item in answer.output]])
    assert [item["role"] for item in session.get_items(limit=2)] == ["user", "assistant"]
    sdk.conversations.delete(session.id)
    with pytest.raises(openai.NotFoundError):
        session.get_items()


def test_a_conversation_expires_after_its_last_use(sdk: OpenAI, store_url: str) -> None:
    """As everything that is stored of a credential: ``store.ttl_days``, renewed by each use."""
    made = sdk.conversations.create()
    with redis.Redis.from_url(store_url) as server:
        [key] = [
            key for key in server.scan_iter("tm:cv:*") if server.expire(key, 1000, xx=True) and server.hlen(key) == 1
        ][:1]
        ask(sdk, "Hi.", made.id)
        lifetimes = [server.ttl(key) for key in server.scan_iter("tm:cv:*")]
    assert key
    assert max(lifetimes) > 86_400


def test_bad_parameters_are_named(sdk: OpenAI) -> None:
    """In OpenAI's envelope."""
    made = sdk.conversations.create()
    for query, param in (({"limit": 0}, "limit"), ({"order": "up"}, "order"), ({"after": "nobody"}, "after")):
        with pytest.raises(openai.BadRequestError) as refused:
            sdk.conversations.items.list(made.id, extra_query=query)
        assert refused.value.param == param
    for items_, code in (([user("a")] * 21, "array_above_max_length"), ("a", "invalid_type"), ([{"role": "a"}], None)):
        with pytest.raises(openai.BadRequestError) as refused:
            sdk.conversations.items.create(made.id, items=items_)  # type: ignore[arg-type]
        assert code is None or refused.value.code == code
    for metadata in ({"a": 1}, {"a": "b" * 513}, {str(n): "" for n in range(17)}, "a"):
        with pytest.raises(openai.BadRequestError) as refused:
            sdk.conversations.create(metadata=metadata)  # type: ignore[arg-type]
        assert refused.value.param == "metadata"
    with pytest.raises(openai.BadRequestError) as refused:
        ask(sdk, "Hi.", made.id, background=True)
    assert refused.value.param == "background"
