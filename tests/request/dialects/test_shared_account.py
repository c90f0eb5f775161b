"""Promise 8 with a configured key: the provider sees one account, and Tidemark keeps its tenants apart."""

from __future__ import annotations

import gzip
import json
import os
from itertools import count
from typing import Any

import httpx
import pytest

from tests.request.conftest import Bench, Client
from tests.support import keeping
from tests.support.keeping import StatefulUpstream
from tests.support.scripted import Answer, Received
from tidemark.store.embedded.server import EmbeddedValkey

SHARED = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}", api_key: configured}}
    model_info: {{max_input_tokens: 2000, max_output_tokens: 200}}
compaction: {{defaults: {{strategy: extractive}}}}
{more}
"""
OWN_KEYS = SHARED.replace(", api_key: configured", "")
CLOSED = "auth: {shared_account: false}"
DOCUMENT = '{"type": "document", "source": {"type": "file", "file_id": "%s"}}'
ALICE, BOB = "alice", "bob"


class Provider(StatefulUpstream):
    """Keeps responses, and makes an object for each request that asks for one."""

    def __init__(self) -> None:
        """Begin with numbers that no other test of this store has."""
        super().__init__(numbers=NUMBERS)

    def __call__(self, received: Received) -> Answer:
        """Answer one request."""
        if received.dialect:
            return super().__call__(received)
        path, number = received.path.partition("/v1/")[2], next(self.numbers)
        made: dict[str, Any] = {"id": f"obj-{number}", "object": path}
        if path == "threads/runs":
            made["thread_id"] = f"thread_{number}"
        if path.endswith("/cancel"):
            made = {"id": path.split("/")[1], "object": "batch", "output_file_id": f"file-{number}"}
        if path.endswith("/complete"):
            made = {"id": path.split("/")[1], "object": "upload", "file": {"id": f"file-{number}"}}
        return Answer([json.dumps(made).encode()])


NUMBERS = count(1)


@pytest.fixture(autouse=True)
def provider(bench: Bench) -> Provider:
    """The upstream of every test here."""
    bench.upstream.script = made = Provider()
    return made


@pytest.fixture
def shared(bench: Bench, request: pytest.FixtureRequest) -> tuple[Client, Client]:
    """Two tenants of one Tidemark that has the provider's key."""
    return tenants(bench, request.node.nodeid)


def tenants(bench: Bench, name: str, config: str = SHARED, more: str = "", **settings: Any) -> tuple[Client, Client]:
    """Two clients with credentials of their own."""
    first = bench.client(f"{ALICE} {name}", config=config, more=more, **settings)
    return first, Client(first.http, f"{BOB} {name}")


def ask(client: Client, method: str, path: str, **arguments: Any) -> httpx.Response:
    """Send a request of a tenant."""
    return client.http.request(method, path, headers={"authorization": f"Bearer {client.key}"}, **arguments)


def respond(client: Client, text: Any = "How is the weather?", **members: Any) -> httpx.Response:
    """Make a response."""
    return ask(client, "POST", "/v1/responses", json={"model": "small", "input": text, **members})


def make(client: Client, path: str = "/v1/files", **body: Any) -> str:
    """Make an object, and return its id."""
    answer = ask(client, "POST", path, json=body)
    assert answer.status_code == 200, answer.text
    name: str = answer.json()["id"]
    return name


def refused(bench: Bench, answer: httpx.Response) -> bool:
    """Whether a request was answered with 404 in OpenAI's envelope, and the upstream not asked."""
    asked = len(bench.upstream.received)
    error = answer.json()["error"]
    assert {"message", "type", "code", "param"} <= set(error)
    return answer.status_code == 404 and asked == len(bench.upstream.received)


def test_a_response_of_another_tenant_is_404_in_every_call(bench: Bench, shared: tuple[Client, Client]) -> None:
    """Its id must be known to ask, and knowing it does not help."""
    alice, bob = shared
    name = respond(alice).json()["id"]
    bench.settle()
    asked = len(bench.upstream.received)
    calls = [("GET", ""), ("GET", "/input_items"), ("POST", "/cancel"), ("DELETE", ""), ("GET", "/"), ("POST", "/x")]
    for method, rest in calls:
        assert refused(bench, ask(bob, method, f"/v1/responses/{name}{rest}")), (method, rest)
    assert refused(bench, respond(bob, "And?", previous_response_id=name))
    assert respond(bob, "And?", previous_response_id=name).json()["error"]["code"] == "previous_response_not_found"
    assert len(bench.upstream.received) == asked, "nothing of it reached the provider"
    assert ask(alice, "GET", f"/v1/responses/{name}").status_code == 200
    assert respond(alice, "And?", previous_response_id=name).status_code == 200


def test_a_response_of_another_tenant_is_not_counted(
    bench: Bench, shared: tuple[Client, Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A provider that counts itself would count its text for whoever names it."""
    monkeypatch.setattr("tidemark.app.application.COUNTING_BASES", {f"{bench.upstream_url}/v1"})
    alice, bob = shared
    name = respond(alice).json()["id"]
    bench.settle()
    asked = len(bench.upstream.received)
    body = {"model": "small", "input": "And?", "previous_response_id": name}
    answer = ask(bob, "POST", "/v1/responses/input_tokens", json=body)
    assert (answer.status_code, len(bench.upstream.received)) == (404, asked)
    assert ask(alice, "POST", "/v1/responses/input_tokens", json=body).status_code == 200
    assert bench.upstream.last.path == "/v1/responses/input_tokens"


@pytest.mark.parametrize(
    "reference",
    ['{"type": "item_reference", "id": "%s"}', '{"type": "item\\u005freference", "id": "%s"}', '{"id": "%s"}'],
)
def test_an_item_of_another_tenant_is_404(bench: Bench, shared: tuple[Client, Client], reference: str) -> None:
    """However the reference is written."""
    alice, bob = shared
    item = respond(alice).json()["output"][0]["id"]
    bench.settle()
    body = '{"model": "small", "input": [%s, {"role": "user", "content": "And?"}]}' % (reference % item)
    headers = {"authorization": f"Bearer {bob.key}", "content-type": "application/json"}
    answer = bob.http.post("/v1/responses", content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "item_not_found")
    assert item not in str([received.body for received in bench.upstream.received])


def test_a_conversation_of_another_tenant_is_404(shared: tuple[Client, Client]) -> None:
    """One that the provider keeps, and that was made through Tidemark."""
    alice, bob = shared
    name = make(alice, "/v1/conversations")
    for value in (name, {"id": name}):
        assert respond(alice, "Hello?", conversation=value).status_code == 200
        answer = respond(bob, "Hello?", conversation=value)
        assert (answer.status_code, answer.json()["error"]["param"]) == (404, "conversation")
    assert ask(bob, "GET", f"/v1/conversations/{name}/items").status_code == 404


def test_where_clients_have_their_own_keys_the_provider_decides(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Two keys may belong to one account, as after a rotation."""
    alice, bob = tenants(bench, request.node.nodeid, OWN_KEYS)
    name, file = respond(alice).json()["id"], make(alice)
    bench.settle()
    assert ask(bob, "GET", f"/v1/responses/{name}").status_code == 200
    assert ask(bob, "GET", f"/v1/files/{file}").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        *("files", "batches", "vector_stores", "fine_tuning/jobs", "uploads", "assistants", "threads", "containers"),
        *("evals", "videos", "skills", "messages/batches", "something/new"),
    ],
)
def test_what_a_tenant_made_is_404_for_another(bench: Bench, shared: tuple[Client, Client], path: str) -> None:
    """Whatever the call, below it too, and its maker has it all the same."""
    alice, bob = shared
    name = make(alice, f"/v1/{path}")
    for method, rest in (("GET", ""), ("DELETE", ""), ("POST", ""), ("GET", "/content"), ("POST", "/cancel")):
        answer = ask(bob, method, f"/v1/{path}/{name}{rest}")
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found"), (method, rest)
    assert len(bench.upstream.received) == 1
    ask(alice, "DELETE", f"/v1/{path}/{name}")
    assert bench.upstream.last.path == f"/v1/{path}/{name}"


def test_an_id_is_recognized_however_the_path_is_written(bench: Bench, shared: tuple[Client, Client]) -> None:
    """As an upstream may read it."""
    alice, bob = shared
    name = make(alice)
    escaped = "".join(f"%{ord(character):02x}" for character in name)
    for path in (f"files/{escaped}", f"/files/{name}", f"files/{name};x", f"files/{name}%20", f"v1/files/{name}/"):
        assert ask(bob, "GET", f"/v1/{path}").status_code == 404, path
    assert len(bench.upstream.received) == 1


def test_a_query_names_nothing_of_another_tenant(bench: Bench, shared: tuple[Client, Client]) -> None:
    """Such as the item or the file behind which a list begins; the provider may quote it."""
    alice, bob = shared
    item, file = respond(alice).json()["output"][0]["id"], make(alice)
    own = ask(bob, "POST", "/v1/responses", json={"model": "small", "input": "Hi", "store": True}).json()["id"]
    store = make(bob, "/v1/vector_stores")
    bench.settle()
    asked = len(bench.upstream.received)
    for path in (
        f"files?after={file}",
        f"vector_stores/{store}/files?order=asc&after={file}",
        f"files?after=%{ord(file[0]):02x}{file[1:]}",
    ):
        assert ask(bob, "GET", f"/v1/{path}").status_code == 404, path
    assert ask(bob, "GET", f"/v1/responses/resp_elsewhere1/input_items?after={item}").status_code == 404
    assert len(bench.upstream.received) == asked
    assert ask(alice, "GET", f"/v1/files?order=desc&limit=5&after={file}").status_code == 200
    assert ask(bob, "GET", f"/v1/responses/{own}/input_items?order=asc").status_code == 200


def test_a_form_makes_what_belongs_to_its_sender(bench: Bench, shared: tuple[Client, Client]) -> None:
    """Files are uploaded as forms, short ones and long ones."""
    alice, bob = shared
    for size in (10, 2**21):
        files = {"file": ("a.jsonl", b"x" * size, "application/jsonl"), "purpose": (None, b"batch")}
        name = ask(alice, "POST", "/v1/files", files=files).json()["id"]
        assert ask(bob, "GET", f"/v1/files/{name}/content").status_code == 404
        assert ask(alice, "GET", f"/v1/files/{name}/content").status_code == 200
    del bench


@pytest.mark.parametrize(
    "body", ['{"input_file_id": "%s"}', '{"file_ids": ["%s"]}', '{"a": {"b": [{"id": "%s"}]}}', '{"escaped": "%s"}']
)
def test_what_another_tenant_made_cannot_be_named_in_a_body(
    bench: Bench, shared: tuple[Client, Client], body: str
) -> None:
    """A batch of another tenant's file would show it."""
    alice, bob = shared
    name = make(alice)
    text = body % name.replace("o", "\\u006f" if "escaped" in body else "o")
    headers = {"authorization": f"Bearer {bob.key}", "content-type": "application/json"}
    assert bob.http.post("/v1/batches", content=text, headers=headers).status_code == 404
    assert len(bench.upstream.received) == 1
    headers["authorization"] = f"Bearer {alice.key}"
    assert alice.http.post("/v1/batches", content=text, headers=headers).status_code == 200


def test_a_long_body_is_searched_as_a_whole(bench: Bench, shared: tuple[Client, Client]) -> None:
    """At every place, and a body with too many ids is refused and not carried unseen."""
    alice, bob = shared
    name = make(alice)
    for before in (65_530, 65_536, 200_000):
        assert ask(bob, "POST", "/v1/batches", json={"x": "y" * before, "file": name}).status_code == 404
    answer = ask(bob, "POST", "/v1/batches", json={"ids": [f"file-{number}" for number in range(17_000)]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "too_many_references")
    assert len(bench.upstream.received) == 1


def test_what_comes_of_an_object_belongs_to_its_maker(bench: Bench, shared: tuple[Client, Client]) -> None:
    """A batch's results, an upload's file, the thread of a run: ids that only later answers name."""
    alice, bob = shared
    upload = make(alice, "/v1/uploads")
    file = ask(alice, "POST", f"/v1/uploads/{upload}/complete", json={}).json()["file"]["id"]
    thread = ask(alice, "POST", "/v1/threads/runs", json={}).json()["thread_id"]
    batch = make(alice, "/v1/batches")
    results = ask(alice, "POST", f"/v1/batches/{batch}/cancel").json()["output_file_id"]
    for path in (f"files/{file}", f"files/{results}", f"threads/{thread}"):
        assert ask(bob, "GET", f"/v1/{path}").status_code == 404
        assert ask(alice, "GET", f"/v1/{path}").status_code == 200
    del bench


@pytest.mark.parametrize("size", [0, 2**21])
def test_a_creations_answer_arrives_as_it_was_sent(bench: Bench, shared: tuple[Client, Client], size: int) -> None:
    """Compressed ones are read for their id; those beyond a megabyte only pass."""
    alice, bob = shared
    body = gzip.compress(json.dumps({"id": "obj-compressed", "noise": os.urandom(size).hex()}).encode())
    headers = [(b"content-type", b"application/json"), (b"content-encoding", b"gzip")]
    bench.upstream.script = lambda _: Answer([body[:50], body[50:]], headers=headers)
    assert len(ask(alice, "POST", "/v1/files", json={}).json()["noise"]) == 2 * size
    assert ask(bob, "GET", "/v1/files/obj-compressed").status_code == (200 if size else 404)


def test_the_items_of_a_background_response_are_its_makers(bench: Bench, shared: tuple[Client, Client]) -> None:
    """Known once a poll has brought them."""
    alice, bob = shared
    queued = keeping.response(next(NUMBERS), [], status="queued", background=True)
    bench.upstream.script = lambda _: Answer([json.dumps(queued).encode()])
    name = respond(alice, background=True).json()["id"]
    bench.settle()
    assert ask(bob, "GET", f"/v1/responses/{name}").status_code == 404
    kept = bench.upstream.others.kept or {}
    kept[name] |= {"status": "completed", "output": keeping.items("Fine.", queued["created_at"] + 90_000)}
    item = ask(alice, "GET", f"/v1/responses/{name}").json()["output"][0]["id"]
    bench.upstream.script = Provider()
    assert respond(bob, [{"type": "item_reference", "id": item}]).status_code == 404
    assert respond(alice, [{"type": "item_reference", "id": item}]).status_code == 200


def test_what_nobody_was_seen_to_make_is_open_by_default(shared: tuple[Client, Client]) -> None:
    """With ``passthrough`` the account is its operator's, who may have made it elsewhere; so are lists."""
    alice, bob = shared
    for client in (alice, bob):
        for path in ("files", "files/file-elsewhere1", "responses/resp_before"):
            assert "configured" not in ask(client, "GET", f"/v1/{path}").text
        assert ask(client, "GET", "/v1/files").status_code == 200
        assert ask(client, "GET", "/v1/files/file-elsewhere1").status_code == 200
        assert respond(client, "And?", previous_response_id="resp_before").status_code == 200


def test_attaching_what_nobody_made_does_not_take_it(shared: tuple[Client, Client]) -> None:
    """An answer below somebody's own object may name any other; only a creation makes its sender the owner."""
    alice, bob = shared
    store = make(alice, "/v1/vector_stores")
    attached = ask(alice, "POST", f"/v1/vector_stores/{store}/files", json={"file_id": "file-elsewhere1"}).json()["id"]
    assert ask(bob, "GET", f"/v1/files/{attached}").status_code == 200


def test_an_account_that_is_not_shared_shows_only_what_was_made_here(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """No lists, nothing that was made elsewhere, and no word that tells it from another tenant's."""
    alice, bob = tenants(bench, request.node.nodeid, more=CLOSED)
    name, response = make(alice), respond(alice).json()["id"]
    bench.settle()
    asked = len(bench.upstream.received)
    others = [ask(bob, "GET", f"/v1/files/{file}").json()["error"] for file in (name, "obj-0000")]
    assert others[0]["message"].replace(name, "obj-0000") == others[1]["message"]
    assert "auth.shared_account" in others[0]["message"]
    for method, path in (("GET", "files"), ("DELETE", "files"), ("GET", "fine_tuning/jobs"), ("GET", "organization")):
        assert ask(alice, method, f"/v1/{path}").status_code == 404, path
    assert ask(alice, "GET", "/v1/responses/resp_before").status_code == 404
    assert respond(alice, "And?", previous_response_id="resp_before").status_code == 404
    assert respond(alice, "And?", conversation="conv_before").status_code == 404
    reference = [{"type": "item_reference", "id": "msg_before"}, {"role": "user", "content": "And?"}]
    assert respond(alice, reference).status_code == 404
    assert ask(alice, "POST", "/v1/batches", json={"input_file_id": "file-elsewhere1"}).status_code == 404
    assert [sent.path + str(sent.body) for sent in bench.upstream.received[asked:]] == []
    assert ask(alice, "GET", f"/v1/files/{name}").status_code == 200
    assert ask(alice, "GET", f"/v1/responses/{response}").status_code == 200
    assert make(alice, "/v1/batches", input_file_id=name, endpoint="/v1/responses")


def test_without_a_store_nobody_gets_what_may_be_anothers(
    bench: Bench, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A worker still knows what it saw made itself; embeddings go on."""
    with EmbeddedValkey(tmp_path_factory.mktemp("gone")) as server:
        alice, bob = tenants(bench, request.node.nodeid, store=server.url)
        name = make(alice)
    assert ask(alice, "GET", f"/v1/files/{name}").status_code == 200
    assert ask(bob, "GET", f"/v1/files/{name}").status_code == 404
    answer = ask(bob, "GET", "/v1/files/file-elsewhere1")
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "store_unavailable")
    assert ask(bob, "POST", "/v1/embeddings", json={"model": "small", "input": "x"}).status_code == 200
    assert ask(bob, "POST", "/v1/files", json={}).status_code == 200


MANY = 2_000
"""More lines than a store is asked for at once."""
LINES = "\n".join(f'{{"custom_id": "line-{number}", "url": "/v1/responses"}}' for number in range(MANY)).encode()


def test_the_texts_of_an_uploaded_file_are_no_references(
    bench: Bench, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """However many they are, in a form that is read whole; so an upload needs no store either."""
    files = {"file": ("a.jsonl", LINES, "application/jsonl"), "purpose": (None, b"batch")}
    with EmbeddedValkey(tmp_path_factory.mktemp("gone")) as server:
        alice, _ = tenants(bench, request.node.nodeid, store=server.url)
        assert ask(alice, "POST", "/v1/files", files=files).status_code == 200
    assert ask(alice, "POST", "/v1/files", files=files).status_code == 200


def test_a_batch_of_many_requests_is_carried(shared: tuple[Client, Client]) -> None:
    """Each has an id that its client chose. A batch of a vector store's files names 2,000 (OpenAI API reference)."""
    alice, _ = shared
    requests: list[dict[str, Any]] = [{"custom_id": f"request-{number}"} for number in range(20_000)]
    assert ask(alice, "POST", "/v1/messages/batches", json={"requests": requests}).status_code == 200
    files = {"file_ids": [f"file-{number + 10**6}" for number in range(MANY)]}
    store = make(alice, "/v1/vector_stores")
    assert ask(alice, "POST", f"/v1/vector_stores/{store}/file_batches", json=files).status_code == 200


def test_an_image_of_another_tenant_is_not_edited(bench: Bench, shared: tuple[Client, Client]) -> None:
    """Its file can be named in JSON; the answer makes nothing of anybody."""
    alice, bob = shared
    bench.upstream.script = lambda _: Answer([b'{"id": "file-79"}'])
    make(alice)
    body = {"model": "small", "prompt": "blue", "images": [{"file_id": "file-79"}]}
    assert ask(bob, "POST", "/v1/images/edits", json=body).status_code == 404
    assert ask(bob, "POST", "/v1/images/edits", json={"model": "small", "prompt": "blue"}).status_code == 200
    assert ask(alice, "POST", "/v1/images/edits", json=body).status_code == 200


def test_a_batch_of_requests_names_no_file_of_another_tenant(bench: Bench, shared: tuple[Client, Client]) -> None:
    """Its requests are those of a model."""
    alice, bob = shared
    bench.upstream.script = lambda _: Answer([b'{"id": "file_011CN"}'])
    make(alice)
    body = {"requests": [{"custom_id": "one", "params": {"source": {"type": "file", "file_id": "file_011CN"}}}]}
    assert ask(bob, "POST", "/v1/messages/batches", json=body).status_code == 404
    assert ask(alice, "POST", "/v1/messages/batches", json=body).status_code == 200


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-32", "utf-8-sig", "utf-8"])
def test_an_encoding_hides_no_id(bench: Bench, shared: tuple[Client, Client], encoding: str) -> None:
    """Python's own parser takes JSON in each of these, and many servers do not look at its type."""
    alice, bob = shared
    body = json.dumps({"input_file_id": make(alice)}).encode(encoding)
    for kind in ({}, {"content-type": "text/plain;charset=UTF-8"}, {"content-type": "application/json"}):
        headers = {"authorization": f"Bearer {bob.key}", **kind}
        answer = bob.http.post("/v1/batches?model=small", content=body, headers=headers)
        assert answer.status_code in (400, 404), kind
    assert len(bench.upstream.received) == 1


@pytest.mark.parametrize("kind", ["application/octet-stream", "application/x-ndjson", "text/html", "image/png"])
def test_no_media_type_hides_an_id(bench: Bench, shared: tuple[Client, Client], kind: str) -> None:
    """Servers that read JSON whatever its type is said to be would take it, compressed or behind white space, too."""
    alice, bob = shared
    body = json.dumps({"input_file_id": make(alice)}).encode()
    for content, more in ((body, {}), (b" " * 400_000 + body, {}), (gzip.compress(body), {"content-encoding": "gzip"})):
        headers = {"authorization": f"Bearer {bob.key}", "content-type": kind, **more}
        assert bob.http.post("/v1/batches", content=content, headers=headers).status_code == 404
        assert len(bench.upstream.received) == 1
    for content, more in ((body, {}), (gzip.compress(body), {"content-encoding": "gzip"})):
        headers = {"authorization": f"Bearer {alice.key}", "content-type": kind, **more}
        assert alice.http.post("/v1/batches", content=content, headers=headers).status_code == 200
        assert bench.upstream.last.body == body
        assert "content-encoding" not in dict(bench.upstream.last.headers)


def test_a_files_bytes_are_carried_as_they_are(bench: Bench, shared: tuple[Client, Client]) -> None:
    """Only what begins as JSON does is kept and searched; everything else goes on while it arrives."""
    alice, _ = shared
    content = b"RIFF" + os.urandom(2**21)
    headers = {"authorization": f"Bearer {alice.key}", "content-type": "audio/wav"}
    assert alice.http.post("/v1/files", content=content, headers=headers).status_code == 200
    assert bench.upstream.last.body == content


def test_a_threads_run_in_a_stream_makes_what_belongs_to_its_sender(
    bench: Bench, shared: tuple[Client, Client]
) -> None:
    """The first event names the thread, cut anywhere and compressed or not; the stream goes on with all its bytes."""
    alice, bob = shared
    events = b': a comment\n\nevent: thread.created\ndata: {"id": "%s"}\n\nevent: done\ndata: [DONE]\n\n'
    kind, packed = (b"content-type", b"text/event-stream"), gzip.compress(events % b"thread_c")
    answers = {
        "thread_a": Answer([events % b"thread_a"], headers=[kind]),
        "thread_b": Answer([events[:40], events[40:] % b"thread_b"], headers=[kind]),
        "thread_c": Answer([packed], headers=[kind, (b"content-encoding", b"gzip")]),
    }
    bench.upstream.script = lambda received: answers[received.json["assistant_id"]]
    for name in answers:
        answer = ask(alice, "POST", "/v1/threads/runs", json={"stream": True, "assistant_id": name})
        assert answer.content == events % name.encode()
        assert refused(bench, ask(bob, "GET", f"/v1/threads/{name}"))


@pytest.mark.parametrize("more", [CLOSED, ""])
def test_names_of_members_and_files_are_no_ids(
    bench: Bench, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, more: str
) -> None:
    """``file_id``, ``file_search`` and a tool's ``file_path`` name nothing, in a closed account and in an outage."""
    with EmbeddedValkey(tmp_path_factory.mktemp("gone")) as server:
        alice, _ = tenants(bench, request.node.nodeid, more=more, store=server.url)
        made = Provider()
        ids = {"files": b"file-68aabbccdd", "vector_stores": b"vs_68aabbccdd"}
        bench.upstream.script = lambda sent: (
            made(sent) if sent.dialect else Answer([b'{"id": "%s"}' % ids.get(sent.path.split("/")[-1], b"x")])
        )
        file, store = make(alice), make(alice, "/v1/vector_stores", name="file-documents")
        _ask_with_names(alice, file, store, names=["file_path", "file_reader.py"])
    _ask_with_names(alice, file, store, names=["file_path"])


def _ask_with_names(client: Client, file: str, store: str, names: list[str]) -> None:
    said = [{"role": "user", "content": [{"type": "input_file", "file_id": file}]}]
    assert respond(client, said).status_code == 200
    assert respond(client, tools=[{"type": "file_search", "vector_store_ids": [store]}]).status_code == 200
    batch = {"input_file_id": file, "endpoint": "/v1/responses", "completion_window": "24h"}
    assert ask(client, "POST", "/v1/batches", json=batch).status_code == 200
    used = [{"type": "tool_use", "id": "one", "name": "Read", "input": {name: name for name in names}}]
    turns = [("user", "\x1b[0m"), ("assistant", used), ("user", [{"type": "tool_result", "tool_use_id": "one"}])]
    messages = [{"role": role, "content": content} for role, content in turns]
    answer = ask(client, "POST", "/v1/messages", json={"model": "small", "max_tokens": 9, "messages": messages})
    assert answer.status_code == 200, answer.text


def test_a_call_of_googles_models_is_no_object(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Its path names a model and a call, so a closed account has it, too."""
    alice, _ = tenants(bench, request.node.nodeid, more=CLOSED)
    assert ask(alice, "POST", "/v1/models/gemini-2.5:generateContent?model=small", json={}).status_code == 200


@pytest.mark.parametrize("text", ["file-77", "file\\u002d77"])
@pytest.mark.parametrize(
    ("path", "members"),
    [
        ("responses", '"input": [{"role": "user", "content": [{"type": "input_file", "file_id": "%s"}]}]'),
        ("responses", '"input": "Hi", "tools": [{"type": "file_search", "vector_store_ids": ["%s"]}]'),
        ("responses", '"input": "Hi", "tools": [{"type": "code_interpreter", "container": "%s"}]'),
        (
            "chat/completions",
            '"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "%s"}}]}]',
        ),
        ("messages", f'"max_tokens": 9, "messages": [{{"role": "user", "content": [{DOCUMENT}]}}]'),
        ("messages/count_tokens", f'"messages": [{{"role": "user", "content": [{DOCUMENT}]}}]'),
    ],
)
def test_a_model_reads_no_file_of_another_tenant(
    bench: Bench, shared: tuple[Client, Client], path: str, members: str, text: str
) -> None:
    """In no dialect, and the error is in the dialect's envelope."""
    alice, bob = shared
    bench.upstream.script = lambda received: Answer([b'{"id": "file-77"}'] if not received.dialect else [b"{}"])
    assert make(alice) == "file-77"
    body = '{"model": "small", %s}' % (members % text)
    headers = {"authorization": f"Bearer {bob.key}", "content-type": "application/json"}
    answer = bob.http.post(f"/v1/{path}", content=body, headers=headers)
    assert (answer.status_code, "file-77" in answer.json()["error"]["message"]) == (404, True), answer.text
    assert len(bench.upstream.received) == 1
    headers["authorization"] = f"Bearer {alice.key}"
    alice.http.post(f"/v1/{path}", content=body, headers=headers)
    assert len(bench.upstream.received) == 2


def test_a_summary_that_a_client_keeps_has_no_file_of_another_tenant(
    bench: Bench, shared: tuple[Client, Client]
) -> None:
    """Some providers compact conversations themselves, and would read it."""
    alice, bob = shared
    bench.upstream.script = lambda _: Answer([b'{"id": "file-78"}'])
    make(alice)
    content = [{"type": "input_file", "file_id": "file-78"}]
    body = {"model": "small", "input": [{"role": "user", "content": content}]}
    assert ask(bob, "POST", "/v1/responses/compact", json=body).status_code == 404
    assert ask(alice, "POST", "/v1/responses/compact", json=body).status_code == 200
