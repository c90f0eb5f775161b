"""The three views of a conversation: what its model sees, its whole history, its summaries."""

from __future__ import annotations

import json
import re

from tests.console.conftest import Visitor
from tests.console.test_live_parts import marks, renewed
from tests.request.conftest import Client
from tests.request.talk import Said, assistant, history, user
from tidemark.console.messages import RECENT

LIST = "/console/conversations"


def address(client: Client, talk: list[Said], **asked: str) -> str:
    """Send a talk, and return the address of its page."""
    return f"{LIST}/{client.chat(talk, **asked).headers['x-tidemark-conversation']}"


def positions(text: str) -> list[int]:
    """The messages on a page."""
    return [int(position) for position in re.findall(r'id="message-(\d+)"', text)]


def test_what_the_model_sees_is_the_summary_and_the_messages_after_it(visitor: Visitor, client: Client) -> None:
    """It is the first view; an address of nonsense leads there, too."""
    page = address(client, history(12), summarize="force")
    for query in ("", "?view=", "?view=nonsense"):
        text = visitor.get(page + query).text
        covered = int(re.findall(r'aria-label="Summary of (\d+) messages"', text)[0])
        assert positions(text) == list(range(covered + 1, 26))
        assert text.index("Summary of") < text.index('id="message-')
        assert 'data-state="summarized"' not in text
        assert re.findall(r'aria-current="page">(What[^<]*)', text) == ["What the model sees"]


def test_what_the_model_sees_begins_near_the_newest_message(visitor: Visitor, client: Client) -> None:
    """All others in context are a click away."""
    lines = [json.dumps((user if number % 2 == 0 else assistant)(f"Line {number}")) for number in range(100)]
    stored = client.http.post(
        "/tidemark/conversations/import?model=small", content="\n".join(lines), headers=client.headers()
    ).json()
    text = visitor.get(f"{LIST}/{stored['id']}").text
    assert positions(text) == list(range(101 - RECENT, 101))
    assert f"{100 - RECENT} more before these." in text
    whole = re.search(r'href="([^"]+)">Show all in context', text)
    assert whole is not None
    text = visitor.get(whole[1]).text
    assert positions(text) == list(range(1, 101))
    assert "more before these" not in text


def test_an_open_view_of_the_context_keeps_its_beginning_and_loses_what_is_summarized(
    visitor: Visitor, client: Client
) -> None:
    """A new message is sent alone; with a summary come the messages that stay."""
    talk = history(8)
    page = address(client, talk)
    first = visitor.get(page)
    events = re.findall(r'data-events="([^"]+)"', first.text)[0].replace("&amp;", "&")
    known = marks(first)
    assert renewed(visitor, events, known).content == b""
    client.chat([*talk, assistant("Hello there."), user("And now?")])
    answer = renewed(visitor, events, known)
    assert marks(answer).keys() == {"facts", "messages"}
    assert positions(answer.text) == [18, 19]
    known |= marks(answer)
    assert visitor.send(f"{page}/summarize", page, retention="100").status_code == 303
    answer = renewed(visitor, events, known)
    assert marks(answer).keys() == {"facts", "tools", "standing", "messages"}
    covered = int(re.findall(r'data-covered="(\d+)"', answer.text)[0])
    assert positions(answer.text) == list(range(covered + 1, 20))
    assert "data-more" not in answer.text
    assert "data-after" not in answer.text
    events = re.findall(r'data-events="([^"]+)"', answer.text)[0].replace("&amp;", "&")
    known |= marks(answer)
    assert renewed(visitor, events, known).content == b""


def test_an_open_view_of_the_summaries_gets_a_new_one(visitor: Visitor, client: Client) -> None:
    """And none of the messages."""
    page = address(client, history(8))
    view = f"{page}?view=summaries"
    text = visitor.get(view).text
    assert "No summary is in use" in text
    assert positions(text) == []
    known = marks(visitor.get(view))
    assert visitor.send(f"{page}/summarize", page, retention="100").status_code == 303
    answer = renewed(visitor, view, known)
    assert marks(answer).keys() == {"facts", "tools", "earlier-texts"}
    assert "Summary of" in answer.text


def test_summarized_messages_are_folded_in_the_whole_history(visitor: Visitor, client: Client) -> None:
    """With their first words outside; those in context are open."""
    text = visitor.get(f"{address(client, history(12), summarize='force')}?view=history").text
    items = re.findall(r'<li class="message" data-state="(\w+)".*?</li>', text, re.DOTALL)
    folded = re.findall(
        r'<details class="fold"><summary>.*?<span class="glimpse" dir="auto">Point \d+', text, re.DOTALL
    )
    assert len(items) == 25
    assert len(folded) == items.count("summarized") > 0


def test_texts_keep_their_direction_and_code_is_set_apart(visitor: Visitor, client: Client) -> None:
    """Nothing of a block is taken for markup."""
    text = visitor.get(address(client, [user("نعم\n```html\n<b>bold</b>\n```")])).text
    assert '<p class="text" dir="auto">نعم</p>' in text
    assert '<pre class="code" dir="ltr" data-language="html">\n&lt;b&gt;bold&lt;/b&gt;</pre>' in text
