"""``tool_results: lossless``: results go out without what carries nothing, always in the same bytes."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import httpx
import pytest

from tests.core.histories import message
from tests.providers.anthropic_messages import EnforcingAnthropic
from tests.request.conftest import Bench, Client
from tests.request.dialects.test_bound_thinking import CHECKING
from tests.request.talk import long
from tests.support.keeping import StatefulUpstream
from tests.support.scripted import Answer, Received, error, says, whole
from tidemark.core.recall.passage import handle_of

Json = dict[str, Any]
LOSSLESS = ", tool_results: lossless"
ROWS = [{"id": 10**22 + number, "name": f"thing {number}", "tags": ["a", "b: c"], "n": None} for number in range(9)]
TEXT = json.dumps(ROWS, indent=2)
BARE = json.dumps(ROWS, separators=(",", ":"))


def rows(number: int) -> list[Json]:
    """The rows of one call, unlike those of any other."""
    return [{**row, "page": number} for row in ROWS]


@dataclass(frozen=True)
class Dialect:
    """How a client of a dialect writes a call with its result."""

    name: str
    path: str
    member: str
    call: Callable[[str, str, Json], Json]
    result: Callable[[str, Any], Json]
    bound: str

    def ask(self, client: Client, said: list[Json], **asked: str) -> httpx.Response:
        """Send a request."""
        body = json.dumps({"model": "small", self.member: said, self.bound: 100})
        answer = client.http.post(self.path, content=body, headers=client.headers(**asked))
        assert answer.status_code == 200, answer.text
        return answer

    def step(self, number: int, content: Any, name: str = "list_things", **arguments: Any) -> list[Json]:
        """A call and its result."""
        return [self.call(f"c{number}", name, arguments), self.result(f"c{number}", content)]


def _function(call: str, name: str, arguments: Json) -> Json:
    return {"id": call, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}


CHAT = Dialect(
    "chat",
    "/v1/chat/completions",
    "messages",
    lambda call, name, given: {"role": "assistant", "content": None, "tool_calls": [_function(call, name, given)]},
    lambda call, content: {"role": "tool", "tool_call_id": call, "content": content},
    "max_tokens",
)
RESPONSES = Dialect(
    "responses",
    "/v1/responses",
    "input",
    lambda call, name, given: {
        "type": "function_call",
        "call_id": call,
        "name": name,
        "arguments": json.dumps(given),
    },
    lambda call, content: {"type": "function_call_output", "call_id": call, "output": content},
    "max_output_tokens",
)
MESSAGES = Dialect(
    "messages",
    "/v1/messages",
    "messages",
    lambda call, name, given: {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": call, "name": name, "input": given}],
    },
    lambda call, content: {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": call, "content": content}],
    },
    "max_tokens",
)
DIALECTS = pytest.mark.parametrize("dialect", [CHAT, RESPONSES, MESSAGES], ids=lambda dialect: str(dialect.name))


def asks(words: str) -> Json:
    """A user's message."""
    return {"role": "user", "content": words}


def lossless(bench: Bench, request: pytest.FixtureRequest, **settings: Any) -> Client:
    """A client of a Tidemark that forwards lossless forms."""
    more = LOSSLESS + settings.pop("more", "")
    return bench.client(request.node.nodeid, more=more, **settings)


def counted(client: Client, body: bytes) -> int:
    """Tokens of a body by the product's own count."""
    tokens: int = client.http.post("/tidemark/count", content=body).json()["input_tokens"]
    return tokens


@DIALECTS
def test_a_result_goes_out_without_its_blanks_at_its_first_sight(
    bench: Bench, request: pytest.FixtureRequest, dialect: Dialect
) -> None:
    """Also as the newest message, and all else stays as the client wrote it; the headers have both counts."""
    client = lossless(bench, request)
    body = [asks("List them."), *dialect.step(1, TEXT)]
    answer = dialect.ask(client, body)
    sent = bench.upstream.last.json
    assert sent[dialect.member] == [*body[:-1], dialect.result("c1", BARE)]
    headers = answer.headers
    assert headers["x-tidemark-action"] == "none"
    assert "x-tidemark-warning" not in headers
    if dialect is CHAT:
        before, after = int(headers["x-tidemark-tokens-before"]), int(headers["x-tidemark-tokens-after"])
        assert after == counted(client, bench.upstream.last.body)
        assert before == counted(client, json.dumps({"model": "small", "messages": body}).encode())
        assert after < before


@DIALECTS
def test_the_bytes_are_the_same_in_every_turn_worker_and_restart(
    bench: Bench, request: pytest.FixtureRequest, dialect: Dialect
) -> None:
    """Each request is the beginning of the next, from the first turn on."""
    talk = [asks("List them.")]
    workers = [lossless(bench, request), lossless(bench, request)]
    for number in range(4):
        talk += [*dialect.step(number, json.dumps(rows(number), indent=2)), asks(f"And {number}?")]
        for worker in workers:
            dialect.ask(worker, talk)
    received = [request.json[dialect.member] for request in bench.upstream.received]
    assert received[::2] == received[1::2]
    for earlier, later in zip(received[::2], received[2::2], strict=False):
        assert later[: len(earlier)] == earlier
    assert TEXT[:20] not in json.dumps(received, ensure_ascii=False)


@DIALECTS
def test_a_compaction_leaves_the_bytes_of_what_stays(
    bench: Bench, request: pytest.FixtureRequest, dialect: Dialect
) -> None:
    """Behind the summary they go out as before, until the next one."""
    client = lossless(bench, request)
    talk: list[Json] = [asks("List them.")]
    actions: list[str] = []
    before: list[Json] = []
    for number in range(12):
        talk += [*dialect.step(number, json.dumps(rows(number)[:4], indent=8)), asks(long(number, 60))]
        answer = dialect.ask(client, talk)
        bench.settle()
        actions.append(answer.headers["x-tidemark-action"])
        sent = json.dumps(bench.upstream.last.json)
        assert "\\n        " not in sent
        if actions[-1] == "reused":
            assert bench.upstream.last.json[dialect.member][: len(before)] == before
        before = bench.upstream.last.json[dialect.member]
    assert "compacted" in actions
    assert "failed" not in actions


def test_what_is_stored_and_read_is_the_clients_own(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Identity, the stored messages and what a handle reads know nothing of the forms."""
    client = lossless(bench, request)
    plain = bench.client(request.node.nodeid)
    bench.upstream.script = says("There are nine.")
    talk = [asks("List them."), *CHAT.step(1, TEXT)]
    first = CHAT.ask(client, talk).headers["x-tidemark-conversation"]
    bench.settle()
    talk += [{"role": "assistant", "content": "There are nine."}, asks("Which?")]
    assert CHAT.ask(plain, talk).headers["x-tidemark-conversation"] == first
    assert bench.upstream.last.messages[2]["content"] == TEXT
    bench.settle()
    path = f"/tidemark/conversations/{first}"
    handle = handle_of(message(**talk[2]))
    assert client.http.get(f"{path}/results/{handle}", headers=client.headers()).text == TEXT
    stored = client.http.get(path, headers=client.headers()).json()
    assert json.dumps(TEXT) in json.dumps(stored)


@pytest.mark.parametrize(
    ("name", "arguments", "content"),
    [
        ("read_file", {}, TEXT),
        ("fetch", {"path": "a.json"}, TEXT),
        ("bash", {"command": "cat a.json"}, TEXT),
        ("list_things", {}, "Error: no\n" + "waiting for it\n" * 99),
        ("list_things", {}, json.dumps(ROWS[:1], indent=2)),
        ("list_things", {}, BARE),
        ("list_things", {}, [{"type": "text", "text": TEXT}, {"type": "text", "text": "Page 1 of 1."}]),
        ("list_things", {}, "Half an emoji: \ud83d" + " \n" * 600),
    ],
    ids=["read", "path", "cat", "error", "short", "bare", "parts", "half"],
)
def test_results_that_must_stay_go_out_as_the_client_wrote_them(
    bench: Bench, request: pytest.FixtureRequest, name: str, arguments: Json, content: Any
) -> None:
    """The whole request keeps its bytes then."""
    client = lossless(bench, request)
    talk = [asks("Go on."), *CHAT.step(1, content, name, **arguments)]
    CHAT.ask(client, talk)
    assert json.loads(bench.upstream.last.body)["messages"] == json.loads(json.dumps(talk))
    CHAT.ask(bench.client("plain"), talk)
    assert bench.upstream.received[0].body == bench.upstream.received[1].body


def test_an_error_of_a_tool_and_media_stay_in_messages(bench: Bench, request: pytest.FixtureRequest) -> None:
    """``is_error`` is a member of the block; a result with an image is not touched."""
    client = lossless(bench, request, window=20_000)
    failed = MESSAGES.step(1, TEXT)
    failed[1]["content"][0]["is_error"] = True
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}}
    talk = [asks("Go on."), *failed, *MESSAGES.step(2, [{"type": "text", "text": TEXT}, image])]
    MESSAGES.ask(client, talk)
    assert bench.upstream.last.json["messages"] == talk


@DIALECTS
def test_members_of_any_depth_are_no_failure(bench: Bench, request: pytest.FixtureRequest, dialect: Dialect) -> None:
    """A client's own member may be nested as deep as the request without the option may be."""
    client = lossless(bench, request, window=20_000)
    for depth in (300, 600, 900):
        nested: Any = 1
        for _ in range(depth):
            nested = [nested]
        dialect.ask(client, [asks("List them."), {**dialect.step(1, TEXT)[0], "own": nested}, dialect.step(1, TEXT)[1]])
        call, result = dialect.step(1, TEXT)
        dialect.ask(client, [asks("List them."), call, {**result, "own": nested}])
        assert bench.upstream.last.json[dialect.member][0] == asks("List them.")


def test_a_cache_mark_moves_on_although_the_text_is_the_same(bench: Bench, request: pytest.FixtureRequest) -> None:
    """What is remembered of a result is for its very bytes: clients of Anthropic move their marks each turn."""
    client = lossless(bench, request)
    marked = MESSAGES.step(1, TEXT)
    marked[1]["content"][0]["cache_control"] = {"type": "ephemeral"}
    MESSAGES.ask(client, [asks("List them."), *marked])
    assert "cache_control" in bench.upstream.last.json["messages"][2]["content"][0]
    MESSAGES.ask(client, [asks("List them."), *MESSAGES.step(1, TEXT), asks("Go on.")])
    sent = json.dumps(bench.upstream.last.json["messages"][:3])
    assert "cache_control" not in sent
    assert "\\n  " not in sent


def test_streams_of_a_shell_stay_apart(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Rewriting both as one text would take the errors for output."""
    client = lossless(bench, request)
    call = {"type": "shell_call", "call_id": "s1", "action": {"commands": ["make"]}, "status": "completed"}
    chunk = {"stdout": "waiting for it\n" * 90, "stderr": "done", "outcome": {"type": "exit", "exit_code": 0}}
    talk = [asks("Go on."), call, {"type": "shell_call_output", "call_id": "s1", "output": [chunk]}]
    RESPONSES.ask(client, talk)
    assert bench.upstream.last.json["input"] == talk


@pytest.mark.parametrize("more", ["off", "shadow", "disabled", "shadow mode"])
def test_a_request_that_is_left_alone_is_forwarded_unchanged(
    bench: Bench, request: pytest.FixtureRequest, more: str
) -> None:
    """``off`` and ``shadow``, by a header or by the policy."""
    policy = {"disabled": ", enabled: false", "shadow mode": ", mode: shadow"}.get(more, "")
    client = lossless(bench, request, more=policy)
    talk = [asks("List them."), *CHAT.step(1, TEXT)]
    CHAT.ask(client, talk, **({} if policy else {"summarize": more}))
    assert bench.upstream.last.messages == talk


def test_a_request_that_is_left_to_its_upstream_goes_out_as_it_came(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """The provider shortens it by its own rules."""
    client = lossless(bench, request)
    talk = [asks("List them."), *RESPONSES.step(1, TEXT)]
    body = json.dumps({"model": "small", "input": talk, "truncation": "auto"})
    assert client.http.post("/v1/responses", content=body, headers=client.headers()).status_code == 200
    assert bench.upstream.last.json["input"] == talk


def test_an_upstream_that_has_the_earlier_messages_gets_the_new_ones_as_they_came(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """It has the earlier results as they came, too."""
    bench.upstream.script = StatefulUpstream()
    client = lossless(bench, request, window=20_000)
    earlier = "resp_before"
    for number in range(3):
        said = [*RESPONSES.step(number, json.dumps(rows(number), indent=2)), asks("Go on.")]
        body = json.dumps({"model": "small", "input": said, "previous_response_id": earlier})
        answer = client.http.post("/v1/responses", content=body, headers=client.headers())
        assert answer.status_code == 200, answer.text
        earlier = answer.json()["id"]
    first = client.http.post("/v1/responses", json={"model": "small", "input": "Hi."}, headers=client.headers()).json()
    said = [*RESPONSES.step(9, TEXT), asks("Go on.")]
    body = json.dumps({"model": "small", "input": said, "previous_response_id": first["id"]})
    assert client.http.post("/v1/responses", content=body, headers=client.headers()).status_code == 200
    assert bench.upstream.last.json["input"] == said
    assert bench.upstream.last.json["previous_response_id"] == first["id"]


def test_the_same_result_of_another_call_is_judged_by_that_call(bench: Bench, request: pytest.FixtureRequest) -> None:
    """A file that is read keeps its bytes, although a service returned the same ones under the same id."""
    client = lossless(bench, request)
    for name, sent in (("list_things", BARE), ("read_file", TEXT), ("list_things", BARE)):
        CHAT.ask(client, [asks("Go on."), *CHAT.step(1, TEXT, name)])
        assert bench.upstream.last.messages[2]["content"] == sent


def test_a_request_that_is_sent_again_smaller_is_still_reported_as_it_came(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """The forms are made once, and the sizes are those of the client's own request and of what went out."""

    def tight(asked: Received) -> Answer:
        size = len(asked.body) // 4
        wording = (
            f"This model's maximum context length is 1500 tokens. However, your messages resulted in {size} tokens."
        )
        return error(400, wording, code="context_length_exceeded") if size > 1500 else whole("Fits.")

    bench.upstream.script = tight
    client = lossless(bench, request, window=9_000)
    talk = [asks("List them.")]
    for number in range(8):
        talk += [*CHAT.step(number, json.dumps(rows(number), indent=2)), asks(long(number, 30))]
    answer = CHAT.ask(client, talk)
    assert len(bench.upstream.received) > 1
    assert answer.headers["x-tidemark-action"] == "compacted"
    assert int(answer.headers["x-tidemark-tokens-after"]) == counted(client, bench.upstream.last.body)
    before = counted(client, json.dumps({"model": "small", "messages": talk}).encode())
    assert int(answer.headers["x-tidemark-tokens-before"]) == before
    assert "\\n  " not in json.dumps(bench.upstream.last.messages)


def test_a_failed_summary_lets_the_forms_pass_without_a_clip(bench: Bench, request: pytest.FixtureRequest) -> None:
    """``on_failure: passthrough``: the upstream judges what is too long, and the bytes are those of other turns."""

    def script(asked: Received) -> Answer:
        return error(500, "no") if str(asked.messages[0]["content"]).startswith("You summarize") else whole("Fine.")

    bench.upstream.script = script
    client = lossless(bench, request, strategy="llm", more=", on_failure: passthrough")
    said = [asks(long(number, 90)) for number in range(16)]
    large = [{**row, "text": long(number, 2_000)} for number, row in enumerate(ROWS)]
    call = CHAT.call("c1", "list_things", {})
    call["tool_calls"].append(_function("c2", "list_things", {}))
    done = CHAT.result("c2", "done")
    answer = CHAT.ask(client, [*said, call, CHAT.result("c1", json.dumps(large, indent=20)), done])
    assert answer.headers["x-tidemark-action"] == "failed"
    assert "clipped" not in answer.headers["x-tidemark-warning"]
    bare = json.dumps(large, separators=(",", ":"))
    assert bench.upstream.last.messages == [*said, call, CHAT.result("c1", bare), done]
    assert int(answer.headers["x-tidemark-tokens-after"]) == counted(client, bench.upstream.last.body)


def test_a_result_that_is_still_too_large_is_clipped(bench: Bench, request: pytest.FixtureRequest) -> None:
    """The clip is one of the form, and what is stored and summarized is the client's own."""
    client = lossless(bench, request)
    content = json.dumps([{**row, "id": number} for number in range(40) for row in ROWS], indent=4)
    talk = [asks("Go on."), {**CHAT.call("c1", "list_things", {})}]
    talk[1]["tool_calls"].append(_function("c2", "list_things", {}))
    talk += [CHAT.result("c1", content), CHAT.result("c2", "done")]
    answer = CHAT.ask(client, talk)
    sent = bench.upstream.last.messages[2]["content"]
    assert "tokens clipped by Tidemark" in sent
    assert sent.startswith('[{"id":0,"name"')
    assert "clipped 1 tool result" in answer.headers["x-tidemark-warning"]
    assert int(answer.headers["x-tidemark-tokens-after"]) == counted(client, bench.upstream.last.body)
    whole = counted(client, json.dumps({"model": "small", "messages": talk}).encode())
    assert int(answer.headers["x-tidemark-tokens-before"]) == whole
    CHAT.ask(client, talk)
    assert len({request.body for request in bench.upstream.received}) == 1


def test_thinking_goes_on_and_leaves_once_if_it_is_turned_on_within_a_conversation(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """The provider refuses nothing: thinking behind the old bytes leaves, and all that is made later stays."""
    bench.upstream.script = api = EnforcingAnthropic()
    plain = bench.client(request.node.nodeid, config=CHECKING, window=20_000)
    client = lossless(bench, request, config=CHECKING, window=20_000)
    talk: list[Json] = []

    def ask(asker: Client, number: int) -> None:
        talk.append(asks(f"Question {number}"))
        body = {"model": "small", "max_tokens": 100, "messages": talk, "thinking": {"type": "adaptive"}}
        answer = asker.http.post("/v1/messages", json=body, headers=asker.headers())
        assert answer.status_code == 200, answer.text
        talk.append({"role": "assistant", "content": answer.json()["content"]})
        talk.extend([asks("Look."), *MESSAGES.step(number, json.dumps(rows(number), indent=2))])
        bench.settle()

    for number in range(3):
        ask(plain, number)
    for number in range(3, 8):
        ask(client, number)
    assert api.refusals == []
    kept = [json.dumps(request.json).count('"type": "thinking"') for request in bench.upstream.received]
    assert kept[:3] == [0, 1, 2]
    assert kept[3] < 3
    assert [later - earlier for earlier, later in pairwise(kept[3:])] == [1] * 4


def test_the_metrics_count_the_tokens_that_were_saved(bench: Bench, request: pytest.FixtureRequest) -> None:
    """As of any request that got smaller."""
    client = lossless(bench, request)
    headers = CHAT.ask(client, [asks("List them."), *CHAT.step(1, TEXT)]).headers
    saved = int(headers["x-tidemark-tokens-before"]) - int(headers["x-tidemark-tokens-after"])
    bench.settle()
    assert saved > 100
    assert f'tidemark_tokens_saved_total{{model="small"}} {saved}.0' in client.http.get("/metrics").text
