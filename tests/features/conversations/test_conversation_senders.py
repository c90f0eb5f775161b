"""Which program sent a conversation's newest request, and in which dialect: stored, listed, filtered, and forgotten."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
import redis

from tests.features.conversations.test_archive import ask, got
from tests.features.keys.conftest import Keyed, keyed
from tests.request.compaction.test_sealed import values
from tests.request.conftest import SECRET, Bench, Client, benched
from tests.request.talk import Said, assistant, history, user
from tidemark.core.http_headers import MAX_PROGRAM_CHARACTERS
from tidemark.server.auth import PassthroughAuth
from tidemark.store.embedded.server import EmbeddedValkey

__all__ = ["keyed"]
CLAUDE = "claude-cli/2.1.197 (external, secret-build)"
KEY = "ab" * 32


@pytest.fixture
def own_bench(tmp_path: Path) -> Iterator[tuple[Bench, str]]:
    """A bench upon a store of the test's own, and the store's address."""
    with EmbeddedValkey(tmp_path / "store") as server, benched(server.url, tmp_path) as made:
        yield made, server.url


def send(
    client: Client, said: list[Said], agent: str, path: str = "chat/completions", *, stream: bool = False, **asked: str
) -> str:
    """Send messages in a dialect as a program does; the conversation's id."""
    body: dict[str, Any] = {"model": "small", "stream": stream}
    body |= {"input": said, "max_output_tokens": 50} if path == "responses" else {"messages": said, "max_tokens": 50}
    headers = client.headers(**asked) | {"user-agent": agent}
    lines = [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
    answer = client.http.post(f"/v1/{path}", content=json.dumps(body), headers=lines)
    assert answer.status_code == 200, answer.text
    return str(answer.headers["x-tidemark-conversation"])


def filtered(client: Client, query: Mapping[str, str]) -> httpx.Response:
    """A page of the list."""
    return client.http.get("/tidemark/conversations", params=query, headers=client.headers())


def all_filtered(client: Client, filters: Mapping[str, str]) -> list[str]:
    """The ids of all pages, of which each has one conversation at most."""
    found: list[str] = []
    page: Any = {"next_cursor": ""}
    while page["next_cursor"] is not None:
        place = {"cursor": page["next_cursor"]} if page["next_cursor"] else {}
        page = filtered(client, {"limit": "1", **filters, **place}).json()
        assert len(page["data"]) <= 1
        found += [entry["id"] for entry in page["data"]]
    return found


def sender(client: Client, conversation: str) -> tuple[str | None, str | None]:
    """What its entry of the list says, which its own page repeats."""
    (entry,) = [entry for entry in got(client)["data"] if entry["id"] == conversation]
    shown = got(client, f"/{conversation}")
    assert (shown["client"], shown["dialect"]) == (entry["client"], entry["dialect"])
    return entry["client"], entry["dialect"]


@pytest.mark.parametrize("sends", [send, partial(send, stream=True)], ids=["whole", "streamed"])
@pytest.mark.parametrize(
    ("path", "dialect"), [("chat/completions", "chat"), ("messages", "messages"), ("responses", "responses")]
)
def test_every_dialect_is_noted_with_its_program(
    client: Client, path: str, dialect: str, sends: Callable[..., str]
) -> None:
    """By the short name that the log of requests has, too."""
    conversation = sends(client, [user("Hello.")], CLAUDE, path)
    assert sender(client, conversation) == ("claude-cli/2.1.197", dialect)


def test_the_newest_request_counts_and_a_fork_has_its_own(client: Client) -> None:
    """Also if it comes in another dialect; a request without a program leaves none."""
    talk: list[Said] = [user("Hello.")]
    conversation = send(client, talk, CLAUDE)
    talk += [assistant("Hello there."), user("And now?")]
    assert send(client, talk, "OpenAI/Python 1.55.0", "messages") == conversation
    assert sender(client, conversation) == ("OpenAI/Python 1.55.0", "messages")
    fork = send(client, [*talk[:2], user("Otherwise?")], "curl/8.5.0")
    assert fork != conversation
    assert sender(client, fork) == ("curl/8.5.0", "chat")
    assert sender(client, conversation) == ("OpenAI/Python 1.55.0", "messages")
    send(client, [*talk, assistant("Hello there."), user("Again?")], "")
    assert sender(client, conversation) == (None, "chat")


def test_a_stored_history_and_a_compacted_one_are_noted(client: Client) -> None:
    """Each path that stores a turn does it."""
    conversation = send(client, [user("Hello.")], CLAUDE, conversation="kept", history="stored")
    assert send(client, [user("And now?")], "curl/8.5.0", conversation="kept", history="stored") == conversation
    assert sender(client, conversation) == ("curl/8.5.0", "chat")
    assert sender(client, send(client, history(12), CLAUDE, summarize="force")) == ("claude-cli/2.1.197", "chat")


def test_an_imported_conversation_has_no_sender_until_its_first_request(client: Client) -> None:
    """Nobody here sent its messages."""
    talk = [user("Hello."), assistant("Hi.")]
    content = "\n".join(map(json.dumps, talk)).encode()
    answer = ask(client, "/import", method="POST", content=content, model="small")
    assert (answer.status_code, answer.json()["client"], answer.json()["dialect"]) == (201, None, None)
    assert send(client, [*talk, user("And now?")], CLAUDE) == answer.json()["id"]
    assert sender(client, answer.json()["id"]) == ("claude-cli/2.1.197", "chat")


def test_the_rest_of_the_header_is_not_stored(own_bench: tuple[Bench, str]) -> None:
    """The name is short, and has no control character; a fork's parent that was forgotten keeps none."""
    bench, url = own_bench
    client = bench.client("key")
    talk: list[Said] = [user("Hello.")]
    conversation = send(client, talk, CLAUDE)
    long = send(client, [user("Long.")], "n" * 300)
    evil = send(client, [user("Evil.")], "evil\x9b31m/1.0")
    assert sender(client, long)[0] == "n" * MAX_PROGRAM_CHARACTERS
    assert sender(client, evil)[0] == "evil"
    send(client, [*talk, assistant("Hello there."), user("More?")], CLAUDE)
    send(client, [*talk, assistant("Hello there."), user("Otherwise?")], CLAUDE)
    bench.settle()
    with redis.Redis.from_url(url) as admin:
        assert not [place for place, value in values(admin) if b"secret-build" in value or b"n" * 101 in value]
        (record,) = [
            name
            for name in admin.scan_iter("*:c:*")
            if admin.hget(name, "parent") == b"" and name.endswith(conversation[32:].encode())
        ]
        assert admin.hget(record, "sender") == b"chat claude-cli/2.1.197"
        assert ask(client, f"/{conversation}", method="DELETE").status_code == 200
        assert admin.hget(record, "stem") == b"1"
        assert not admin.hexists(record, "sender")


def test_a_master_key_seals_it(own_bench: tuple[Bench, str]) -> None:
    """As it does the model's name, and both are read back."""
    bench, url = own_bench
    client = bench.client("key", environ={"TIDEMARK_ENCRYPTION_KEY": KEY, "TIDEMARK_KEYS_URL": "folder"})
    talk: list[Said] = [user("Hello.")]
    conversation = send(client, talk, "walrus/2.1 (x)")
    send(client, [*talk, assistant("Hello there."), user("More?")], "walrus/2.2 (x)")
    assert sender(client, conversation) == ("walrus/2.2", "chat")
    bench.settle()
    with redis.Redis.from_url(url) as admin:
        assert not [place for place, value in values(admin) if b"walrus" in value]


def test_a_record_of_an_earlier_version_has_none(own_bench: tuple[Bench, str]) -> None:
    """It is listed, and no filter finds it."""
    bench, url = own_bench
    client = bench.client("key")
    conversation = send(client, [user("Hello.")], CLAUDE)
    with redis.Redis.from_url(url) as admin:
        for name in admin.scan_iter("*:c:*"):
            admin.hdel(name, "sender")
    assert sender(client, conversation) == (None, None)
    assert all_filtered(client, {"client": "claude"}) == all_filtered(client, {"dialect": "chat"}) == []


def test_the_list_is_filtered(client: Client) -> None:
    """By the beginning of the program's name in any case, by the dialect, and by both, page by page."""
    sent = {
        send(client, [user(f"Question {number}")], agent, path): (agent, path)
        for number, (agent, path) in enumerate(
            [(CLAUDE, "messages"), (CLAUDE, "chat/completions"), ("curl/8.5.0", "messages")] * 2
        )
    }
    asked: dict[tuple[str, str], set[tuple[str, str]]] = {
        ("Claude", ""): {(CLAUDE, "messages"), (CLAUDE, "chat/completions")},
        ("claude-cli/2.1", "messages"): {(CLAUDE, "messages")},
        ("", "messages"): {(CLAUDE, "messages"), ("curl/8.5.0", "messages")},
        ("cli", ""): set(),
        ("", "responses"): set(),
    }
    for (program, dialect), wanted in asked.items():
        named = {name: value for name, value in (("client", program), ("dialect", dialect)) if value}
        found = all_filtered(client, named)
        assert found == [name for name in reversed(sent) if sent[name] in wanted]
        body = json.dumps(named).encode()
        assert [entry["id"] for entry in ask(client, "/search", method="POST", content=body).json()["data"]] == found


@pytest.mark.parametrize("query", [{"dialect": "nonsense"}, {"client": "c", "cursor": "nonsense"}])
def test_a_filter_of_nonsense_is_refused(client: Client, query: dict[str, str]) -> None:
    """With the values that there are."""
    answer = filtered(client, query)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == [*query][-1]


def test_a_client_with_a_key_of_ours_is_noted(keyed: Keyed) -> None:
    """Also one that may ask some models only, and whose other headers go nowhere."""
    for name, bounds in (("free", {}), ("bounded", {"models": ["small"]})):
        client = keyed.client(keyed.create(name, tenant=name, **bounds)["key"])
        assert sender(client, send(client, [user("Hello.")], CLAUDE)) == ("claude-cli/2.1.197", "chat")


@pytest.mark.parametrize("name", [b"user-agent", b"User-Agent"])
def test_a_program_is_known_whatever_the_case_of_its_header(name: bytes) -> None:
    """And whichever other headers are for one hop only."""
    auth = PassthroughAuth(SECRET)
    for others in ([], [(b"connection", b"x-own"), (b"x-own", b"1")]):
        assert auth.caller([*others, (name, CLAUDE.encode())]).program == "claude-cli/2.1.197"
    assert auth.caller([(b"accept", b"*/*")]).program == ""
