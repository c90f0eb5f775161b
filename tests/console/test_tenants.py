"""Tenants that sign in to the console with their keys see, change and forget what is theirs, and nothing else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.console.conftest import TOKEN, Console, Visitor, consoled, paths
from tests.request.talk import assistant, history, user
from tests.support.serving import NO_TLS
from tidemark.console import sessions
from tidemark.console.sessions import COOKIE
from tidemark.console.visit import PARTS_HEADER

OWN_KEY, FOREIGN_KEY = "key-of-ours", "key-of-theirs"
OWN_WORDS, FOREIGN_WORDS = "zanzibar marmalade", "quicksilver lighthouse"
NAME = "periwinkle ledger"
FOREIGN = (*FOREIGN_WORDS.split(), *NAME.split())
"""Words of the other tenant, which no page of ours may have."""


class Tenants:
    """Two tenants of one console, with a conversation each."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.own = self._talk(OWN_KEY, OWN_WORDS, "ours")
        self.foreign = self._talk(FOREIGN_KEY, FOREIGN_WORDS, NAME)
        console.settle()
        self.visitor = self.signed_in(OWN_KEY)
        self.before = self.exported()

    def _talk(self, key: str, words: str, name: str) -> str:
        client = self.console.client(key)
        said = [*history(3), user(f"Remember {words}."), assistant(f"I noted {words}."), user("What now?")]
        return client.chat(said, conversation=name).headers["x-tidemark-conversation"]

    def signed_in(self, key: str) -> Visitor:
        """A browser whose visitor has given a key."""
        visitor = self.console.visitor(signed_in=False)
        assert visitor.http.post("/console/login", data={"token": key}).status_code == 303
        return visitor

    def exported(self) -> tuple[bytes, bytes]:
        """The other tenant's conversation with its summaries, as its own program sees it."""
        own = {"authorization": f"Bearer {FOREIGN_KEY}"}
        path = f"{self.console.url}/tidemark/conversations/{self.foreign}"
        exported = httpx.get(f"{path}/export", headers=own, verify=NO_TLS)
        assert exported.status_code == 200
        return exported.content, httpx.get(f"{path}/summaries", headers=own, verify=NO_TLS).content


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tenants]:
    """One console for all cases."""
    with consoled(tmp_path_factory.mktemp("tenants")) as console:
        yield Tenants(console)


@st.composite
def operations(draw: st.DrawFn, ways: list[tuple[str, str]]) -> tuple[str, str, str, dict[str, str], bool]:
    """A route, what stands in the place of the id, the query, the form, and whether only parts are asked for."""
    method, path = draw(st.sampled_from(ways))
    place = draw(st.sampled_from(["foreign", "own", "name", "half", "mixed", "nonsense"]))
    query = draw(
        st.sampled_from(["", "?cursor=WzFd", "?left=1&right=2", "?done=summarized", "?model=small&state=whole"])
    )
    names = (
        "words",
        "retention",
        "text",
        "version",
        "preview",
        "model",
        "strategy",
        "template",
        "cursor",
        "id",
        "setting",
    )
    values = st.sampled_from(["", "0", *FOREIGN, NAME, OWN_WORDS, "small", "extractive", "foreign-id", "x"])
    fields = draw(st.dictionaries(st.sampled_from(names), values, max_size=4))
    return method, path, f"{place}{query}", fields, draw(st.booleans())


def test_nothing_of_another_tenant_is_seen_or_changed(tenants: Tenants) -> None:
    """By any route, with any id that can be guessed, in any order."""
    app = tenants.console
    ways = [
        (method, path)
        for method in ("GET", "POST")
        for path in paths(app, method, tenants=True)
        if "log" not in path.split("/")[-1]
    ]
    assert len(ways) > 15
    page = tenants.visitor.get("/console").text
    (token,) = re.findall(r'name="csrf" content="(\w+)"', page)
    own, foreign = tenants.own, tenants.foreign
    ids = {"foreign": foreign, "own": own, "name": NAME, "nonsense": "0" * 48}
    ids |= {"half": foreign[:32] + own[32:], "mixed": own[:32] + foreign[32:]}

    @settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(operations(ways), min_size=1, max_size=6))
    def walk(steps: list[tuple[str, str, str, dict[str, str], bool]]) -> None:
        for method, path, place, fields, only_parts in steps:
            name, _, query = place.partition("?")
            if method == "POST" and (path.endswith("/own/erase") or (path.endswith("/forget") and name == "own")):
                continue  # the next case needs it
            address = path.replace("{id}", ids[name]) + (f"?{query}" if query else "")
            headers = {PARTS_HEADER: "messages=,facts=,rows=,found="} if only_parts else {}
            sent = {key: foreign if value == "foreign-id" else value for key, value in fields.items()}
            form = {"csrf": token, **sent} if method == "POST" else None
            answer = tenants.visitor.http.request(method, address, data=form, headers=headers)
            entered = " ".join([*sent.values(), ids[name]])
            shown = {word for word in FOREIGN if word in answer.text and word not in entered}
            assert not shown, (method, address, shown)
            if name != "own" and "{id}" in path:
                assert answer.status_code in (400, 403, 404), (method, address, answer.status_code)

    walk()
    assert tenants.exported() == tenants.before


def test_a_tenant_reads_summarizes_exports_and_forgets_what_is_its_own(tenants: Tenants) -> None:
    """The list has it alone; an overview has its own figures; a summary needs no key, as none is at hand."""
    other = tenants.console.client("a-third-key")
    identifier = other.chat([*history(6), user("sapphire")]).headers["x-tidemark-conversation"]
    tenants.console.settle()
    visitor = tenants.signed_in("a-third-key")
    listed = re.findall(r'href="/console/conversations/(\w{48})#newest"', visitor.get("/console/conversations").text)
    assert listed == [identifier]
    page = f"/console/conversations/{identifier}"
    assert "sapphire" in visitor.get(page).text
    assert "Your conversations" in visitor.get("/console").text
    assert "Added latency" not in visitor.get("/console").text
    assert visitor.send(f"{page}/summarize", page, retention="0").headers["location"].endswith("done=summarized")
    assert "sapphire" in visitor.get(f"{page}/export").text
    assert visitor.send(f"{page}/forget", page).status_code == 303
    assert visitor.get(page).status_code == 404
    for path in ("/console/models", "/console/settings", "/console/audit"):
        assert visitor.get(path).status_code == 403


def test_live_events_are_the_tenants_own(tenants: Tenants) -> None:
    """The stream of a page hears of no other conversation."""
    import threading

    heard: list[str] = []
    visitor = tenants.signed_in(OWN_KEY)
    with visitor.http.stream("GET", "/console/events") as stream:
        lines = stream.iter_lines()
        next(lines)
        tenants.console.client(FOREIGN_KEY).chat([user("Hello there.")])
        tenants.console.client(OWN_KEY).chat([user("Hello here.")])
        until = threading.Timer(20, stream.close)
        until.start()
        for line in lines:
            heard.append(line)
            if line.startswith("data:"):
                break
        until.cancel()
    own = {"authorization": f"Bearer {OWN_KEY}"}
    listed = httpx.get(f"{tenants.console.url}/tidemark/conversations", headers=own, verify=NO_TLS).json()["data"]
    (data,) = [line for line in heard if line.startswith("data:")]
    assert any(entry["id"] in data for entry in listed)


def test_a_made_up_key_is_a_wrong_one(tenants: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    """So it fills neither the store nor the audit log, and is answered as slowly as a wrong token."""
    monkeypatch.setattr(sessions, "WRONG_TOKEN_SECONDS", 0.0)
    http = tenants.console.visitor(signed_in=False).http
    for key in ("made-up", "", " ", "two words", "x" * 5000, "n\u00e9e", "line\nbreak"):
        answer = http.post("/console/login", data={"token": key})
        assert answer.status_code in (400, 401), key
        assert COOKIE not in http.cookies


def test_the_cookie_has_no_key(tenants: Tenants) -> None:
    """Nor has any page."""
    import base64

    visitor = tenants.signed_in(OWN_KEY)
    assert OWN_KEY.encode() not in base64.urlsafe_b64decode(visitor.http.cookies[COOKIE])
    assert OWN_KEY not in visitor.get("/console/conversations").text


def test_a_store_that_is_away_is_no_wrong_key(tmp_path: Path) -> None:
    """Nobody is told that a key is wrong which could not be looked for; tokens work."""
    with consoled(tmp_path) as console:
        console.client(OWN_KEY).chat([user("Hello.")])
        console.settle()
        console.store.stop()
        http = console.visitor(signed_in=False).http
        assert http.post("/console/login", data={"token": OWN_KEY}).status_code == 503
        assert http.post("/console/login", data={"token": TOKEN}).status_code == 303


def test_pages_of_a_tenant_say_that_the_store_is_away(tmp_path: Path) -> None:
    """An export is none then, and no file that ends early; nothing is erased."""
    with consoled(tmp_path) as console:
        console.client(OWN_KEY).chat([user("Hello.")])
        console.settle()
        visitor = console.visitor(signed_in=False)
        assert visitor.http.post("/console/login", data={"token": OWN_KEY}).status_code == 303
        token = re.findall(r'name="csrf" content="(\w+)"', visitor.get("/console/own/erase").text)[0]
        console.store.stop()
        for form in ("html", "jsonl"):
            answer = visitor.get(f"/console/own/export?format={form}")
            assert (answer.status_code, "does not answer" in answer.text) == (503, True)
        assert visitor.http.post("/console/own/erase", data={"csrf": token}).status_code == 503
