"""``compaction_trigger`` in ``/v1/responses``: Tidemark answers it where the upstream is not known to."""

from __future__ import annotations

import json
import socket
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.request.conftest import Bench, Client
from tests.support.keeping import StatelessUpstream, items, response
from tests.support.scripted import Answer, Received, refuses, says
from tidemark.core.conversation.summary import OPENING
from tidemark.store.embedded.server import EmbeddedValkey

TRIGGER = {"type": "compaction_trigger"}
FACT = "The harbour of Tarn opens at seven, and berth 4411 is never to be used."
OPENAIS_ITEM = {"type": "compaction", "id": "cmp_8", "encrypted_content": "sealed by OpenAI"}
STREAM_KINDS = [
    "response.created",
    "response.output_item.added",
    "response.output_item.done",
    "response.completed",
]


def user(text: str) -> dict[str, Any]:
    """A message of the user."""
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def assistant(text: str) -> dict[str, Any]:
    """An answer."""
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


TALK = [user("When does the harbour open?"), assistant(FACT), user("And the ferry?"), assistant("With the tide.")]


@pytest.fixture(autouse=True)
def stateless(bench: Bench) -> StatelessUpstream:
    """An upstream that keeps nothing and knows no trigger."""
    bench.upstream.script = made = StatelessUpstream()
    return made


def ask(client: Client, sent: Any, *, asked: dict[str, str] | None = None, **members: Any) -> httpx.Response:
    """Send a request of the Responses API."""
    body = {"model": "small", "max_output_tokens": 100, "input": sent, **members}
    return client.http.post("/v1/responses", json=body, headers=client.headers(**(asked or {})))


def compacted(client: Client, sent: Any = TALK, **members: Any) -> dict[str, Any]:
    """Ask for a compaction, and return the response."""
    answer = ask(client, [*sent, TRIGGER], **members)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    assert [item["type"] for item in told["output"]] == ["compaction"]
    return told


def events_of(answer: httpx.Response) -> list[dict[str, Any]]:
    """The events of a stream, without its comments."""
    return [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: ")]


def forwarded(bench: Bench) -> list[dict[str, Any]]:
    """The items that the upstream got last."""
    received: list[dict[str, Any]] = bench.upstream.last.json["input"]
    return received


def texts_of(sent: list[dict[str, Any]]) -> str:
    """All that stands in items."""
    return json.dumps(sent)


def test_a_stream_has_exactly_one_compaction_item_in_four_events_in_order(bench: Bench, client: Client) -> None:
    """Codex takes no other item, and no upstream is asked."""
    answer = ask(client, [*TALK, TRIGGER], stream=True, store=False)
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = events_of(answer)
    assert [event["type"] for event in events] == STREAM_KINDS
    assert [event["sequence_number"] for event in events] == [0, 1, 2, 3]
    item, whole = events[2]["item"], events[3]["response"]
    assert (item["type"], whole["output"], whole["status"]) == ("compaction", [item], "completed")
    assert events[1]["item"] == item
    assert events[0]["response"]["output"] == []
    assert len({whole["id"], events[0]["response"]["id"]}) == 1
    assert "Tarn" not in item["encrypted_content"]
    assert bench.upstream.received == []


def test_without_a_stream_the_whole_response_comes(client: Client) -> None:
    """With Tidemark's own count of the conversation and the summary, and the headers of a compaction."""
    answer = ask(client, [*TALK, TRIGGER])
    told, headers = answer.json(), answer.headers
    assert (told["object"], told["status"], told["model"], told["store"]) == ("response", "completed", "small", True)
    usage = told["usage"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
    assert headers["x-tidemark-action"] == "compacted"
    assert headers["x-tidemark-tokens-before"] == str(usage["input_tokens"])
    assert headers["x-tidemark-tokens-after"] == str(usage["output_tokens"])
    assert headers["x-tidemark-summarized-messages"] == "4"
    assert headers["x-tidemark-strategy"] == "extractive"


def test_the_tokens_of_such_an_answer_count_as_no_providers(client: Client) -> None:
    """Nothing was forwarded, and no provider has counted or billed any; what is stored says so, too."""

    def counted() -> dict[str, float]:
        lines = client.http.get("/metrics").text.splitlines()
        samples = [line.rpartition(" ") for line in lines if not line.startswith("#")]
        kinds = ("_prompt_", "_completion_", "_cached_", "_tokens_before", "_tokens_after")
        return {name: float(value) for name, _, value in samples if any(kind in name for kind in kinds)}

    ask(client, TALK)
    before = counted()
    assert sum(before.values())
    name = ask(client, [*TALK, TRIGGER]).headers["x-tidemark-conversation"]
    assert counted() == before
    shown = client.http.get(f"/tidemark/conversations/{name}/context", headers=client.headers()).json()
    assert (shown["summarized_messages"], shown["exact"]) == (0, True)


def test_the_item_is_understood_when_it_comes_back(bench: Bench, client: Client) -> None:
    """A client that drops what stood before it loses nothing; one that keeps the user's messages may do so."""
    item = compacted(client)["output"][0]
    for kept in ([], [message for message in TALK if message["role"] == "user"]):
        assert ask(client, [*kept, item, user("And now?")]).status_code == 200
        sent = forwarded(bench)
        assert OPENING in sent[len(kept)]["content"]
        assert "berth 4411" in sent[len(kept)]["content"]
        assert len(sent) == len(kept) + 2


@pytest.mark.parametrize("own", [False, True])
def test_another_worker_opens_it_and_so_does_one_that_was_restarted(bench: Bench, client: Client, *, own: bool) -> None:
    """The secret alone is shared."""
    item = compacted(client)["output"][0]
    other = bench.client(client.key, own=own)
    assert ask(other, [item, user("And now?")]).status_code == 200
    assert "berth 4411" in texts_of(forwarded(bench))


def test_an_emptied_store_does_not_matter(bench: Bench, client: Client, tmp_path: Path) -> None:
    """Everything is in the item."""
    item = compacted(client)["output"][0]
    with EmbeddedValkey(tmp_path / "second") as second:
        other = bench.client(client.key, store=second.url)
        assert ask(other, [item, user("And now?")]).status_code == 200
        assert "berth 4411" in texts_of(forwarded(bench))


def test_a_second_compaction_takes_the_first_one_in(bench: Bench, client: Client) -> None:
    """Also where the summary is the first thing that the client sends."""
    for kept in ([], [TALK[0]]):
        first = compacted(client)["output"][0]
        later = [*kept, first, user("Which flag flies there?"), assistant("The flag is the blue Kestrel of 1911.")]
        second = compacted(client, later)["output"][0]
        ask(client, [second, user("And now?")])
        assert "berth 4411" in texts_of(forwarded(bench))
        assert "Kestrel" in texts_of(forwarded(bench))
        assert len(forwarded(bench)) == 2


def test_what_stands_before_a_summary_is_in_it_already(bench: Bench, client: Client) -> None:
    """Codex puts its instructions there anew each time. The text of a summary is no message of the next one."""
    rule = {"type": "message", "role": "developer", "content": "A list of skills: imagegen, docs."}
    item = compacted(client)["output"][0]
    for turn in range(3):
        sent = [TALK[0], rule, TALK[2], item, user(f"And pier {turn}?"), assistant(f"Pier {turn}7 is free.")]
        item = compacted(client, sent)["output"][0]
    ask(client, [item, user("And now?")])
    text = forwarded(bench)[0]["content"]
    assert text.count(OPENING) == 1
    assert "imagegen" not in text
    assert all(fact in text for fact in ("berth 4411", "Pier 07", "Pier 17", "Pier 27"))


def test_where_nothing_was_said_since_the_summary_stays(bench: Bench, client: Client) -> None:
    """A client may ask twice."""
    item = compacted(client)["output"][0]
    ask(client, [item, user("And now?")])
    text = forwarded(bench)[0]["content"]
    again = compacted(client, [item])["output"][0]
    assert again["encrypted_content"] != item["encrypted_content"]
    ask(client, [again, user("And now?")])
    assert forwarded(bench)[0]["content"] == text


def test_an_upstream_of_another_dialect_gets_the_opened_summary(bench: Bench) -> None:
    """One that speaks chat completions only is asked in them."""
    config = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: 2000, max_output_tokens: 200, dialects: [chat]}}
compaction:
  defaults: {{strategy: extractive}}
"""
    bench.upstream.script = says("Fine.")
    client = bench.client("another dialect", config=config)
    item = compacted(client)["output"][0]
    assert ask(client, [TALK[0], item, user("And now?")]).status_code == 200
    assert bench.upstream.last.dialect == "chat"
    assert "berth 4411" in json.dumps(bench.upstream.last.json["messages"])


@pytest.mark.parametrize(
    ("sent", "words"),
    [
        ([*TALK, TRIGGER, TRIGGER], "it has 2 of them"),
        ([TRIGGER, *TALK, TRIGGER], "it has 2 of them"),
        ([*TALK, TRIGGER, user("And now?")], "1 more follow it"),
        ([TRIGGER], "nothing to compact"),
    ],
)
def test_a_trigger_that_is_doubled_or_not_last_or_alone_is_refused(
    bench: Bench, client: Client, sent: list[Any], words: str
) -> None:
    """The words say what to send."""
    for stream in (False, True):
        answer = ask(client, sent, stream=stream)
        assert answer.status_code == 400
        assert words in answer.json()["error"]["message"]
        assert answer.json()["error"]["param"] == "input"
    assert bench.upstream.received == []


def test_a_message_that_speaks_of_a_trigger_is_none(bench: Bench, client: Client) -> None:
    """Whatever its text is."""
    for text in ("compaction_trigger", json.dumps(TRIGGER)):
        assert ask(client, [{"role": "user", "content": text}]).json()["output"][0]["type"] == "message"
        assert forwarded(bench)[-1]["content"] == text


def test_what_only_a_provider_can_read_is_not_in_the_summary_and_a_warning_says_so(
    bench: Bench, client: Client
) -> None:
    """The conversation goes on with all else."""
    foreign = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed by a provider"}
    answer = ask(client, [TALK[0], foreign, *TALK, TRIGGER])
    assert answer.status_code == 200
    assert answer.headers["x-tidemark-warning"].startswith("not in the summary: input[1]")
    ask(client, [answer.json()["output"][0], user("And now?")])
    assert "berth 4411" in texts_of(forwarded(bench))
    assert "sealed by a provider" not in texts_of(forwarded(bench))
    alone = ask(client, [foreign, TRIGGER])
    assert (alone.status_code, alone.json()["error"]["code"]) == (400, "empty_array")


def test_another_tenants_item_is_refused_with_its_place(bench: Bench, client: Client) -> None:
    """As everywhere else."""
    item = compacted(client)["output"][0]
    stranger = Client(client.http, "a stranger")
    refused = ask(stranger, [item, user("Hi."), TRIGGER]).json()["error"]
    assert (refused["code"], refused["param"]) == ("invalid_encrypted_content", "input[0]")


def test_a_conversation_beyond_its_window_is_compacted_all_the_same(bench: Bench, client: Client) -> None:
    """A client asks because its conversation is long."""
    long = [user(f"{FACT} Point {place}: " + "ferry " * 900) for place in range(6)]
    told = compacted(client, long)
    assert told["usage"]["input_tokens"] > 2000
    assert told["usage"]["output_tokens"] < 1000
    assert bench.upstream.received == []


def test_a_compaction_of_an_earlier_response_by_its_id(bench: Bench, client: Client) -> None:
    """With all that led to it."""
    first = ask(client, "When does the harbour open?").json()["id"]
    told = compacted(client, [], previous_response_id=first)
    assert told["previous_response_id"] == first
    ask(client, [told["output"][0], user("And now?")])
    assert "Fine weather. (1)" in texts_of(forwarded(bench))


def test_a_conversation_goes_on_from_a_compaction_by_its_id(bench: Bench, client: Client) -> None:
    """The upstream gets the summary and what followed, once more and again; system messages stay."""
    rule = {"type": "message", "role": "developer", "content": "Answer in French."}
    earlier = compacted(client, [rule, *TALK])["id"]
    for turn in range(2):
        answer = ask(client, f"And now? ({turn})", previous_response_id=earlier)
        assert answer.status_code == 200, answer.text
        earlier = answer.json()["id"]
        sent = forwarded(bench)
        assert sent[0] == rule
        assert "berth 4411" in sent[1]["content"]
        assert [item.get("role") for item in sent[2:]] == ["user", *["assistant", "user"] * turn]
        assert not any(item.get("type", "").startswith("compaction") for item in sent)


def test_a_compaction_behind_a_compaction_by_its_id(bench: Bench, client: Client) -> None:
    """Nothing of the first one is lost."""
    earlier = ask(client, "And now?", previous_response_id=compacted(client)["id"]).json()["id"]
    again = compacted(client, [user("The blue Kestrel of 1911 is the flag.")], previous_response_id=earlier)["id"]
    ask(client, "And now?", previous_response_id=again)
    sent = forwarded(bench)
    assert len(sent) == 2
    assert "berth 4411" in sent[0]["content"]
    assert "Kestrel" in sent[0]["content"]


def test_the_response_is_shown_with_its_input_and_deleted(client: Client) -> None:
    """As any other, unless the client says ``store: false``."""
    told, headers = compacted(client), client.headers()
    path = f"/v1/responses/{told['id']}"
    assert client.http.get(path, headers=headers).json() == told
    listed = client.http.get(f"{path}/input_items?order=asc", headers=headers).json()["data"]
    assert [item["type"] for item in listed] == ["message"] * 4 + ["compaction_trigger"]
    assert client.http.delete(path, headers=headers).json()["deleted"]
    kept_by_client = compacted(client, store=False)
    assert client.http.get(f"/v1/responses/{kept_by_client['id']}", headers=headers).status_code == 404


def test_a_reference_to_the_item_is_opened(bench: Bench, client: Client) -> None:
    """Some SDKs send ids in place of items."""
    told = compacted(client)
    reference = {"type": "item_reference", "id": told["output"][0]["id"]}
    assert ask(client, [reference, user("And now?")]).status_code == 200
    assert "berth 4411" in texts_of(forwarded(bench))


def test_a_conversation_that_tidemark_keeps_goes_on_from_the_summary(bench: Bench, client: Client) -> None:
    """The Conversations API lists the item; the upstream gets what it says."""
    answer = bench.upstream.script
    bench.upstream.script = lambda sent: Answer([b"{}"], 404) if "conversations" in sent.path else answer(sent)
    made = client.http.post("/v1/conversations", json={"items": TALK}, headers=client.headers()).json()["id"]
    assert compacted(client, [], conversation=made)["conversation"] == {"id": made}
    assert ask(client, "And now?", conversation=made).status_code == 200
    sent = forwarded(bench)
    assert len(sent) == 2
    assert "berth 4411" in sent[0]["content"]
    listed = client.http.get(f"/v1/conversations/{made}/items?order=asc", headers=client.headers()).json()["data"]
    assert [item["type"] for item in listed[4:6]] == ["compaction_trigger", "compaction"]


def test_a_stored_history_needs_no_trigger(client: Client) -> None:
    """Tidemark compacts it itself, so the client is told."""
    answer = ask(client, [TRIGGER], asked={"conversation": "mine", "history": "stored"})
    assert answer.status_code == 400
    assert "X-Tidemark-Summarize" in answer.json()["error"]["message"]


def test_a_summary_that_cannot_be_made_is_an_error_that_may_pass(bench: Bench) -> None:
    """Nothing is made up in its place."""
    client = bench.client("failing", strategy="llm", more=", on_failure: block")
    bench.upstream.script = refuses(500, "not now")
    answer = ask(client, [*TALK, TRIGGER])
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "compaction_failed")
    assert answer.headers["x-tidemark-action"] == "failed"


def test_a_model_writes_the_summary_and_is_told_the_one_before(bench: Bench) -> None:
    """With the strategy of the conversation's model, over its own upstream; the client's request goes nowhere."""
    client = bench.client("by a model", strategy="llm")
    facts = "Berth 4411 is never used. The harbour of Tarn opens at seven. The ferry leaves with the tide."
    bench.upstream.script = says(facts)
    told = compacted(client, [*TALK, user("word " * 300)])
    item = told["output"][0]
    assert {request.dialect for request in bench.upstream.received} == {"chat"}
    bench.upstream.received.clear()
    compacted(client, [item, user("And the pier? " * 40), assistant("Pier 7 is free. " * 40)])
    assert facts in json.dumps(bench.upstream.received[0].json["messages"])
    ask(client, [item, user("And now?")])
    assert facts in forwarded(bench)[0]["content"]


@pytest.fixture
def openai(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Client:
    """A client of a Tidemark before OpenAI's own address, at which the scripted upstream is found."""
    resolve, numbers = socket.getaddrinfo, count(1)

    def near(host: Any, *rest: Any, **more: Any) -> Any:
        return resolve("127.0.0.1" if host == "api.openai.com" else host, *rest, **more)

    def script(received: Received) -> Answer:
        number = next(numbers)
        output = [OPENAIS_ITEM] if received.json["input"][-1] == TRIGGER else items(f"Fine. ({number})", number)
        earlier = received.json.get("previous_response_id")
        return Answer([json.dumps(response(number, output, previous_response_id=earlier)).encode()])

    monkeypatch.setattr(socket, "getaddrinfo", near)
    bench.upstream.script = script
    port = bench.upstream_url.rpartition(":")[2]
    config = f"""
model_list:
  - model_name: small
    litellm_params: {{{{model: openai/small, api_base: "http://api.openai.com:{port}/v1"}}}}
    model_info: {{{{max_input_tokens: 2000, max_output_tokens: 200}}}}
"""
    return bench.client("openai's own", config=config)


def test_openais_own_address_gets_the_request_untouched(bench: Bench, openai: Client) -> None:
    """It has an answer of its own, whose item goes back to it as it is; one trigger is checked all the same."""
    body = json.dumps({"model": "small", "input": [*TALK, TRIGGER]}).encode()
    answer = openai.http.post("/v1/responses", content=body, headers=openai.headers())
    assert answer.json()["output"] == [OPENAIS_ITEM]
    assert bench.upstream.last.body == body
    assert answer.headers["x-tidemark-warning"].startswith("left to the upstream:")
    assert ask(openai, [OPENAIS_ITEM, user("And now?")]).status_code == 200
    assert forwarded(bench)[0] == OPENAIS_ITEM
    assert ask(openai, [*TALK, TRIGGER, TRIGGER]).status_code == 400


def test_a_long_talk_goes_on_from_openais_own_compaction_by_its_id(bench: Bench, openai: Client) -> None:
    """What its item stands for counts no more, so nothing is compacted again and the client's own body goes out."""
    earlier = ask(openai, [user("ferry " * 900), assistant("Yes."), user("tide " * 600)]).json()["id"]
    earlier = ask(openai, [TRIGGER], previous_response_id=earlier).json()["id"]
    for _ in range(2):
        answer = ask(openai, "And now? " * 60, previous_response_id=earlier)
        assert answer.headers["x-tidemark-action"] == "none"
        assert int(answer.headers["x-tidemark-tokens-before"]) < 500
        assert bench.upstream.last.json["previous_response_id"] == earlier
        earlier = answer.json()["id"]
