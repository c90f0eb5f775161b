"""The tokens of operators and auditors go to no provider, whatever a client takes them for."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.console.conftest import Console, consoled
from tests.support.serving import NO_TLS
from tidemark.core.errors import InvalidApiKey
from tidemark.server.auth import PassthroughAuth
from tidemark.server.own_tokens import OwnTokens

TOKEN, AUDITOR = "operators-" + "t" * 30, "auditors-" + "a" * 30
CHAT = {"model": "gpt-x", "messages": [{"role": "user", "content": "hello"}]}
BODIES = {"/v1/chat/completions": CHAT, "/v1/messages": {**CHAT, "max_tokens": 9}, "/v1/embeddings": {"input": "x"}}
BASIC = [base64.b64encode(pair.encode()).decode() for pair in (f"me:{TOKEN}", f"{AUDITOR}:")]


@pytest.fixture
def console(tmp_path: Path) -> Iterator[Console]:
    """A Tidemark with an operator and an auditor; clients have keys of the provider."""
    with ExitStack() as stack:
        yield stack.enter_context(consoled(tmp_path, token=TOKEN, auditor=AUDITOR))


@pytest.mark.parametrize(
    "header",
    [
        ("authorization", f"Bearer {TOKEN}"),
        ("authorization", f"bearer   {AUDITOR}"),
        ("authorization", TOKEN),
        ("authorization", f"Basic {BASIC[0]}"),
        ("authorization", f"basic {BASIC[1]}"),
        ("x-api-key", TOKEN),
        ("X-API-Key", AUDITOR),
        ("api-key", TOKEN),
        ("x-goog-api-key", TOKEN),
        ("ocp-apim-subscription-key", AUDITOR),
        ("x-litellm-key", f"Bearer {TOKEN}"),
    ],
)
def test_a_token_in_the_place_of_a_key_reaches_no_upstream(console: Console, header: tuple[str, str]) -> None:
    """Each dialect answers 401 in its own words, which say what to send; beside a key of the provider, too."""
    name, value = header
    more = {} if name == "authorization" else {"authorization": "Bearer sk-of-the-provider"}
    with httpx.Client(base_url=console.url, headers={name: value, **more}, verify=NO_TLS) as http:
        answers = [http.post(path, json=body) for path, body in BODIES.items()]
        answers += [http.get(path) for path in ("/v1/models", "/v1/files", "/v1/responses/resp_1")]
        answers.append(http.post("/v1/messages/count_tokens", json=BODIES["/v1/messages"]))
    for answer in answers:
        assert answer.status_code == 401, answer.url
        assert "Tidemark's own token" in answer.json()["error"]["message"]
        assert "Send the provider's API key" in answer.json()["error"]["message"]
    assert answers[1].json()["error"]["type"] == "authentication_error"
    assert answers[0].json()["error"]["code"] == "invalid_api_key"
    assert console.upstream.received == []


@pytest.mark.parametrize("query", [f"key={TOKEN}", f"a=1&api-key=%6F{TOKEN[1:]}", f"token={AUDITOR};b"])
def test_a_token_in_a_url_reaches_no_upstream(console: Console, query: str) -> None:
    """Google's clients send keys there; the query would go on as it came."""
    with httpx.Client(base_url=console.url, headers={"authorization": "Bearer sk-1"}, verify=NO_TLS) as http:
        for path, body in BODIES.items():
            assert http.post(f"{path}?{query}", json=body).status_code == 401
        assert http.get(f"/v1/files?{query}").status_code == 401
        assert http.get("/v1/files?limit=2").status_code != 401
    assert not any(TOKEN in received.path or AUDITOR in received.path for received in console.upstream.received)


def test_the_operator_counts_compacts_and_imports_without_a_key(console: Console) -> None:
    """The token says who asks, and no upstream gets it."""
    with httpx.Client(base_url=console.url, headers={"authorization": f"Bearer {TOKEN}"}, verify=NO_TLS) as http:
        assert http.post("/tidemark/count", json=CHAT).status_code == 200
        assert http.post("/tidemark/compact", json={"request": CHAT}).status_code == 200
        imported = http.post("/tidemark/conversations/import?model=small", content=json.dumps(CHAT["messages"][0]))
        assert imported.status_code == 201
        assert http.get(f"/tidemark/conversations/{imported.json()['id']}").status_code == 200
    with httpx.Client(base_url=console.url, verify=NO_TLS) as nobody:
        assert nobody.get("/tidemark/conversations").json()["data"] == []
    assert not any(TOKEN in str(received.headers) for received in console.upstream.received)


def test_only_the_whole_token_is_refused() -> None:
    """Keys that look like it are the provider's affair; without tokens nothing is looked at."""
    auth = PassthroughAuth(b"s", own_tokens=OwnTokens([TOKEN, None]))
    for value in (TOKEN[:-1], TOKEN + "x", "", "Basic %%%", "Basic"):
        auth.caller([(b"authorization", value.encode())])
    with pytest.raises(InvalidApiKey):
        auth.caller([(b"authorization", TOKEN.encode())])
    OwnTokens().refuse([TOKEN.encode()])
    assert TOKEN not in repr(OwnTokens([TOKEN]))
