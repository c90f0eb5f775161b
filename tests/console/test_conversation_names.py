"""What the console calls conversations, whose they are, and which of them a tenant's link shows."""

from __future__ import annotations

import base64
import random
import re
from collections.abc import Callable
from typing import Any

from tests.console.conftest import TOKEN, Console, Visitor
from tests.features.keys.conftest import KEYED
from tests.request.conftest import WINDOW
from tests.request.talk import assistant, user
from tidemark.features.conversations.openings import OPENING_BYTES

LIST = "/console/conversations"
LONG = "Write me a function that adds two numbers, with type hints, and tell me why it is short."
CUT = "Write me a function that adds two numbers, with type hints,…"


def names(text: str) -> list[str]:
    """What a page of the list calls its conversations."""
    return re.findall(r'<th scope="row"><a [^>]*>([^<]*)</a>', text)


def test_a_conversation_is_called_by_its_name_or_by_the_first_words_of_a_person(
    console: Console, visitor: Visitor
) -> None:
    """In the list and as heading; the id stands beneath. What an agent says before is no name, and a title has none."""
    client = console.client()
    client.chat([user("A named one.")], conversation="Voyage-7")
    reminder = "<system-reminder>Today is Friday.</system-reminder>"
    answer = client.chat([user(f"{reminder}\n{LONG}")])
    conversation = answer.headers["x-tidemark-conversation"]
    text = visitor.get(LIST).text
    assert names(text) == [CUT, "Voyage-7"]
    assert f'title="{LONG}"' in text
    assert f'<span class="code">{conversation[:12]}</span>' in text
    page = visitor.get(f"{LIST}/{conversation}").text
    assert f"<title>Conversation {conversation[:12]} – Tidemark</title>" in page
    assert re.search(rf'<h1 dir="auto" title="{re.escape(LONG)}">{CUT}</h1>', page)
    assert f'<span class="code line">{conversation}</span>' in page
    assert CUT in visitor.get(f"{LIST}/{conversation}/forget").text
    listed = client.http.get("/tidemark/conversations", headers=client.headers()).json()["data"]
    assert [row["name"] for row in listed] == [None, "Voyage-7"]


def test_a_conversation_without_words_is_called_by_its_id(console: Console, visitor: Visitor) -> None:
    """Only its summaries are kept, or nobody has said anything yet."""
    client = console.client()
    kept = client.post(
        {"model": "small", "messages": [user("A secret.")], "max_tokens": 100}, keep="summaries"
    ).headers["x-tidemark-conversation"]
    image = {"type": "image_url", "image_url": {"url": "https://p.example/a.png"}}
    shown = client.chat([{"role": "user", "content": [image]}]).headers["x-tidemark-conversation"]
    text = visitor.get(LIST).text
    assert names(text) == [shown[:12], kept[:12]]
    assert "A secret." not in text
    assert f'<h1 dir="auto">{kept[:12]}</h1>' in visitor.get(f"{LIST}/{kept}").text


def test_forks_have_the_first_words_of_what_they_share_and_large_messages_have_none(
    console: Console, visitor: Visitor
) -> None:
    """A picture of many bytes is not read to name a conversation; what follows it names it."""
    client = console.client()
    talk = [user("Where to?"), assistant("Hello there.")]
    for last in ("North?", "South?"):
        client.chat([*talk, user(last)])
    url = f"data:image/png;base64,{base64.b64encode(random.Random(1).randbytes(2 * OPENING_BYTES)).decode()}"
    parts = [{"type": "text", "text": "See this."}, {"type": "image_url", "image_url": {"url": url}}]
    client.chat([{"role": "user", "content": parts}, assistant("I see."), user("What is it?")])
    assert names(visitor.get(LIST).text) == ["What is it?", "Where to?", "Where to?"]


def test_first_words_are_those_that_are_stored(start_console: Callable[..., Console]) -> None:
    """What was taken out before it was stored is no name either."""
    config = WINDOW + "privacy: {{redact: {{ticket: 'RMA-[0-9]+'}}}}\n"
    console = start_console(config=config)
    console.client().chat([user("Where is RMA-70351?")])
    text = console.visitor().get(LIST).text
    assert "70351" not in text
    assert names(text) == ["Where is [ticket]?"]


def test_the_operator_sees_whose_conversations_are_and_a_link_shows_those_alone(
    console: Console, visitor: Visitor
) -> None:
    """By a short digest of the key; the tenant itself sees no such column."""
    one, other = console.client("the-first-key"), console.client("the-second-key")
    for number in range(27):
        one.chat([user(f"Question {number}")])
    other.chat([user("Another one's.")])
    text = visitor.get(LIST).text
    links = re.findall(r'href="([^"]+\?tenant=\w+)"[^>]*>(\w{8})</a>', text)
    assert len(set(links)) == 2
    own = visitor.get(links[0][0]).text
    assert names(own) == ["Another one&#39;s."]
    assert f"Those of tenant {links[0][1]}." in own
    others = visitor.get(links[1][0]).text
    assert len(names(others)) == 25
    older = re.search(r'href="([^"]+)">Older</a>', others)
    assert older is not None
    assert names(visitor.get(older[1].replace("&amp;", "&")).text) == ["Question 1", "Question 0"]
    found = visitor.send(LIST, tenant=links[1][0].rpartition("=")[2], words="question 13")
    assert names(found.text) == ["Question 13"]
    assert f"of tenant {links[1][1]}" in found.text
    assert len(names(visitor.get(f"{LIST}?tenant=all:x").text)) == 25
    tenant = console.visitor(signed_in=False)
    assert tenant.http.post("/console/login", data={"token": "the-second-key"}).status_code == 303
    for query in ("", "?tenant=" + links[1][0].rpartition("=")[2]):
        text = tenant.get(LIST + query).text
        assert names(text) == ["Another one&#39;s."]
        assert "Tenant" not in text
        assert not re.search(r'href="[^"]*tenant=', text)


def test_a_tenant_with_keys_is_called_by_its_name(start_console: Callable[..., Console]) -> None:
    """In the list and on the conversation's own page."""
    console = start_console(config=KEYED)
    http = console.visitor().http
    admin = {"authorization": f"Bearer {TOKEN}"}
    made: dict[str, Any] = http.post("/tidemark/keys", json={"name": "app", "tenant": "shop"}, headers=admin).json()
    answer = console.client(made["key"]).chat([user("Hello.")])
    assert answer.status_code == 200
    assert re.search(r'data-name="Tenant"><a [^>]*>shop</a>', console.visitor().get(LIST).text)
    page = console.visitor().get(f"{LIST}/{answer.headers['x-tidemark-conversation']}").text
    assert "<dt>Tenant</dt><dd>shop</dd>" in page


def test_times_are_told_by_how_long_ago_with_the_whole_time_beside(console: Console, visitor: Visitor) -> None:
    """Without the script, too; and an open list is not sent anew because time goes by."""
    console.client().chat([user("Hello."), assistant("Yes?"), user("Why?")])
    text = visitor.get(LIST).text
    time = r'<time datetime="[^"]+Z" title="\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC" data-form="ago">just now</time>'
    assert re.search(rf'data-name="Last used">{time}', text)
