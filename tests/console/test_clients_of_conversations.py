"""The list of conversations says which program sent the newest request in which dialect, and is filtered by both."""

from __future__ import annotations

import re

from tests.console.conftest import Visitor
from tests.console.test_conversation_pages import link, listed
from tests.request.conftest import Client
from tests.request.talk import user

LIST = "/console/conversations"


def address(client: Client, text: str, agent: str, path: str = "chat/completions") -> str:
    """Send a question as a program does, and return the address of its page."""
    body = {"model": "small", "messages": [user(text)], "max_tokens": 50}
    headers = [(name.encode(), value.encode("latin-1")) for name, value in client.headers().items()]
    answer = client.http.post(
        f"/v1/{path}", json=body, headers=[*headers[:1], (b"user-agent", agent.encode("latin-1"))]
    )
    assert answer.status_code == 200, answer.text
    return f"{LIST}/{answer.headers['x-tidemark-conversation']}"


def test_a_row_and_a_page_say_who_sent_the_newest_request(visitor: Visitor, client: Client) -> None:
    """And nothing else of the header."""
    page = address(client, "Hello.", "claude-cli/2.1.197 (secret-build)", "messages")
    row = visitor.get(LIST).text.partition("<tbody")[2]
    assert re.search(r'data-name="Client"><span[^>]*>claude-cli/2.1.197</span><span class="hint">Messages</span>', row)
    shown = visitor.get(page).text
    assert "<dt>Client</dt><dd>claude-cli/2.1.197, Messages</dd>" in shown
    assert "secret-build" not in row + shown


def test_the_list_is_filtered_by_its_form(visitor: Visitor, client: Client) -> None:
    """The filters are in the address, stay from page to page, and are offered by name."""
    pages = [address(client, f"Question {number}", "claude-cli/2.1.197", "messages") for number in range(27)]
    other = address(client, "Question", "curl/8.5.0")
    text = visitor.get(LIST).text
    assert re.findall(r'<datalist id="clients">(.*?)</datalist>', text) == [
        '<option value="claude-cli"></option><option value="curl"></option>'
    ]
    sent = visitor.send(LIST, client=" Claude-CLI ", dialect="messages")
    assert (sent.status_code, sent.headers["location"]) == (303, f"{LIST}?client=Claude-CLI&dialect=messages")
    first = visitor.get(sent.headers["location"]).text
    assert listed(first) == pages[:1:-1]
    assert 'value="Claude-CLI"' in first
    assert '<option value="messages" selected>Messages</option>' in first
    second = visitor.get(link(first, "Older") or "").text
    assert listed(second) == pages[1::-1]
    assert listed(visitor.get(f"{LIST}?dialect=chat").text) == [other]
    assert listed(visitor.get(f"{LIST}?client=wget").text) == []
    found = visitor.send(LIST, client="curl", words="question")
    assert listed(found.text) == [other]
    assert visitor.get(f"{LIST}?dialect=nonsense").status_code == 400


def test_a_program_and_a_filter_are_only_ever_text(visitor: Visitor, client: Client) -> None:
    """Markup and terminal escapes; a program's name ends at a control character."""
    address(client, "Hello.", "<img/src=x>\x9b31m (x)")
    text = visitor.get(f"{LIST}?client=%3Cimg%1B").text + visitor.get(LIST).text
    assert "<img/src" not in text
    assert not {"\x9b", "\x1b"} & {*text}
    assert "&lt;img/src=x&gt;</span>" in text
