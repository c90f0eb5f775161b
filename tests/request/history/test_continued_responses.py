"""``previous_response_id`` and ``item_reference``: Tidemark supplies what the upstream does not keep."""

from __future__ import annotations

import gzip
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.request.conftest import Bench, Client
from tests.support.keeping import TWO_UPSTREAMS, WORDS, StatefulUpstream, StatelessUpstream, items, response
from tests.support.scripted import Answer, Script, Turn, error, says, tells
from tidemark.core.conversation.summary import OPENING
from tidemark.pipeline.continuing import MAX_REFERENCES
from tidemark.store.embedded.server import EmbeddedValkey


@dataclass
class Asking:
    """A client of the Responses API."""

    client: Client

    def post(self, **members: Any) -> httpx.Response:
        """Send a request."""
        body = {"model": "small", "max_output_tokens": 100, **members}
        return self.client.http.post("/v1/responses", json=body, headers=self.client.headers())

    def say(self, text: str, earlier: str | None = None, **members: Any) -> dict[str, Any]:
        """Say something, going on from an earlier response, and return the response."""
        going_on = {"previous_response_id": earlier} if earlier else {}
        answer = self.post(input=text, **going_on, **members)
        assert answer.status_code == 200, answer.text
        body: dict[str, Any] = answer.json()
        return body


@pytest.fixture
def asking(client: Client) -> Asking:
    """A client of a Tidemark whose model has a window of 2,000 tokens."""
    return Asking(client)


@pytest.fixture
def stateless(bench: Bench) -> StatelessUpstream:
    """An upstream that keeps nothing."""
    bench.upstream.script = made = StatelessUpstream()
    return made


@pytest.fixture
def stateful(bench: Bench) -> StatefulUpstream:
    """An upstream that keeps everything."""
    bench.upstream.script = made = StatefulUpstream()
    return made


def answering(body: dict[str, Any]) -> Script:
    """An upstream that always gives the same answer."""
    return lambda _: Answer([json.dumps(body).encode()])


def user(text: str) -> dict[str, str]:
    """A message of the user."""
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    """An answer as a client would send it back."""
    return {"type": "message", "role": "assistant", "content": text}


@pytest.mark.usefixtures("stateless")
def test_a_stateless_upstream_gets_the_earlier_messages(bench: Bench, asking: Asking) -> None:
    """It is sent what a client that keeps the conversation would send."""
    first = asking.say("How is the weather?")
    asking.say("And the tide?", first["id"])
    assert "previous_response_id" not in bench.upstream.last.json
    assert bench.upstream.last.json["input"] == [
        user("How is the weather?"),
        assistant("Fine weather. (1)"),
        user("And the tide?"),
    ]


@pytest.mark.usefixtures("stateless")
def test_the_conversation_is_one_and_the_same(asking: Asking) -> None:
    """Continued by id, its id is the one that a client gets that sends all messages."""
    first = asking.post(input="How is the weather?")
    second = asking.post(input="And the tide?", previous_response_id=first.json()["id"])
    name = "x-tidemark-conversation"
    assert second.headers[name] == first.headers[name]


@pytest.mark.usefixtures("stateless")
def test_fourteen_turns_by_id_cross_the_high_water(bench: Bench, asking: Asking) -> None:
    """The summary is made and used as for any conversation."""
    earlier, actions = "", []
    for number in range(14):
        answer = asking.post(
            input=f"{number}: {WORDS * 10}", instructions="Be brief.", previous_response_id=earlier or None
        )
        assert answer.status_code == 200, answer.text
        actions.append(answer.headers["x-tidemark-action"])
        earlier = answer.json()["id"]
    assert {"compacted", "reused"} <= set(actions)
    forwarded = bench.upstream.last.json
    assert forwarded["instructions"] == "Be brief."
    assert forwarded["input"][0]["role"] == "system"
    assert forwarded["input"][0]["content"].startswith(OPENING)
    assert forwarded["input"][-1]["content"].startswith("13: ")


@pytest.mark.usefixtures("stateless")
def test_two_continuations_of_one_response_are_forks(bench: Bench, asking: Asking) -> None:
    """Each sees what led to the response, and nothing of the other."""
    first = asking.say("How is the weather?")
    left = asking.say("And the tide?", first["id"])
    right = asking.say("And the wind?", first["id"])
    asking.say("Left?", left["id"])
    assert [item["content"] for item in bench.upstream.last.json["input"]] == [
        "How is the weather?",
        "Fine weather. (1)",
        "And the tide?",
        "Fine weather. (2)",
        "Left?",
    ]
    asking.say("Right?", right["id"])
    assert [item["content"] for item in bench.upstream.last.json["input"]][2:] == [
        "And the wind?",
        "Fine weather. (3)",
        "Right?",
    ]


@pytest.mark.usefixtures("stateless")
def test_system_items_stay_where_the_client_put_them(bench: Bench, asking: Asking) -> None:
    """The provider would have them in the conversation, too."""
    rules = {"role": "developer", "content": "Speak as a sailor."}
    first = asking.post(input=[rules, user("How is the weather?")]).json()
    second = asking.post(
        input=[{"role": "system", "content": "Be brief."}, user("And the tide?")], previous_response_id=first["id"]
    ).json()
    asking.say("And the wind?", second["id"])
    assert [item["content"] for item in bench.upstream.last.json["input"]] == [
        "Speak as a sailor.",
        "How is the weather?",
        "Fine weather. (1)",
        "Be brief.",
        "And the tide?",
        "Fine weather. (2)",
        "And the wind?",
    ]


@pytest.mark.usefixtures("stateless")
def test_another_worker_goes_on_from_a_response(bench: Bench, asking: Asking) -> None:
    """No worker has to remember it."""
    first = asking.say("How is the weather?")
    other = Asking(bench.client(asking.client.key))
    other.say("And the tide?", first["id"])
    assert len(bench.upstream.last.json["input"]) == 3


@pytest.mark.usefixtures("stateless")
def test_the_id_of_another_tenant_is_unknown(bench: Bench, asking: Asking) -> None:
    """Promise 8: nothing tells it from an id that nobody ever had."""
    first = asking.say("How is the weather?")
    stranger = Asking(bench.client("somebody else"))
    answers = [stranger.post(input="And?", previous_response_id=name) for name in (first["id"], "resp_nobody")]
    for answer in answers:
        assert answer.status_code == 400
        problem = answer.json()["error"]
        assert (problem["code"], problem["param"]) == ("previous_response_not_found", "previous_response_id")
        assert "Send the whole conversation" in problem["message"]


def test_an_upstream_that_keeps_nothing_is_asked_once(
    bench: Bench, asking: Asking, stateless: StatelessUpstream
) -> None:
    """The next unknown id is refused without a call."""
    for _ in range(3):
        assert asking.post(input="And?", previous_response_id="resp_nobody").status_code == 400
    assert len(bench.upstream.received) == 1
    del stateless


@pytest.mark.usefixtures("stateless")
def test_what_must_not_be_stored_cannot_be_gone_on_from(asking: Asking) -> None:
    """``store: false`` holds for the response, and may itself go on from a stored one."""
    first = asking.say("How is the weather?")
    second = asking.say("And the tide?", first["id"], store=False)
    answer = asking.post(input="And the wind?", previous_response_id=second["id"])
    assert answer.json()["error"]["code"] == "previous_response_not_found"


@pytest.mark.usefixtures("stateless")
def test_a_deleted_conversation_takes_its_responses_along(asking: Asking) -> None:
    """Its ids are unknown."""
    first = asking.post(input="How is the weather?")
    conversation = first.headers["x-tidemark-conversation"]
    deleted = asking.client.http.delete(f"/tidemark/conversations/{conversation}", headers=asking.client.headers())
    assert deleted.status_code == 200
    answer = asking.post(input="And the tide?", previous_response_id=first.json()["id"])
    assert answer.json()["error"]["code"] == "previous_response_not_found"


@pytest.mark.usefixtures("stateful")
def test_a_stateful_upstream_gets_the_clients_own_body(bench: Bench, asking: Asking) -> None:
    """Once it was seen to keep responses: nothing is added, and the id travels."""
    asking.say("Hello?", "resp_before")
    first = asking.say("How is the weather?")
    asking.say("And the tide?", first["id"])
    assert bench.upstream.last.json["input"] == "And the tide?"
    assert bench.upstream.last.json["previous_response_id"] == first["id"]


@pytest.mark.usefixtures("stateful")
def test_what_only_the_upstream_has_is_left_to_it(bench: Bench, asking: Asking) -> None:
    """Tidemark has a part of that conversation, and never takes it for the whole."""
    first = asking.say("Hello?", "resp_before")
    second = asking.say("And the tide?", first["id"])
    asking.say("And the wind?", second["id"])
    assert bench.upstream.last.json["input"] == "And the wind?"
    assert bench.upstream.last.json["previous_response_id"] == second["id"]


def test_a_response_that_the_upstream_lost_is_gone_on_from_all_the_same(
    bench: Bench, asking: Asking, stateful: StatefulUpstream
) -> None:
    """It forgets after some days, or in a restart."""
    asking.say("Hello?", "resp_before")
    first = asking.say("How is the weather?")
    stateful.known.clear()
    asking.say("And the tide?", first["id"])
    assert "previous_response_id" not in bench.upstream.last.json
    assert len(bench.upstream.last.json["input"]) == 3


def test_an_overflow_at_a_stateful_upstream_is_mended(bench: Bench, asking: Asking) -> None:
    """Above the high water Tidemark supplies the history, compacted, in place of the id."""
    bench.upstream.script = StatefulUpstream()
    asking.say("Hello?", "resp_before")
    earlier, action = "", ""
    for number in range(14):
        answer = asking.post(input=f"{number}: {WORDS * 10}", previous_response_id=earlier or None)
        assert answer.status_code == 200, answer.text
        earlier, action = answer.json()["id"], answer.headers["x-tidemark-action"]
    assert action in ("compacted", "reused")
    assert "previous_response_id" not in bench.upstream.last.json
    assert bench.upstream.last.json["input"][0]["content"].startswith(OPENING)


@pytest.mark.usefixtures("stateless")
def test_references_to_items_are_resolved_and_counted(bench: Bench, asking: Asking) -> None:
    """As the AI SDK sends them: the answer by its id, the question as it was."""
    bench.upstream.script = lambda _: Answer([json.dumps(response(7, items("Fine.", 7, reasoning=True))).encode()])
    first = asking.post(input="How is the weather?")
    references = [{"type": "item_reference", "id": name} for name in ("rs_7", "msg_7")]
    second = asking.post(input=[user("How is the weather?"), *references, user("And the tide?")])
    assert second.headers["x-tidemark-conversation"] == first.headers["x-tidemark-conversation"]
    kinds = [item.get("type", "message") for item in bench.upstream.last.json["input"]]
    assert kinds == ["message", "reasoning", "message", "message"]


@pytest.mark.usefixtures("stateless")
def test_an_unknown_reference_is_named(asking: Asking) -> None:
    """With its place and the mend."""
    answer = asking.post(input=[user("Hi."), {"type": "item_reference", "id": "msg_nobody"}, user("And?")])
    assert answer.status_code == 404
    problem = answer.json()["error"]
    assert (problem["code"], problem["param"]) == ("item_not_found", "input[1]")
    assert "msg_nobody" in problem["message"]


@pytest.mark.usefixtures("stateless")
def test_very_many_references_are_refused(asking: Asking) -> None:
    """Each is read from the store. The same one again is not read again."""
    many = [{"type": "item_reference", "id": f"msg_{number}"} for number in range(MAX_REFERENCES + 1)]
    answer = asking.post(input=[*many, user("And?")])
    problem = answer.json()["error"]
    assert (answer.status_code, problem["code"]) == (400, "array_above_max_length")
    assert "previous_response_id" in problem["message"]
    for allowed in (many[1:], [many[0]] * len(many)):
        assert asking.post(input=[*allowed, user("And?")]).json()["error"]["code"] == "item_not_found"


@pytest.mark.usefixtures("stateful")
def test_references_travel_where_the_upstream_keeps_items(bench: Bench, asking: Asking) -> None:
    """The client's own body goes out."""
    asking.say("Hello?", "resp_before")
    asking.say("How is the weather?")
    sent = [user("How is the weather?"), {"type": "item_reference", "id": "msg_2"}, user("And the tide?")]
    asking.post(input=sent)
    assert bench.upstream.last.json["input"] == sent


@pytest.mark.usefixtures("stateless")
def test_input_tokens_counts_what_led_to_the_response(asking: Asking) -> None:
    """The request would be sent with it."""

    def count(**members: Any) -> int:
        body = {"model": "small", **members}
        answer = asking.client.http.post("/v1/responses/input_tokens", json=body, headers=asking.client.headers())
        tokens: int = answer.json()["input_tokens"]
        return tokens

    first = asking.say(WORDS)
    alone, together = count(input="And?"), count(input="And?", previous_response_id=first["id"])
    assert together > alone + 15


@pytest.mark.usefixtures("stateless")
def test_a_conversation_that_began_in_chat_completions_goes_on_by_id(bench: Bench, asking: Asking) -> None:
    """Its calls and results are stored as chat messages, and go out as items."""
    call = {"id": "c1", "type": "function", "function": {"name": "tide", "arguments": "{}"}}
    talk: list[dict[str, Any]] = [
        user("The tide?"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "High."},
    ]
    stateless = bench.upstream.script
    bench.upstream.script = says("It is high.")
    began = asking.client.chat(talk)
    bench.upstream.script = stateless
    result = {"type": "function_call_output", "call_id": "c1", "output": "High."}
    called = {"type": "function_call", "call_id": "c1", "name": "tide", "arguments": "{}"}
    second = asking.post(input=[user("The tide?"), called, result, assistant("It is high."), user("And the wind?")])
    assert second.headers["x-tidemark-conversation"] == began.headers["x-tidemark-conversation"]
    asking.say("And the sun?", second.json()["id"])
    forwarded = bench.upstream.last.json["input"]
    kinds = [item.get("type", "message") for item in forwarded]
    assert kinds == ["message", "function_call", "function_call_output", *["message"] * 4]
    assert forwarded[3]["content"] == "It is high."


@pytest.mark.usefixtures("stateless")
def test_a_response_whose_message_was_stored_before_has_its_own_ids(bench: Bench, asking: Asking) -> None:
    """The same answer to the same question is one message, and two responses."""
    bench.upstream.script = says("Fine.")
    asking.client.chat([user("How is the weather?")])
    for number in (1, 2):
        answered = response(number, items("Fine.", number))
        bench.upstream.script = answering(answered)
        asking.say("How is the weather?")
    for number in (1, 2):
        got = asking.client.http.get(f"/v1/responses/resp_{number}", headers=asking.client.headers())
        assert got.json()["output"][0]["id"] == f"msg_{number}"
        assert got.json()["output"][0]["content"][0]["text"] == "Fine."
        asking.post(
            input=[user("How is the weather?"), {"type": "item_reference", "id": f"msg_{number}"}, user("And?")]
        )
        assert bench.upstream.last.json["input"][1]["content"] == "Fine."


def test_a_streamed_response_is_gone_on_from_as_well(bench: Bench, asking: Asking) -> None:
    """It is stored before its last event is released."""
    bench.upstream.script = tells(Turn("Fine weather."))
    bench.upstream.others.kept = None
    streamed = asking.post(input="How is the weather?", stream=True)
    last = json.loads(streamed.text.strip().splitlines()[-1].removeprefix("data: "))
    assert last["type"] == "response.completed"
    asking.say("And the tide?", last["response"]["id"])
    assert [item["content"] for item in bench.upstream.last.json["input"]] == [
        "How is the weather?",
        "Fine weather.",
        "And the tide?",
    ]


def test_where_the_upstream_keeps_responses_the_store_may_be_away(
    bench: Bench, tmp_path_factory: pytest.TempPathFactory, stateful: StatefulUpstream
) -> None:
    """Elsewhere nobody knows the earlier messages, and the client may try again."""
    with EmbeddedValkey(tmp_path_factory.mktemp("gone")) as server:
        asking = Asking(bench.client("away", store=server.url))
        asking.say("Hello?", "resp_before")
        first = asking.say("How is the weather?")
    asking.say("And the tide?", first["id"])
    assert bench.upstream.last.json["previous_response_id"] == first["id"]
    stateful.known.clear()
    with EmbeddedValkey(tmp_path_factory.mktemp("gone as well")) as server:
        asking = Asking(bench.client("away as well", store=server.url))
        first = asking.say("How is the weather?")
    answer = asking.post(input="And the tide?", previous_response_id=first["id"])
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")


def test_an_overflow_that_nobody_could_foresee_is_mended(
    bench: Bench, asking: Asking, stateful: StatefulUpstream
) -> None:
    """The upstream's window is smaller than configured: the history goes out once more, compacted, without the id."""
    stateful.most_turns = 5
    asking.say("Hello?", "resp_before")
    earlier, action, warning = "", "", ""
    for number in range(6):
        answer = asking.post(input=f"{number}: {WORDS * 6}", previous_response_id=earlier or None)
        assert answer.status_code == 200, answer.text
        earlier, action = answer.json()["id"], answer.headers["x-tidemark-action"]
        warning = answer.headers.get("x-tidemark-warning", "")
    assert action == "compacted"
    assert "sent again" in warning or "refused" in warning
    refused, resent = bench.upstream.received[-2:]
    assert refused.json["previous_response_id"]
    assert "previous_response_id" not in resent.json
    assert resent.json["input"][0]["content"].startswith(OPENING)


@pytest.mark.usefixtures("stateful")
def test_an_id_that_is_not_stored_here_is_warned_of(asking: Asking) -> None:
    """Until the upstream was seen to keep responses."""
    warned = [
        asking.post(input="Hello?", previous_response_id="resp_before").headers.get("x-tidemark-warning")
        for _ in range(2)
    ]
    assert warned[0] is not None
    assert "not stored here" in warned[0]
    assert warned[1] is None


@pytest.mark.parametrize("name", ["abc", "support"])
def test_a_clients_malformed_id_says_nothing_of_the_upstream(bench: Bench, asking: Asking, name: str) -> None:
    """Else one client could take from all others what their upstream keeps."""
    refusal = f"Invalid 'previous_response_id': '{name}'. Expected an ID that begins with 'resp'."
    bench.upstream.script = lambda _: error(400, refusal)
    assert asking.post(input="Hello?", previous_response_id=name).status_code == 400
    bench.upstream.script = StatefulUpstream()
    assert asking.post(input="Hello?", previous_response_id="resp_before").status_code == 200


@pytest.mark.parametrize("name", ['x" is not supported', "é not supported", "unsupported"])
@pytest.mark.parametrize("key", ["the same", "another"])
def test_an_error_that_quotes_a_clients_id_says_nothing_of_the_upstream(
    bench: Bench, asking: Asking, name: str, key: str
) -> None:
    """An upstream that writes JSON quotes it escaped, so the words may look like its own."""
    bench.upstream.script = lambda request: error(
        400, f"Invalid 'previous_response_id': {json.dumps(request.json['previous_response_id'])}"
    )
    asker = asking if key == "the same" else Asking(Client(asking.client.http, "another key"))
    assert asker.post(input="Hello?", previous_response_id=name).status_code == 400
    bench.upstream.script = StatefulUpstream()
    assert asking.post(input="Hello?", previous_response_id="resp_before").status_code == 200


def test_an_upstream_that_refuses_one_credential_is_asked_for_another(bench: Bench, asking: Asking) -> None:
    """What is learned of an upstream is learned for who asked."""
    bench.upstream.script = lambda _: error(400, "previous_response_id is not supported.")
    other = Asking(Client(asking.client.http, "another key"))
    assert other.post(input="Hello?", previous_response_id="resp_before").status_code == 400
    bench.upstream.script = StatefulUpstream()
    assert other.post(input="Hello?", previous_response_id="resp_before").status_code == 400
    assert asking.post(input="Hello?", previous_response_id="resp_before").status_code == 200


@pytest.mark.usefixtures("stateless")
def test_a_model_of_another_upstream_does_not_get_the_earlier_messages(bench: Bench) -> None:
    """What was sent to one address is never sent to another one (promise 8)."""
    asking = Asking(bench.client("two upstreams", config=TWO_UPSTREAMS))
    first = asking.say("How is the weather?")
    answer = asking.post(model="other", input="And the tide?", previous_response_id=first["id"])
    assert answer.json()["error"]["code"] == "previous_response_not_found"
    asking.say("And the tide?", first["id"])
    assert len(bench.upstream.last.json["input"]) == 3


@pytest.mark.usefixtures("stateless")
def test_continuations_at_the_same_time_do_not_mix(bench: Bench, asking: Asking) -> None:
    """There is no lease: each of them is a fork, and all of them can be gone on from."""
    first = asking.say("How is the weather?")
    with ThreadPoolExecutor(6) as pool:
        made = list(pool.map(lambda n: asking.say(f"Question {n}", first["id"]), range(6)))
    for number, continued in enumerate(made):
        asking.say("And then?", continued["id"])
        sent = [item["content"] for item in bench.upstream.last.json["input"]]
        assert sent[2] == f"Question {number}"
        assert sent[3] == continued["output"][0]["content"][0]["text"]
        assert len(sent) == 5


@pytest.mark.usefixtures("stateless")
def test_a_named_conversation_goes_on_by_id_too(bench: Bench, asking: Asking) -> None:
    """The client's name and the id of the response mean the same conversation, with stored history or without."""
    headers = [{"conversation": "harbour"}, {"conversation": "harbour", "history": "stored"}]
    earlier, names = "", set()
    for asked in [*headers, *headers]:
        body = {"model": "small", "input": f"After {earlier}", "previous_response_id": earlier or None}
        answer = asking.client.http.post("/v1/responses", json=body, headers=asking.client.headers(**asked))
        assert answer.status_code == 200, answer.text
        earlier = answer.json()["id"]
        names.add(answer.headers["x-tidemark-conversation"])
    assert len(names) == 1
    assert len(bench.upstream.last.json["input"]) == 7


def test_an_upstream_of_chat_completions_only_is_gone_on_with_by_id(bench: Bench, asking: Asking) -> None:
    """Over a bridge: Tidemark has the conversation, and an id that nobody has is told apart."""
    bench.upstream.dialects = {"chat"}
    bench.upstream.script = tells(Turn("Fine weather."))
    unknown = asking.post(input="And?", previous_response_id="resp_nobody")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (400, "previous_response_not_found")
    first = asking.say("How is the weather?")
    second = asking.say("And the tide?", first["id"])
    assert second["id"] != first["id"]
    assert (first["previous_response_id"], second["previous_response_id"]) == (None, first["id"])
    assert [message["content"] for message in bench.upstream.last.messages] == [
        "How is the weather?",
        "Fine weather.",
        "And the tide?",
    ]
    shown = asking.client.http.get(f"/v1/responses/{second['id']}", headers=asking.client.headers())
    assert shown.json() == second
    again = asking.post(input="And?", previous_response_id="resp_nobody")
    assert again.json()["error"]["code"] == "previous_response_not_found"


def test_the_events_of_a_bridged_answer_name_the_earlier_response(bench: Bench, asking: Asking) -> None:
    """As the whole answer does; the upstream never saw the id."""
    bench.upstream.dialects = {"chat"}
    bench.upstream.script = tells(Turn("Fine weather."))
    first = asking.say("How is the weather?")
    streamed = asking.post(input="And the tide?", previous_response_id=first["id"], stream=True).text
    told = [json.loads(line[6:]) for line in streamed.splitlines() if line.startswith("data: {")]
    answers = [event["response"]["previous_response_id"] for event in told if "response" in event]
    assert answers == [first["id"]] * 3


def test_a_compressed_refusal_is_understood(bench: Bench, asking: Asking) -> None:
    """Some upstreams compress unasked."""
    refusal = error(400, "previous_response_id is not supported.")
    packed = gzip.compress(b"".join(piece for piece in refusal.pieces if isinstance(piece, bytes)))
    headers = [*refusal.headers, (b"content-encoding", b"gzip")]
    bench.upstream.script = lambda _: Answer([packed], 400, headers)
    answer = asking.post(input="And?", previous_response_id="resp_nobody")
    assert answer.json()["error"]["code"] == "previous_response_not_found"


@pytest.mark.usefixtures("stateful")
def test_an_earlier_response_and_a_conversation_exclude_each_other(bench: Bench, asking: Asking) -> None:
    """As at OpenAI: each says what came before. The message says to send one of them, and nothing goes upstream."""
    first = asking.say("How is the weather?")
    before = len(bench.upstream.received)
    refused = asking.post(input="And the tide?", previous_response_id=first["id"], conversation="conv_1")
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "mutually_exclusive_parameters"
    assert "Send one of them" in refused.json()["error"]["message"]
    assert len(bench.upstream.received) == before


@pytest.mark.usefixtures("stateless")
def test_a_response_of_a_providers_conversation_is_not_called_unknown(asking: Asking) -> None:
    """Its beginning is at an upstream that gives it to nobody; the error says so, and how to go on."""
    first = asking.say("How is the weather?", conversation="conv_1")
    asking.post(input="Hello?", previous_response_id="resp_elsewhere")  # teaches that this upstream keeps nothing
    refused = asking.post(input="And the tide?", previous_response_id=first["id"])
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "previous_response_not_found"
    assert "its conversation began at the upstream" in refused.json()["error"]["message"]
    assert "Send the whole conversation" in refused.json()["error"]["message"]
