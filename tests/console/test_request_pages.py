"""Pages of requests: the log by role, and both forms of a request as far as what is stored shows them."""

from __future__ import annotations

import re
from collections.abc import Callable

import httpx
import pytest

from tests.console.conftest import TOKEN, Console
from tests.request.talk import history, system, user
from tests.support.scripted import Answer, Received, refuses, says
from tests.support.strict_templates import alternates
from tidemark.console.requests import parts_of
from tidemark.console.troubles import troubles
from tidemark.console.visit import PARTS_HEADER
from tidemark.features.conversations.pages import ContextSnapshot, RequestForms

AUDITOR, LOG = "a" * 40, "/console/requests"
ADMIN = {"authorization": f"Bearer {TOKEN}"}


def rows(page: str) -> list[str]:
    """The words of each row of the list."""
    found = re.findall(r'<tr id="request-[^"]+" data-live.*?</tr>', page, re.DOTALL)
    return [re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", row)).strip() for row in found]


def addresses(page: str) -> list[str]:
    """The addresses of the requests that a page lists."""
    return list(dict.fromkeys(re.findall(rf'href="({LOG}/[^"]+)"', page)))


def audited(console: Console) -> list[str]:
    """What the audit log says that the operator has done."""
    entries = httpx.get(f"{console.url}/tidemark/audit", headers=ADMIN).json()["data"]
    return [f"{entry['action']} {entry['subject']}".strip() for entry in reversed(entries)]


def test_the_log_shows_what_became_of_each_request(console: Console) -> None:
    """With the name of its conversation, tokens before and after, and why it was refused."""
    client, visitor = console.client(), console.visitor()
    client.chat([user("Hello.")], conversation="Invoices")
    client.chat(history(12), summarize="force")
    client.chat([user("x")], model="nowhere")
    page = visitor.get(LOG).text
    refused, forced, whole = rows(page)
    assert "Refused by Tidemark model_not_found" in refused
    assert refused.endswith("404")
    assert re.search(r"Compacted on request .* → ", forced)
    assert "Invoices small python-httpx" in whole
    assert "Forwarded as it came" in whole
    assert len(rows(visitor.get(f"{LOG}?kind=forced&status=2xx").text)) == 1
    assert "No request has these values" in visitor.get(f"{LOG}?warnings=true&model=other").text
    assert visitor.get(f"{LOG}?kind=nothing").status_code == 400


def test_an_entry_shows_both_forms(console: Console) -> None:
    """What a summary stands for on the left, the summary on the right; what is the same is folded."""
    client, visitor = console.client(), console.visitor()
    answer = client.chat(history(12), summarize="force", conversation="Invoices")
    console.settle()
    (address,) = addresses(visitor.get(LOG).text)
    page = visitor.get(address).text
    count = int(answer.headers["x-tidemark-summarized-messages"])
    assert f"{count} messages left out" in page
    assert "1 message in their place" in page
    assert "Summary of earlier turns" in page.partition('class="added"')[2]
    assert f"Sent by the client: {len(history(12))} messages" in page
    assert "the same on both sides" in page
    assert f"conversation.read {answer.headers['x-tidemark-conversation']}" in audited(console)


@pytest.mark.parametrize("script", [alternates, says("Noted.")], ids=["strict", "lenient"])
def test_an_entry_says_that_its_summary_went_in_the_users_turn(
    console: Console, script: Callable[[Received], Answer]
) -> None:
    """Whether its server refuses a second system message is seen once it was asked; no other entry says so."""
    console.upstream.script = script
    client, visitor = console.client(), console.visitor()
    client.chat([system("Be brief."), *history(6)])
    client.chat([system("Be brief."), *history(12)], summarize="force")
    console.settle()
    pages = [visitor.get(address).text for address in addresses(visitor.get(LOG).text)]
    said = ["sent in the user's turn, since the server's chat template" in page for page in pages]
    assert said == [script is alternates, False]
    roles = [message["role"] for message in console.upstream.received[-1].json["messages"]]
    assert roles.count("system") == (1 if script is alternates else 2)


def test_a_later_request_does_not_change_what_an_earlier_one_shows(console: Console) -> None:
    """Each is shown with the messages that it had, and before its conversation was compacted without a summary."""
    client, visitor = console.client(), console.visitor()
    said = history(6)
    client.chat(said, conversation="Invoices")
    client.chat([*said, *history(2)], summarize="force", conversation="Invoices")
    console.settle()
    _, first = addresses(visitor.get(LOG).text)
    page = visitor.get(first).text
    assert f"Forwarded: {len(said)} messages" in page
    assert "left out" not in page


def test_an_entry_says_that_its_messages_are_gone(console: Console) -> None:
    """Once the conversation is forgotten, or another request has taken its place; the figures stay."""
    client, visitor = console.client(), console.visitor()
    answer = client.chat(history(6), conversation="Invoices")
    client.chat([user("x")], model="nowhere")
    console.settle()
    refused, address = addresses(visitor.get(LOG).text)
    assert "it was not answered" in visitor.get(refused).text
    path = f"{console.url}/tidemark/conversations/{answer.headers['x-tidemark-conversation']}"
    assert httpx.delete(path, headers=ADMIN).status_code == 200
    page = visitor.get(address).text
    assert "no longer stored" in page
    assert "Forwarded as it came" in page
    client.chat([user("Something else.")], conversation="Invoices")
    console.settle()
    assert "no longer stored" in visitor.get(address).text
    assert "Invoices" not in visitor.get(address).text
    assert visitor.get(f"{LOG}/1-1-1").status_code == 404


def test_of_a_request_that_was_not_to_be_stored_there_are_figures_only(console: Console) -> None:
    """``X-Tidemark-Keep: none`` means the log too."""
    visitor = console.visitor()
    answer = console.client().chat([user("Hello.")], keep="none")
    page = visitor.get(LOG).text
    assert answer.headers["x-tidemark-conversation"][:12] not in page
    assert "nothing was to be stored" in visitor.get(addresses(page)[0]).text


def test_a_tenant_sees_its_own_requests_and_no_other(console: Console) -> None:
    """In the list and by an address."""
    console.client("mine").chat([user("Hello.")], conversation="Invoices")
    console.client("theirs").chat([user("Hello.")], conversation="Secrets")
    console.settle()
    theirs, own = addresses(console.visitor().get(LOG).text)
    tenant = console.visitor(signed_in=False)
    assert tenant.http.post("/console/login", data={"token": "mine"}).status_code == 303
    page = tenant.get(LOG).text
    assert addresses(page) == [own]
    assert "Invoices" in page
    assert "Secrets" not in page
    assert tenant.get(theirs).status_code == 404
    assert "Hello." in tenant.get(own).text


def test_an_auditor_sees_figures_and_no_name(start_console: Callable[..., Console]) -> None:
    """Neither in the list nor of one request, whose reading is then no reading of a conversation."""
    console = start_console(auditor=AUDITOR)
    console.client().chat([user("zanzibar marmalade")], conversation="Invoices")
    console.settle()
    auditor = console.visitor(signed_in=False)
    assert auditor.http.post("/console/login", data={"token": AUDITOR}).status_code == 303
    page = auditor.get(LOG).text
    (address,) = addresses(page)
    texts = page + auditor.get(address).text + auditor.get("/console").text
    assert "An auditor sees figures" in texts
    assert not [word for word in ("Invoices", "zanzibar", "marmalade") if word in texts]
    assert "conversation.read" not in " ".join(audited(console))


def test_an_open_list_gets_new_rows_only(console: Console) -> None:
    """A row that the visitor shows is not sent again; an older page does not change."""
    client, visitor = console.client(), console.visitor()
    client.chat([user("Hello.")])
    page = visitor.get(LOG).text
    marks = dict(re.findall(r'id="([\w-]+)" data-live="(\w+)"', page))
    client.chat([user("And now?")])
    shown = ",".join(f"{name}={mark}" for name, mark in marks.items())
    changed = visitor.http.get(LOG, headers={PARTS_HEADER: shown}).text
    assert len(rows(changed)) == 1
    assert changed.count("data-same") == 1
    assert 'data-events="/console/requests?"' in page


def test_the_parts_of_both_forms_are_aligned() -> None:
    """By what is equal, however much else differs."""

    def form(*texts: str) -> tuple[bytes, ...]:
        return tuple(b'{"role": "user", "content": "%s"}' % text.encode() for text in texts)

    def parts(asked: tuple[bytes, ...], forwarded: tuple[bytes, ...]) -> list[tuple[bool, int, int]]:
        snapshot = ContextSnapshot("", 1, exact=True, model="", messages=forwarded, summarized_messages=0)
        return [
            (part.is_same, part.client_count, part.forwarded_count) for part in parts_of(RequestForms(asked, snapshot))
        ]

    assert parts(form("a", "b", "c", "d"), form("a", "S", "d")) == [(True, 1, 1), (False, 2, 1), (True, 1, 1)]
    assert parts(form("a", "a"), form("a")) == [(True, 1, 1), (False, 1, 0)]
    inner = parts(form("a", "b", "k", "c", "d"), form("S", "k", "C", "d"))
    assert inner == [(False, 2, 1), (True, 1, 1), (False, 1, 1), (True, 1, 1)]
    assert parts(form(*map(str, range(2000))), form(*(f"x{number}" for number in range(1000)))) == [(False, 2000, 1000)]


def test_the_first_page_says_what_to_export(console: Console) -> None:
    """With the address that the browser has, until something is stored."""
    visitor = console.visitor()
    page = visitor.get("/console").text
    assert f"OPENAI_BASE_URL={console.url}/v1" in page
    assert f"ANTHROPIC_BASE_URL={console.url}\n" in page or f"ANTHROPIC_BASE_URL={console.url}<" in page
    behind_tls = visitor.http.get("/console", headers={"x-forwarded-proto": "https"}).text
    assert f"OPENAI_BASE_URL={console.url.replace('http:', 'https:')}/v1" in behind_tls
    assert "No request has come yet" in visitor.get(LOG).text
    console.client().chat([user("x")], model="nowhere")
    assert "OPENAI_BASE_URL" not in visitor.get("/console").text


def test_the_overview_lists_the_last_compactions(console: Console) -> None:
    """Each leads to its request; other requests are not among them."""
    client, visitor = console.client(), console.visitor()
    client.chat([user("Hello.")], conversation="Short")
    client.chat(history(12), summarize="force", conversation="Invoices")
    page = visitor.get("/console").text
    (address,) = addresses(page)
    assert ">Invoices</a>" in page
    assert "Short" not in page
    assert "left out" in visitor.get(address).text


def without_a_summarizer(request: Received) -> Answer:
    """Answer as a model, but refuse to write a summary."""
    is_summarizer = "You summarize" in str(request.messages[0]["content"])
    return refuses(500, "It is away.")(request) if is_summarizer else says("Yes.")(request)


@pytest.mark.parametrize("path", ["/console", LOG, "/console/models", "/console/settings", "/console/audit"])
def test_every_page_says_that_a_summarizer_rests(start_console: Callable[..., Console], path: str) -> None:
    """After three failures in a row, and what to do; a tenant is not told."""
    console = start_console(strategy="llm")
    visitor = console.visitor()
    assert "rests" not in visitor.get(path).text
    console.upstream.script = without_a_summarizer
    for number in range(3):
        console.client().chat(history(12), summarize="force", conversation=f"talk-{number}")
    assert "A summarizer rests, because it failed three times in a row." in visitor.get(path).text
    tenant = console.visitor(signed_in=False)
    assert tenant.http.post("/console/login", data={"token": "key"}).status_code == 303
    assert "A summarizer rests" not in tenant.get("/console").text


def test_the_banner_says_what_to_do() -> None:
    """One trouble is enough while the store is away: the others follow from it, or are not known."""
    assert troubles(is_store_well=True, resting=0, eviction="", replacement="") == ()
    (away,) = troubles(is_store_well=False, resting=2, eviction="x. y", replacement="")
    assert "tidemark doctor" in away.then
    two = troubles(
        is_store_well=True, resting=2, eviction="It may lose some. Set it.", replacement="It is new. Restore."
    )
    assert [trouble.what for trouble in two] == [
        "2 summarizers rest, because each failed three times in a row.",
        "It may lose some.",
        "It is new.",
    ]
    assert [trouble.then for trouble in two[1:]] == ["Set it.", "Restore."]
