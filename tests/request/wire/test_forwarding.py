"""Everything under ``/v1`` that Tidemark does not serve itself is carried to an upstream, untouched, both ways."""

from __future__ import annotations

import gzip
import hashlib
import json
import socket
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest

from tests.request.conftest import Bench, Client, benched
from tests.support.scripted import Answer, Received, error, says, streamed

ONE = 'upstream: "{base}"\nserver: {{max_body_mb: 1}}\n'
LISTED = """
model_list:
  - model_name: mine
    litellm_params: {{model: openai/theirs, api_base: "{base}", api_key: configured}}
  - model_name: other
    litellm_params: {{model: openai/other, api_base: "{base}/elsewhere"}}
  - model_name: foreign
    litellm_params: {{model: cohere/embed-v4.0, api_key: k}}
server: {{max_body_mb: 1, max_spool_mb: 3}}
"""
NONE = "model_list: []\n"
BOUNDARY = "----tests"
FORM = {"content-type": f"multipart/form-data; boundary={BOUNDARY}"}
JSON = "application/json"
MEGABYTE = 2**20


@pytest.fixture(scope="module")
def bench(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all of these tests."""
    with benched(store_url, tmp_path_factory.mktemp("forwarding")) as made:
        yield made


@pytest.fixture(autouse=True)
def silence(bench: Bench) -> None:
    """The upstream echoes whatever a test does not script."""
    bench.upstream.script = describe_request


@pytest.fixture(scope="module", params=["own", "library"])
def client(bench: Bench, request: pytest.FixtureRequest) -> Client:
    """A client of a Tidemark with one upstream, over either HTTP client."""
    more = f"transport: {{{{upstream: {request.param}}}}}\n"
    return bench.client("one", config=ONE + more, own=True)


@pytest.fixture(scope="module")
def roomy(bench: Bench) -> Client:
    """The same with larger bodies."""
    return bench.client("roomy", config=LISTED.replace("max_body_mb: 1", "max_body_mb: 4"), own=True)


@pytest.fixture(scope="module")
def listed(bench: Bench) -> Client:
    """A client of a Tidemark whose model_list has several upstreams."""
    return bench.client("listed", config=LISTED, own=True)


def describe_request(request: Received) -> Answer:
    """Answer with what came."""
    facts = {
        "path": request.path,
        "query": request.query,
        "length": len(request.body),
        "sha256": hashlib.sha256(request.body).hexdigest(),
        "authorization": request.headers.get("authorization"),
        "body": request.body[:2000].decode("latin-1"),
    }
    return Answer([json.dumps(facts).encode()])


def part(name: str, value: bytes, file: str = "") -> bytes:
    """One part of a form."""
    named = f'; filename="{file}"' if file else ""
    head = f'--{BOUNDARY}\r\nContent-Disposition: form-data; name="{name}"{named}\r\n\r\n'
    return head.encode() + value + b"\r\n"


def form(*parts: bytes) -> bytes:
    """A whole form."""
    return b"".join(parts) + f"--{BOUNDARY}--\r\n".encode()


def upload(size: int) -> Iterator[bytes]:
    """A body of so many bytes, made while it is sent."""
    for place in range(0, size, 65_536):
        yield bytes([place // 65_536 % 251]) * min(65_536, size - place)


def digest(pieces: Iterator[bytes]) -> str:
    """The digest of a body."""
    hashed = hashlib.sha256()
    for piece in pieces:
        hashed.update(piece)
    return hashed.hexdigest()


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/embeddings"),
        ("POST", "/v1/moderations"),
        ("POST", "/v1/images/generations"),
        ("GET", "/v1/files?limit=2&after=file%261"),
        ("DELETE", "/v1/files/file-1"),
        ("GET", "/v1/vector_stores/vs%2F1/files"),
        ("PUT", "/v1/videos/7"),
        ("PATCH", "/v1/containers/7"),
        ("POST", "/v1/batches"),
        ("POST", "/v1/rerank"),
        ("POST", "/v1/nobody/knows"),
        ("POST", "/v1/models/gemini-pro:generateContent"),
        ("POST", "/v1/models/gemini-pro:streamGenerateContent?alt=sse"),
    ],
)
def test_any_method_and_path_goes_to_the_one_upstream(bench: Bench, client: Client, method: str, path: str) -> None:
    """Its bytes, its query and its headers are the client's; what came back is the upstream's."""
    body = b'{ "model" : "m",\n "input": ["a"] }' if method in ("POST", "PUT", "PATCH") else b""
    got = client.http.request(method, path, content=body, headers=client.headers())
    assert got.status_code == 200, got.text
    url, _, query = path.partition("?")
    told = got.json()  # the upstream records no GET
    assert (told["path"], told["query"], told["length"]) == (httpx.URL(url).path, query, len(body))
    if method != "GET":
        last = bench.upstream.last
        assert (last.method, last.body, last.headers["authorization"]) == (method, body, "Bearer one")


def test_the_list_of_stored_completions_is_the_upstreams(bench: Bench, client: Client) -> None:
    """``client.chat.completions.list()``; the same path takes the requests of the pipeline with ``POST``."""
    bench.upstream.models = {"object": "list", "data": [{"id": "chatcmpl-1"}], "has_more": False}
    got = client.http.get("/v1/chat/completions?limit=1", headers=client.headers())
    assert (got.status_code, got.json()) == (404, bench.upstream.models), "as the scripted upstream answers this path"
    assert client.http.put("/v1/chat/completions").status_code == 405


def test_a_status_and_its_headers_are_the_upstreams(bench: Bench, client: Client) -> None:
    """Also those of an error, whose body is the provider's own."""
    bench.upstream.script = lambda _: error(429, "slow down", headers=[(b"retry-after", b"7"), (b"x-other", b"1")])
    got = client.http.post("/v1/nobody/knows", json={"input": "a"})
    assert (got.status_code, got.headers["retry-after"], got.headers["x-other"]) == (429, "7", "1")
    assert got.json()["error"]["message"] == "slow down"


def test_events_and_bytes_are_carried_as_they_arrive(bench: Bench, client: Client) -> None:
    """An event stream, and audio without a length."""
    bench.upstream.script = lambda _: streamed("one two three")
    with client.http.stream("POST", "/v1/nobody/knows", json={"stream": True}) as got:
        assert got.headers["content-type"] == "text/event-stream"
        assert b"".join(got.iter_raw()).endswith(b"data: [DONE]\n\n")
    sound = bytes(range(256)) * 1000
    bench.upstream.script = lambda _: Answer([sound[:7], sound[7:]], headers=[(b"content-type", b"audio/mpeg")])
    assert client.http.post("/v1/nobody/speech", json={"input": "a"}).content == sound


def test_a_stream_that_breaks_off_says_so(bench: Bench, client: Client) -> None:
    """With an event; a body of another type ends without its end."""
    bench.upstream.script = lambda _: Answer(
        [b"data: {}\n\n"], headers=[(b"content-type", b"text/event-stream")], breaks=True
    )
    got = client.http.post("/v1/nobody/knows", json={"stream": True})
    assert b"upstream_error" in got.content
    bench.upstream.script = lambda _: Answer([b"RIFF"], headers=[(b"content-type", b"audio/wav")], breaks=True)
    with pytest.raises(httpx.RemoteProtocolError):
        client.http.post("/v1/nobody/knows", json={"input": "a"})


def test_a_large_upload_needs_no_memory_bound(client: Client) -> None:
    """Eight times ``server.max_body_mb``, with a length and in chunks, arrives whole."""
    size = 8 * MEGABYTE
    headers = {"content-type": "application/octet-stream"}
    whole = digest(upload(size))
    chunked = client.http.post("/v1/nobody/uploads", content=upload(size), headers=headers).json()
    stated = client.http.post(
        "/v1/nobody/uploads", content=upload(size), headers={**headers, "content-length": str(size)}
    ).json()
    assert (chunked["length"], chunked["sha256"]) == (size, whole)
    assert (stated["length"], stated["sha256"]) == (size, whole)


@pytest.fixture(scope="module")
def shared(bench: Bench) -> Client:
    """A client of a Tidemark whose model_list has one upstream, and another name for its model."""
    config = 'model_list: [{{model_name: mine, litellm_params: {{model: openai/theirs, api_base: "{base}"}}}}]\n'
    return bench.client("shared", config=config + "server: {{max_body_mb: 1}}\n", own=True)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_body_without_a_type_that_is_no_object_is_carried(shared: Client, *, is_chunked: bool) -> None:
    """HTTP clients state none for bytes. It may be larger than ``server.max_body_mb``, and is not read as JSON."""
    for whole in (b"\x00sound", b"[1]", b"", b" ", b"plain words", b"".join(upload(2 * MEGABYTE))):
        sent: Any = iter([whole]) if is_chunked else whole
        got = shared.http.post("/v1/nobody/uploads", content=sent)
        assert got.status_code == 200, got.text
        assert (got.json()["length"], got.json()["sha256"]) == (len(whole), hashlib.sha256(whole).hexdigest())


@pytest.mark.parametrize("is_chunked", [False, True])
def test_an_object_without_a_type_is_read_for_its_model(shared: Client, *, is_chunked: bool) -> None:
    """It keeps the bound of JSON; one that cannot be read is the upstream's to refuse."""
    for content, body in ((b' {"model": "mine"}', '{"model":"theirs"}'), (b'{"model": ', '{"model": ')):
        got = shared.http.post("/v1/nobody/knows", content=iter([content]) if is_chunked else content)
        assert (got.status_code, got.json()["body"]) == (200, body)
    large = b'{"model": "mine", "a": "' + b"a" * MEGABYTE + b'"}'
    got = shared.http.post("/v1/nobody/knows", content=iter([large]) if is_chunked else large)
    assert (got.status_code, got.json()["error"]["code"]) == (413, "request_too_large")


def test_json_keeps_the_bound_of_bodies(client: Client) -> None:
    """413, in the envelope."""
    got = client.http.post("/v1/embeddings", content=b" " * (MEGABYTE + 1), headers=client.headers())
    assert (got.status_code, got.json()["error"]["code"]) == (413, "request_too_large")


def test_a_head_has_the_length_of_its_get(bench: Bench, client: Client) -> None:
    """RFC 9110, section 9.3.2."""
    length = [(b"content-type", b"text/plain"), (b"content-length", b"9")]
    bench.upstream.script = lambda _: Answer([b""], headers=length)
    got = client.http.head("/v1/files/file-1/content")
    assert got.status_code == 200
    assert got.content == b""


@pytest.mark.parametrize("file_first", [True, False], ids=["file first", "fields first"])
@pytest.mark.parametrize("size", [10, 2 * MEGABYTE], ids=["short", "long"])
def test_a_forms_model_decides_where_it_goes(listed: Client, *, file_first: bool, size: int) -> None:
    """Its name is the upstream's; every other byte is the client's; the configured key goes with it."""
    parts = [part("file", b"".join(upload(size)), "a.mp3"), part("model", b"mine"), part("language", b"en")]
    sent = form(*(parts if file_first else parts[1:] + parts[:1]))
    got = listed.http.post("/v1/audio/nobody", content=iter([sent]), headers=listed.headers() | FORM).json()
    wanted = sent.replace(b"\r\n\r\nmine\r\n", b"\r\n\r\ntheirs\r\n")
    assert (got["length"], got["sha256"]) == (len(wanted), hashlib.sha256(wanted).hexdigest())
    assert got["authorization"] == "Bearer configured"
    stated = listed.http.post("/v1/audio/nobody", content=sent, headers=listed.headers() | FORM).json()
    assert stated["sha256"] == got["sha256"]


def test_a_form_is_not_looked_at_where_the_query_names_the_model(listed: Client) -> None:
    """So it needs no place on the disk."""
    sent = form(part("file", b"x" * (4 * MEGABYTE), "a.mp3"))
    got = listed.http.post("/v1/audio/nobody?model=mine", content=sent, headers=listed.headers() | FORM).json()
    assert (got["length"], got["query"]) == (len(sent), "model=theirs")


def test_a_form_that_names_its_model_too_late_is_refused(listed: Client) -> None:
    """Nothing but ``server.max_spool_mb`` is kept; the message says what to do."""
    sent = form(part("file", b"x" * (4 * MEGABYTE), "a.mp3"), part("model", b"mine"))
    got = listed.http.post("/v1/audio/nobody", content=sent, headers=listed.headers() | FORM)
    assert got.status_code == 413
    assert "server.max_spool_mb" in got.json()["error"]["message"]


def test_a_form_of_files_alone_has_a_smaller_bound(bench: Bench) -> None:
    """A field of any name lifts it; a file of the name ``model`` is no field."""
    config = LISTED.replace("max_spool_mb: 3", "max_spool_mb: 3, max_file_first_mb: 1")
    http = bench.client("files first", config=config, own=True).http
    files = part("file", b"x" * MEGABYTE, "a.mp3"), part("model", b"x" * MEGABYTE, "model")
    got = http.post("/v1/audio/nobody", content=form(*files, part("model", b"mine")), headers=FORM)
    assert (got.status_code, "server.max_file_first_mb" in got.json()["error"]["message"]) == (413, True)
    sent = form(part("language", b"en"), *files, part("model", b"mine"))
    assert http.post("/v1/audio/nobody", content=sent, headers=FORM).status_code == 200


def test_a_form_that_does_not_name_its_model_in_time_is_refused(bench: Bench) -> None:
    """Its client hears why, though it sends on; its file is deleted."""
    config = LISTED.replace("max_spool_mb: 3", "max_spool_mb: 3, form_seconds: 0.3")
    place = urlsplit(str(bench.client("slow", config=config, own=True).http.base_url))
    with socket.create_connection((place.hostname, place.port), timeout=30) as client:
        lines = ["POST /v1/audio/nobody HTTP/1.1", "Host: localhost", "Content-Length: 9999999"]
        head = "\r\n".join([*lines, f"Content-Type: {FORM['content-type']}", "", ""])
        client.sendall(head.encode() + part("file", b"x" * 200_000, "a.mp3"))
        answer = b""
        while b"form_seconds" not in answer and (piece := client.recv(65_536)):
            answer += piece
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"server.form_seconds" in answer


@pytest.mark.parametrize(
    ("content", "kind", "query", "body"),
    [
        (b'{"input": "a", "model": "mine"}', "application/json", "", '{"input":"a","model":"theirs"}'),
        (b"input=a+b&model=mine", "application/x-www-form-urlencoded", "", "input=a+b&model=theirs"),
        (b'{"model": "mine"}', "application/x-www-form-urlencoded", "", '{"model":"theirs"}'),
        (b"sound", "audio/wav", "a=%20&model=mine", "sound"),
    ],
    ids=["JSON", "pairs", "JSON of curl", "query"],
)
def test_the_model_of_json_pairs_or_query_decides(
    listed: Client, content: bytes, kind: str, query: str, body: str
) -> None:
    """It is renamed where the upstream has another name for it."""
    got = listed.http.post(
        f"/v1/nobody/knows?{query}", content=content, headers=listed.headers() | {"content-type": kind}
    ).json()
    assert got["body"] == body
    assert got["query"] == query.replace("mine", "theirs")
    assert got["authorization"] == "Bearer configured"


@pytest.mark.parametrize(
    ("content", "kind", "code"),
    [
        (b"model=mine&" * 5_000, "application/x-www-form-urlencoded", "invalid_form"),
        (b'{"model":"mine",' + b",".join(b'"a%d":1' % at for at in range(1_000)) + b"}", JSON, "too_many_values"),
        (b'{"model":"mine",' + b",".join(b'"a%d":1' % at for at in range(60_000)) + b"}", JSON, "too_many_values"),
        (b'{"model":"mine","input":[' + b"1," * 1_000_000 + b"1]}", JSON, "too_many_values"),
    ],
    ids=["pairs", "members", "very many members", "values"],
)
def test_a_body_of_very_many_members_is_refused(roomy: Client, content: bytes, kind: str, code: str) -> None:
    """A few KB of gzip would keep a worker busy for seconds."""
    headers = roomy.headers() | {"content-type": kind, "content-encoding": "gzip"}
    got = roomy.http.post("/v1/embeddings", content=gzip.compress(content, 1), headers=headers)
    assert (got.status_code, got.json()["error"]["code"]) == (400, code)


def test_a_request_for_embeddings_may_have_very_many_tokens(roomy: Client) -> None:
    """As many as OpenAI takes, and its model is renamed."""
    sent = {"model": "mine", "input": [[7] * 3_000] * 100}
    got = roomy.http.post("/v1/embeddings", json=sent, headers=roomy.headers()).json()
    wanted = json.dumps({**sent, "model": "theirs"}, separators=(",", ":")).encode()
    assert (got["length"], got["sha256"]) == (len(wanted), hashlib.sha256(wanted).hexdigest())


def test_a_model_goes_to_its_own_upstream(listed: Client) -> None:
    """Two models, two addresses."""
    got = listed.http.post("/v1/nobody/knows", json={"model": "other"}).json()
    assert got["path"] == "/v1/elsewhere/nobody/knows"


@pytest.mark.parametrize("config", [NONE, LISTED.replace("configured", "{{k}}")], ids=["none", "several"])
def test_without_one_upstream_the_setting_is_named(bench: Bench, config: str) -> None:
    """404 in OpenAI's envelope, also for a body that is still arriving; Anthropic's paths have Anthropic's."""
    lost = bench.client("lost", config=config.replace("{{k}}", "k"), own=True)
    for got in (
        lost.http.get("/v1/files"),
        lost.http.post("/v1/files", content=upload(MEGABYTE), headers={"content-type": "audio/wav"}),
        lost.http.get("/v1/messages/batches"),
        lost.http.get("/v1/v1/messages/batches"),
    ):
        assert got.status_code == 404
        assert "TIDEMARK_UPSTREAM" in got.json()["error"]["message"]
    assert got.json()["type"] == "error"


def test_an_unknown_model_is_not_found(listed: Client) -> None:
    """In JSON and in a form."""
    for got in (
        listed.http.post("/v1/embeddings", json={"model": "none"}),
        listed.http.post("/v1/audio/nobody", content=form(part("model", b"none")), headers=FORM),
    ):
        assert (got.status_code, got.json()["error"]["code"]) == (404, "model_not_found")


def test_a_provider_behind_litellm_is_refused_with_the_reason(listed: Client) -> None:
    """Its requests would have to be translated."""
    got = listed.http.post("/v1/moderations", json={"model": "foreign"})
    assert (got.status_code, got.json()["error"]["code"]) == (400, "dialect_not_served")


def test_a_large_compressed_form_has_its_model_renamed(bench: Bench) -> None:
    """Beyond a megabyte another thread reads it; every other byte stays."""
    large = bench.client("large", config=LISTED.replace("max_body_mb: 1", "max_body_mb: 4"), own=True)
    file = part("file", b"\r\n--" * 500_000, "a.wav")
    sent, expected = (form(file, part("model", name), part("n", b"1")) for name in (b"mine", b"theirs"))
    headers = {**FORM, "content-encoding": "gzip"}
    got = large.http.post("/v1/audio/transcriptions", content=gzip.compress(sent), headers=headers).json()
    assert (got["length"], got["sha256"]) == (len(expected), hashlib.sha256(expected).hexdigest())


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b'{"model": ', "application/json"),
        (b'{"model": "a"', "application/json"),
        (b"--x\r\n", "multipart/form-data"),
        (b"--x\r\n" + b"h" * 20_000, "multipart/form-data; boundary=x"),
        (form(part("model", b"m" * 5_000)), FORM["content-type"]),
        (form(part("model", b"")), FORM["content-type"]),
        (form(*[part("model", b"mine")] * 2), FORM["content-type"]),
        (form(*[part("a", b"")] * 1001), FORM["content-type"]),
    ],
)
def test_a_body_that_cannot_be_read_is_refused(listed: Client, content: bytes, kind: str) -> None:
    """400 in OpenAI's envelope."""
    got = listed.http.post("/v1/embeddings", content=content, headers={"content-type": kind})
    assert (got.status_code, got.json()["error"]["type"]) == (400, "invalid_request_error")


@pytest.mark.parametrize(
    "path",
    [
        b"/v1/../admin",
        b"/v1/files/%2e%2e/%2E%2e/admin",
        b"/v1/files/..%5cadmin",
        b"/v1/files/..;/admin",
    ],
)
def test_no_path_leaves_the_upstreams_base(bench: Bench, client: Client, path: bytes) -> None:
    """An upstream's address may have a path, which says how far a client may reach."""
    address, asked = urlsplit(str(client.http.base_url)), len(bench.upstream.received)
    with socket.create_connection((address.hostname, address.port), timeout=20) as wire:
        wire.sendall(b"GET " + path + b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        got = b""
        while piece := wire.recv(65_536):
            got += piece
    assert b" 400 " in got.splitlines()[0]
    assert b"invalid_path" in got
    assert len(bench.upstream.received) == asked


@pytest.mark.parametrize("path", [b"/v1%2F@elsewhere.test/files", b"/v1%2f.elsewhere.test/files", b"/%76%31/files"])
def test_a_beginning_with_a_percent_sign_is_no_other_way_to_a_path(bench: Bench, client: Client, path: bytes) -> None:
    """Reverse proxies allow and refuse paths as they are written."""
    asked = len(bench.upstream.received)
    got = client.http.get(client.http.base_url.join("/").copy_with(raw_path=path))
    assert (got.status_code, got.json()["error"]["code"]) == (404, "unknown_url")
    assert len(bench.upstream.received) == asked


@pytest.mark.parametrize("path", ["//chat/completions", "/chat//completions", "/responses//", "//messages/"])
def test_a_dialects_path_with_more_slashes_does_not_pass_the_pipeline_by(
    bench: Bench, client: Client, path: str
) -> None:
    """Many servers merge slashes, so the request would be answered and nothing of it stored."""
    asked = len(bench.upstream.received)
    got = client.http.post(client.http.base_url.join("/").copy_with(raw_path=b"/v1" + path.encode()), json={})
    assert got.status_code == 404
    assert "single slashes" in got.json()["error"]["message"]
    assert len(bench.upstream.received) == asked


def test_a_404_of_an_upstream_whose_base_has_no_version_names_the_mend(bench: Bench) -> None:
    """The upstream's answer stays as it is; one with a version has no such warning."""
    bench.upstream.script = lambda _: Answer([b"404: Not Found"], 404)
    talk = {"model": "m", "messages": [{"role": "user", "content": "Hi."}]}
    for base, warned in ((bench.upstream_url, True), ("{base}", False)):
        asking = bench.client("astray", config=BASE_ALONE.replace("{base}", base), own=True)
        got = asking.post(talk)
        assert (got.status_code, got.text) == (404, "404: Not Found")
        assert ("does not end in /v1" in got.headers.get("x-tidemark-warning", "")) is warned


def test_a_doubled_v1_is_carried_once(client: Client) -> None:
    """Of paths that are only carried, too."""
    assert client.http.get("/v1/v1/files?limit=1").json()["path"] == "/v1/files"


BASE_ALONE = 'upstream: "{base}"\n'


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi."}]}),
        ("/v1/v1/responses", {"input": "Hi."}),
        ("/v1/v1/messages", {"max_tokens": 9, "messages": [{"role": "user", "content": "Hi."}]}),
    ],
)
def test_a_doubled_v1_does_not_pass_the_pipeline_by(bench: Bench, path: str, body: dict[str, Any]) -> None:
    """Not even where the upstream's base URL has none, so that what is doubled for Tidemark would be right for it."""
    bench.upstream.script = says("Hello there.")
    config = BASE_ALONE.replace("{base}", bench.upstream_url)
    doubled = bench.client("doubled", config=config, own=True)
    got = doubled.http.post(path, json={"model": "m", **body}, headers=doubled.headers())
    assert "x-tidemark-conversation" in got.headers, got.text
    assert bench.upstream.last.path == path.removeprefix("/v1/v1")


def test_a_query_keeps_its_percent_escapes(bench: Bench, client: Client) -> None:
    """Whatever they encode: a signature over the query would not match another spelling."""
    query = b"a=%7e%2f%41&b=%2B+%20&include%5B%5D=x"
    got = client.http.get(client.http.base_url.join("/").copy_with(raw_path=b"/v1/files?" + query))
    assert got.json()["query"] == query.decode()


def test_a_key_of_anthropics_header_and_the_clients_codings_both_go_upstream(bench: Bench, client: Client) -> None:
    """The key goes out as ``Authorization``, too, and there is one line of codings."""
    client.http.post("/v1/files", headers={"x-api-key": "k", "accept-encoding": "br"})
    sent = bench.upstream.last.headers
    assert (sent["authorization"], sent["accept-encoding"]) == ("Bearer k", "br")


def test_pages_of_other_sites_are_refused(bench: Bench, client: Client) -> None:
    """Multipart needs no preflight, so any page could send it."""
    asked = len(bench.upstream.received)
    headers = {"origin": "https://evil.example", "content-type": FORM["content-type"]}
    got = client.http.post("/v1/files", content=form(part("purpose", b"x")), headers=headers)
    assert got.json()["error"]["code"] == "foreign_origin"
    assert len(bench.upstream.received) == asked


def test_requests_are_counted_by_a_few_endpoints(listed: Client) -> None:
    """Clients choose paths, so most are ``other``."""
    listed.http.post("/v1/embeddings", json={"model": "mine"})
    listed.http.post("/v1/whatever/a/client/invents", json={"model": "mine"})
    metrics = listed.http.get("/metrics").text
    assert 'tidemark_forwarded_requests_total{endpoint="embeddings",status="200"}' in metrics
    assert 'tidemark_forwarded_requests_total{endpoint="other",status="200"}' in metrics
    assert "invents" not in metrics


def test_a_client_says_which_codings_it_reads(bench: Bench, client: Client) -> None:
    """What Tidemark does not read may be compressed; what was compressed stays so."""
    client.http.post("/v1/files", headers={"accept-encoding": "br"})
    assert bench.upstream.last.headers["accept-encoding"] == "br"


def test_an_answer_before_the_end_of_an_upload_is_carried(bench: Bench, client: Client) -> None:
    """A client that sends everything before it reads still gets it: the rest is read and dropped."""
    address = urlsplit(str(client.http.base_url))
    bench.upstream.script = lambda _: error(413, "too large")
    with socket.create_connection((address.hostname, address.port), timeout=20) as wire:
        wire.sendall(
            b"POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-type: audio/wav\r\nconnection: close\r\n"
            b"content-length: 4194304\r\n\r\n" + b"x" * 4_194_304
        )
        got: Any = b""
        while piece := wire.recv(65_536):
            got += piece
    assert b" 413 " in got.splitlines()[0]


def begin_upload(client: Client, size: int) -> socket.socket:
    """Send the head of an upload, whose body is the caller's to send."""
    address = urlsplit(str(client.http.base_url))
    wire = socket.create_connection((address.hostname, address.port), timeout=20)
    wire.sendall(
        b"POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-type: audio/wav\r\ncontent-length: %d\r\n\r\n" % size
    )
    return wire


class SlowUpstream:
    """An upstream that a test reads by hand."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.listener.settimeout(20)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/v1"

    def accept(self) -> socket.socket:
        """The next connection."""
        connection, _ = self.listener.accept()
        connection.settimeout(20)
        return connection


@pytest.fixture(scope="module", params=["own", "library"])
def slow(bench: Bench, request: pytest.FixtureRequest) -> Iterator[tuple[SlowUpstream, Client]]:
    """An upstream that is read by hand, and a client of a Tidemark before it."""
    upstream = SlowUpstream()
    config = f"upstream: {upstream.url}\ntransport: {{{{upstream: {request.param}}}}}\n"
    with upstream.listener:
        yield upstream, bench.client("slow", config=config, own=True)


def read_until(connection: socket.socket, ending: bytes) -> bytes:
    """What arrives, up to an ending."""
    got = b""
    while ending not in got:
        piece = connection.recv(65_536)
        assert piece, got
        got += piece
    return got


def read_to_end(connection: socket.socket) -> bytes:
    """What arrives until the other side closes, in whichever way."""
    got = b""
    try:
        while piece := connection.recv(65_536):
            got += piece
    except ConnectionError:
        pass
    return got


def test_each_piece_of_an_upload_arrives_before_the_next_is_sent(slow: tuple[SlowUpstream, Client]) -> None:
    """Nothing waits for the end of the body, and the answer's pieces go back in the same way."""
    upstream, client = slow
    with begin_upload(client, 10) as wire:
        wire.sendall(b"first")
        with upstream.accept() as connection:
            assert b"content-length: 10" in read_until(connection, b"first").lower()
            wire.sendall(b"-last")
            read_until(connection, b"-last")
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: audio/wav\r\ntransfer-encoding: chunked\r\n\r\n")
            for piece in (b"one", b"two"):
                connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece))
                read_until(wire, piece)


def test_a_client_that_leaves_during_its_upload_ends_it(slow: tuple[SlowUpstream, Client]) -> None:
    """The upstream's connection ends, and nobody takes the body for complete."""
    upstream, client = slow
    with begin_upload(client, 1_000) as wire:
        wire.sendall(b"first")
        connection = upstream.accept()
        read_until(connection, b"first")
    with connection:
        assert read_to_end(connection) == b""


@pytest.mark.parametrize("begun", [False, True], ids=["before the answer", "in the answer"])
def test_a_client_that_leaves_after_its_upload_cancels_the_upstream(
    slow: tuple[SlowUpstream, Client], *, begun: bool
) -> None:
    """Whether or not the answer has begun."""
    upstream, client = slow
    with begin_upload(client, 5) as wire:
        wire.sendall(b"whole")
        connection = upstream.accept()
        read_until(connection, b"whole")
        if begun:
            connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n")
            read_until(wire, b"one")
    with connection:
        assert read_to_end(connection) == b""


def test_an_upload_whose_upstream_closes_is_an_error(slow: tuple[SlowUpstream, Client]) -> None:
    """502, and no second request."""
    upstream, client = slow
    with begin_upload(client, 1_000) as wire:
        wire.sendall(b"first")
        with upstream.accept() as connection:
            read_until(connection, b"first")
        got = read_until(wire, b"\r\n\r\n")
    assert b" 502 " in got.splitlines()[0]
    upstream.listener.settimeout(0.2)
    with pytest.raises(TimeoutError):
        upstream.listener.accept()
    upstream.listener.settimeout(20)


def test_an_upload_is_asked_for_before_it_is_sent(slow: tuple[SlowUpstream, Client]) -> None:
    """``Expect: 100-continue``, which curl sends with every large file; the header stays on this hop."""
    upstream, client = slow
    address = urlsplit(str(client.http.base_url))
    with socket.create_connection((address.hostname, address.port), timeout=20) as wire:
        wire.sendall(
            b"PUT /v1/files/1 HTTP/1.1\r\nhost: localhost\r\ncontent-type: audio/wav\r\nexpect: 100-continue\r\n"
            b"content-length: 5\r\n\r\n"
        )
        assert read_until(wire, b"\r\n\r\n").startswith(b"HTTP/1.1 100 ")
        wire.sendall(b"whole")
        with upstream.accept() as connection:
            assert b"expect" not in read_until(connection, b"whole").lower()
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
            assert read_until(wire, b"ok").startswith(b"HTTP/1.1 200 ")
