"""A key for some models reaches no other one, whichever way its holder tries (attacks, one by one)."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.features.keys.conftest import Keyed
from tests.features.keys.test_keys import code
from tests.request.talk import history, user

EMBEDDINGS = "/v1/embeddings"
FORM = "multipart/form-data; boundary=B"


@pytest.fixture
def holder(keyed: Keyed) -> Holder:
    """The holder of a key for ``small`` alone."""
    return Holder(keyed, keyed.create(models=["small"])["key"])


class Holder:
    """Sends what its key may allow or not."""

    def __init__(self, keyed: Keyed, key: str) -> None:
        self.keyed = keyed
        self.key = key

    def send(self, path: str, content: bytes | str, kind: str = "application/json", method: str = "POST") -> Any:
        """Send a body."""
        headers = {"authorization": f"Bearer {self.key}", "content-type": kind}
        return self.keyed.operator.http.request(method, path, content=content, headers=headers)

    def json(self, path: str, **body: Any) -> httpx.Response:
        """Send JSON."""
        answer: httpx.Response = self.send(path, json.dumps(body))
        return answer


def part(name: str, value: str) -> str:
    """A field of a form."""
    return f'--B\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n{value}\r\n'


SOUND = '--B\r\nContent-Disposition: form-data; name="file"; filename="a.wav"\r\n\r\n' + "RIFF" * 8 + "\r\n"
MESSAGES = [user("Hello.")]


def test_the_allowed_model_is_served_on_every_kind_of_path(holder: Holder) -> None:
    """Chat, responses, messages, embeddings, and a form."""
    assert holder.json("/v1/chat/completions", model="small", messages=MESSAGES).status_code == 200
    assert holder.json("/v1/responses", model="small", input="Hello.").status_code == 200
    assert holder.json("/v1/messages", model="small", max_tokens=9, messages=MESSAGES).status_code == 200
    assert holder.json("/v1/embeddings", model="small", input="x").status_code == 200
    assert holder.json("/v1/responses/input_tokens", model="small", input="x").status_code == 200
    form = SOUND + part("model", "small") + "--B--\r\n"
    assert holder.send("/v1/audio/transcriptions", form, FORM).status_code == 200


def test_the_list_has_the_allowed_models_only(holder: Holder) -> None:
    """In both formats, and one by one."""
    headers = {"authorization": f"Bearer {holder.key}"}
    http = holder.keyed.operator.http
    for more in ({}, {"anthropic-version": "2023-06-01"}):
        assert [entry["id"] for entry in http.get("/v1/models", headers=headers | more).json()["data"]] == ["small"]
    assert http.get("/v1/models/small", headers=headers).status_code == 200
    assert http.get("/v1/models/large", headers=headers).status_code == 404


def test_a_star_allows_what_it_matches(keyed: Keyed) -> None:
    """And a name without one allows that name alone."""
    holder = Holder(keyed, keyed.create(models=["small-*"])["key"])
    assert holder.json("/v1/chat/completions", model="small-vision", messages=MESSAGES).status_code == 200
    assert code(holder.json("/v1/chat/completions", model="small", messages=MESSAGES)) == (403, "model_not_allowed")


@pytest.mark.parametrize("model", ["large", "SMALL", "small ", "small\x00", "openai/small", "*", "smallx", "s" * 9999])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
def test_no_other_name_is_served(holder: Holder, path: str, model: str) -> None:
    """Neither one that looks alike."""
    refused = holder.json(path, model=model, messages=MESSAGES, input="x")
    assert refused.status_code in (400, 403, 404)
    assert not holder.keyed.bench.upstream.received


@pytest.mark.parametrize(
    "body",
    [
        '{"model": "large", "messages": [], "model": "small"}',
        '{"model": "small", "messages": [], "\\u006dodel": "large"}',
        '{"model": "small", "messages": [], "Model": "large"}',
        '{"Model": "large", "messages": []}',
        '{"model": "small", "messages": [], "models": ["small", "large"]}',
        '{"model": "small", "messages": [], "fallbacks": ["large"]}',
        '{"model": "small", "messages": [], "fallbacks": [{"model": "large"}]}',
        '{"model": "small", "messages": [], "context_window_fallbacks": [{"small": ["large"]}]}',
        '{"model": "small", "messages": [], "extra_body": {"mod\\u0065ls": ["large"]}}',
        '{"model": "small", "messages": [], "tools": [{"type": "image_generation", "model": "large"}]}',
        '{"model": "small", "messages": [], "plugins": [{"id": "fusion", "models": ["large"]}]}',
    ],
)
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings", "/v1/messages/count_tokens"])
def test_a_second_model_in_a_body_is_refused(holder: Holder, path: str, body: str) -> None:
    """Twice, in capitals as some servers read it, as a fallback of a gateway, or of a tool."""
    text = body.replace('"messages": []', f'"messages": {json.dumps(MESSAGES)}, "max_tokens": 5, "input": "x"')
    refused = holder.send(path, text)
    assert refused.status_code in (400, 403), refused.text
    assert not holder.keyed.bench.upstream.received


def test_words_about_models_are_no_models(holder: Holder) -> None:
    """Messages, schemas of tools and metadata may say anything."""
    tool = {"name": "buy", "parameters": {"type": "object", "properties": {"model": {"type": "string"}}}}
    answer = holder.json(
        "/v1/chat/completions",
        model="small",
        messages=[user('{"model": "large", "models": ["large"]}')],
        tools=[{"type": "function", "function": tool}],
        metadata={"model": "a car"},
    )
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/batches"),
        ("POST", "/v1/batches?model=small"),
        ("POST", "/v1/messages/batches?model=small"),
        ("POST", "/v1/embeddings?model=small"),
        ("POST", "/v1/fine_tuning/jobs?model=small"),
        ("POST", "/v1/models/large:generateContent"),
        ("POST", "/v1/threads/runs?model=small"),
        ("POST", "/v1/conversations?model=large"),
        ("GET", "/v1/files?model=small"),
        ("GET", "/v1/responses/resp_0123456789abcdef"),
        ("GET", "/v1/responses/resp_0123456789abcdef?model=large"),
        ("POST", "/v1/responses/resp_0123456789abcdef/cancel?model=large"),
        ("DELETE", "/v1/models/large"),
        ("POST", "/v1/unheard/of?model=small"),
    ],
)
def test_what_may_reach_any_model_is_refused(holder: Holder, method: str, path: str) -> None:
    """Files and batches name models inside; a query names one for Tidemark and not for the upstream."""
    body = {"input_file_id": "file-1", "requests": [{"params": {"model": "large"}}]} if method == "POST" else {}
    refused = holder.send(path, json.dumps(body) if body else b"", method=method)
    assert refused.status_code in (403, 404), refused.text
    assert not holder.keyed.bench.upstream.received


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (SOUND + part("model", "small") + part("model", "large") + "--B--\r\n", FORM),
        (SOUND + part("model", "large") + "--B--\r\n", FORM),
        (SOUND + part("model", "small") + "--B--\r\n", FORM + "; boundary=C"),
        ('{"model": "large"}', FORM),
        ('{"model": "large"}', "application/octet-stream"),
        ('{"model": "small", "x": "&model=large"}', "application/x-www-form-urlencoded"),
        ("model=small&model=large", "application/x-www-form-urlencoded"),
    ],
)
def test_a_second_model_in_a_form_is_refused(holder: Holder, body: str, kind: str) -> None:
    """Some servers take the first field, others the last; some read JSON whatever its type says."""
    refused = holder.send("/v1/audio/transcriptions", body, kind)
    assert refused.status_code in (400, 403), refused.text
    assert not holder.keyed.bench.upstream.received


def test_a_large_form_is_read_whole_and_judged(holder: Holder) -> None:
    """A second field behind a long file would pass while the form is sent on."""
    sound = SOUND.replace("RIFF", "R" * 300_000)
    late = part("model", "small") + sound + part("model", "large") + "--B--\r\n"
    assert holder.send("/v1/audio/transcriptions", late, FORM).status_code == 400
    assert not holder.keyed.bench.upstream.received
    plain = part("model", "small") + sound + "--B--\r\n"
    assert holder.send("/v1/audio/transcriptions", plain, FORM).status_code == 200


@pytest.mark.parametrize("query", ["model=large", "beta=true&mod%65l=large", "a=1;MODEL=large", "deployment_id=large"])
@pytest.mark.parametrize(
    "path", ["/v1/chat/completions", "/v1/messages", "/v1/messages/count_tokens", "/v1/embeddings"]
)
def test_a_model_in_a_query_is_refused_beside_the_allowed_one(holder: Holder, path: str, query: str) -> None:
    """LiteLLM's proxy takes it before the body's."""
    body = {"model": "small", "messages": MESSAGES, "max_tokens": 5, "input": "x"}
    assert holder.json(f"{path}?{query}", **body).status_code == 403
    assert not holder.keyed.bench.upstream.received
    if "count" not in path:
        assert holder.json(f"{path}?beta=true", **body).status_code == 200


def test_headers_in_which_gateways_choose_a_model_do_not_go_on(holder: Holder) -> None:
    """Those of SDKs do; a key without models sends all."""
    http, body = holder.keyed.operator.http, {"model": "small", "messages": MESSAGES}
    lines = {"x-portkey-config": "other", "anthropic-beta": "b", "x-stainless-os": "Linux", "x-my-router": "large"}
    free = holder.keyed.create("free")["key"]
    for key, names in ((holder.key, {"anthropic-beta", "x-stainless-os"}), (free, set(lines))):
        headers = {"authorization": f"Bearer {key}", **lines}
        assert http.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
        assert set(holder.keyed.sent()[-1]) & set(lines) == names


def test_two_content_types_are_refused(holder: Holder) -> None:
    """Two servers would read two forms."""
    lines = [("authorization", f"Bearer {holder.key}"), ("content-type", FORM), ("content-type", FORM[:-1] + "C")]
    form = SOUND + part("model", "small") + "--B--\r\n"
    http = holder.keyed.operator.http
    refused = http.post("/v1/audio/transcriptions", content=form.encode(), headers=lines)
    assert code(refused) == (403, "model_not_allowed")


def test_no_summary_of_another_model_is_made(holder: Holder) -> None:
    """Neither offline, nor of a conversation that another key of the tenant had with that model."""
    tenant = holder.keyed.ask("GET", "").json()["data"][0]["tenant"]
    other = holder.keyed.create("other", tenant=tenant)["key"]
    talk = holder.keyed.client(other).chat(history(9), model="large", conversation="talk")
    assert talk.status_code == 200
    holder.keyed.bench.upstream.received.clear()
    request = {"model": "large", "messages": history(9)}
    assert code(holder.json("/tidemark/compact", request=request, strategy="llm")) == (403, "model_not_allowed")
    for body in ({}, {"model": "large"}):
        refused = holder.json("/tidemark/conversations/talk/summarize", **body)
        assert code(refused) == (403, "model_not_allowed"), refused.text
    assert code(holder.json("/v1/responses/compact", model="large", input="x")) == (403, "model_not_allowed")
    assert not holder.keyed.bench.upstream.received


def test_a_response_of_another_model_is_gone_on_from_with_the_allowed_one(holder: Holder) -> None:
    """It is the tenant's own; what is asked is the allowed model."""
    tenant = holder.keyed.ask("GET", "").json()["data"][0]["tenant"]
    other = Holder(holder.keyed, holder.keyed.create("other", tenant=tenant)["key"])
    first = other.json("/v1/responses", model="large", input="Hello.").json()["id"]
    assert holder.json("/v1/responses", model="small", input="And?", previous_response_id=first).status_code == 200
    refused = holder.json("/v1/responses", model="large", input="And?", previous_response_id=first)
    assert code(refused) == (403, "model_not_allowed")
