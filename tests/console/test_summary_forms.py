"""The console previews another summary, puts it into use, and saves an edited one."""

from __future__ import annotations

import re
from collections.abc import Callable
from html import unescape
from typing import Any

import pytest

from tests.console.conftest import Console, Visitor
from tests.request.conftest import Client
from tests.request.talk import Said, assistant, history, user
from tests.support.scripted import Received, says

FIRST = "The first summary tells of points and of what was said about them."
SECOND = "The second summary tells it better, and of the same points."
EDITED = "Written by a person: <b>the harbour</b> opens at nine, & point 3 is settled."


def writes(text: str) -> Any:
    """An upstream whose summaries are ``text``."""

    def respond(request: Received) -> Any:
        is_summarizer = "You summarize" in str(request.messages[0]["content"])
        return says(text if is_summarizer else "Hello there.")(request)

    return respond


@pytest.fixture
def console(start_console: Callable[..., Console]) -> Console:
    """A console whose summaries a model writes, with a configured key."""
    return start_console(strategy="llm", key="the-configured-key")


@pytest.fixture
def client(console: Console) -> Client:
    """Whose conversation it is."""
    return console.client()


@pytest.fixture
def messages() -> list[Said]:
    """The conversation."""
    return [*history(4), user("What now?")]


@pytest.fixture
def address(console: Console, client: Client, messages: list[Said]) -> str:
    """The page of a conversation that has a summary of all but its newest message."""
    console.upstream.script = writes(FIRST)
    got = client.chat(messages)
    messages.append(assistant("Hello there."))
    conversation = got.headers["x-tidemark-conversation"]
    path = f"/tidemark/conversations/{conversation}/summarize"
    assert client.http.post(path, json={"retention_tokens": 0}, headers=client.headers()).status_code == 200
    return f"/console/conversations/{conversation}"


def sent_summary(console: Console, client: Client, messages: list[Said]) -> str:
    """The summary that the conversation's next request carries."""
    assert client.chat([*messages, user("So?")]).headers["x-tidemark-action"] == "reused"
    return str(console.upstream.last.messages[0]["content"])


def hidden(page: str, name: str) -> str:
    """The value of a hidden field."""
    field = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert field is not None
    return unescape(field[1])


def plain(page: str) -> str:
    """A page without its marks of differences."""
    return re.sub("</?(?:ins|del)>", "", page)


def entered(page: str) -> str:
    """What stands in the field of the text."""
    field = re.search(r"<textarea[^>]*>\n(.*?)</textarea>", page, re.DOTALL)
    assert field is not None
    return unescape(field[1])


def test_a_preview_stands_beside_the_summary_in_use_and_can_be_used(
    console: Console, client: Client, messages: list[Said], address: str
) -> None:
    """Exactly the previewed text goes out, and no model is asked a second time."""
    visitor = console.visitor()
    assert ">Preview</button>" in visitor.get(f"{address}/summaries/regenerate").text
    console.upstream.script = writes(SECOND)
    page = visitor.send(f"{address}/summaries/preview", strategy="hybrid", template="coding", model="small")
    assert page.status_code == 200
    assert "Summary in use" in page.text
    assert "New summary" in page.text
    assert FIRST in plain(page.text)
    assert SECOND in plain(page.text)
    assert "<del>first</del>" in page.text
    assert "<ins>second</ins>" in page.text
    assert "<option selected>coding</option>" in page.text
    assert FIRST in sent_summary(console, client, messages)
    asked = len(console.upstream.received)
    done = visitor.send(f"{address}/summaries/use", preview=hidden(page.text, "preview"))
    assert (done.status_code, done.headers["location"]) == (303, address)
    assert len(console.upstream.received) == asked
    assert SECOND in sent_summary(console, client, messages)


def compared_with(page: str, side: str) -> list[str]:
    """What a field of "Compare" offers."""
    field = re.search(rf'<select id="{side}".*?</select>', page, re.DOTALL)
    return re.findall(r'value="([^"]+)"', field[0]) if field else []


def test_earlier_texts_of_a_summary_are_shown_and_compared(console: Console, address: str) -> None:
    """Those that a person replaced, too; the one in use is marked as edited."""
    visitor = console.visitor()
    edit = f"{address}/summaries/edit"
    version = hidden(visitor.get(edit).text, "version")
    assert visitor.send(f"{address}/summaries", edit, text=EDITED, version=version).status_code == 303
    page = visitor.get(f"{address}?view=summaries").text
    assert "1 earlier summary<" in page
    assert re.search(r'aria-label="Earlier version of the summary of \d+ messages"', page)
    assert page.index("edited by a person") < page.index("Earlier version") < page.index(FIRST)
    left, right = (compared_with(page, side) for side in ("left", "right"))
    assert left == right
    assert len(set(left)) == 2
    both = visitor.get(f"{address}?left={left[0]}&right={right[1]}").text
    section = both[both.index('aria-label="Compared summaries"') :].partition("</section>")[0]
    section = plain(section)
    assert (section.count("<article"), FIRST in section, "Written by a person" in section) == (2, True, True)


@pytest.mark.parametrize("query", ["left=x&right=y", "left=x", "right=", "left={0}&right={0}"])
def test_a_comparison_of_nonsense_says_what_to_do(console: Console, address: str, query: str) -> None:
    """And shows the conversation, from which two summaries can be chosen."""
    visitor = console.visitor()
    edit = f"{address}/summaries/edit"
    answer = visitor.get(f"{address}?{query.format(hidden(visitor.get(edit).text, 'version'))}")
    assert answer.status_code == 400
    assert re.search(r'role="alert"[^>]*>Th[^<]*Choose', answer.text)
    assert "Regenerate summary" in answer.text
    assert "Compared summaries" not in answer.text


def test_an_edited_summary_is_used_from_the_next_request_on(
    console: Console, client: Client, messages: list[Said], address: str
) -> None:
    """Its text is shown as text, whatever is in it."""
    visitor = console.visitor()
    page = visitor.get(f"{address}/summaries/edit")
    assert FIRST in entered(page.text)
    done = visitor.send(f"{address}/summaries", text=EDITED, version=hidden(page.text, "version"))
    assert (done.status_code, done.headers["location"]) == (303, address)
    assert EDITED in sent_summary(console, client, messages)
    again = visitor.get(f"{address}/summaries/edit")
    assert entered(again.text) == EDITED
    assert "<b>" not in again.text
    assert "edited by a person" in visitor.get(f"{address}/summaries/regenerate").text


@pytest.mark.parametrize("text", ["  \n", "word " * 500])
def test_a_text_that_is_refused_is_shown_again_with_the_range(
    console: Console, client: Client, messages: list[Said], address: str, text: str
) -> None:
    """The message belongs to the field, and nothing was changed."""
    visitor = console.visitor()
    page = visitor.send(f"{address}/summaries", text=text, version="")
    assert page.status_code == 409  # a form without the version is one of another time
    version = hidden(visitor.get(f"{address}/summaries/edit").text, "version")
    page = visitor.send(f"{address}/summaries", text=text, version=version)
    assert page.status_code == 400
    assert re.search(r'role="alert" id="text-error">A summary of this conversation may have 1 to \d+ tokens', page.text)
    assert 'aria-describedby="text-range text-error" aria-invalid="true"' in page.text
    assert entered(page.text) == text
    assert FIRST in sent_summary(console, client, messages)


def test_of_two_people_the_second_is_told_and_loses_nothing(console: Console, address: str) -> None:
    """The text of the first is shown, and the second can save once more, knowing it."""
    first, second = console.visitor(), console.visitor()
    version = hidden(second.get(f"{address}/summaries/edit").text, "version")
    assert first.send(f"{address}/summaries", text="The first person's.", version=version).status_code == 303
    page = second.send(f"{address}/summaries", text="The second person's.", version=version)
    assert page.status_code == 409
    assert "The summary was changed meanwhile" in page.text
    assert "The first person&#39;s." in page.text
    assert entered(page.text) == "The second person's."
    assert second.send(f"{address}/summaries", text="Both.", version=hidden(page.text, "version")).status_code == 303


def test_bad_choices_are_told_at_their_field_and_kept(console: Console, address: str) -> None:
    """A model that is not served, a strategy that does not exist."""
    visitor = console.visitor()
    page = visitor.send(f"{address}/summaries/preview", model="none <such>", template="concise")
    assert page.status_code == 404
    assert 'value="none &lt;such&gt;"' in page.text
    assert re.search(r'name="model"[^>]*aria-invalid="true" aria-describedby="preview-error"', page.text)
    assert "<option selected>concise</option>" in page.text
    page = visitor.send(f"{address}/summaries/preview", strategy="magic")
    assert page.status_code == 400
    assert re.search(r'name="strategy" aria-invalid="true"', page.text)
    assert visitor.send(f"{address}/summaries/use", preview="0" * 32).status_code == 404


def test_a_summarizer_that_fails_is_told_and_changes_nothing(
    console: Console, client: Client, messages: list[Said], address: str
) -> None:
    """The choices stay, to be tried again."""
    console.upstream.script = writes("")
    page = console.visitor().send(f"{address}/summaries/preview", template="detailed")
    assert page.status_code == 503
    assert "nothing was changed" in page.text
    assert "<option selected>detailed</option>" in page.text
    assert FIRST in sent_summary(console, client, messages)


def test_a_conversation_without_a_summary_and_one_that_is_nothing(console: Console, client: Client) -> None:
    """Each gets a page that says so."""
    console.upstream.script = writes(FIRST)
    conversation = client.chat([*history(2), user("So?")]).headers["x-tidemark-conversation"]
    visitor: Visitor = console.visitor()
    for name, status, words in (
        (conversation, 409, "has no summary in use"),
        ("0" * 48, 404, "There is no conversation"),
        ("nothing", 404, "There is no conversation"),
    ):
        for page in ("regenerate", "edit"):
            got = visitor.get(f"/console/conversations/{name}/summaries/{page}")
            assert got.status_code == status
            assert words in got.text


def test_no_form_is_carried_out_without_its_token(
    console: Console, client: Client, messages: list[Said], address: str
) -> None:
    """What was entered is shown to be sent again."""
    page = console.visitor().http.post(f"{address}/summaries", data={"text": EDITED, "version": ""})
    assert page.status_code == 403
    assert FIRST in sent_summary(console, client, messages)


def test_where_the_store_is_away_the_text_is_kept(
    console: Console, client: Client, messages: list[Said], address: str
) -> None:
    """Nothing is changed by half."""
    visitor = console.visitor()
    page = visitor.get(f"{address}/summaries/edit").text
    fields = {"text": EDITED, "version": hidden(page, "version"), "csrf": hidden(page, "csrf")}
    console.store.stop()
    refused = visitor.http.post(f"{address}/summaries", data=fields)
    assert refused.status_code == 503
    assert 'role="alert"' in refused.text
    assert hidden(refused.text, "text") == EDITED
    assert hidden(refused.text, "version") == fields["version"]


def test_without_a_key_the_operators_preview_is_extractive(start_console: Callable[..., Console]) -> None:
    """The upstream is not asked, and a choice that would ask it is refused at its field."""
    console = start_console(strategy="llm")
    console.upstream.script = writes(FIRST)
    client = console.client()
    conversation = client.chat([*history(4), user("What now?")]).headers["x-tidemark-conversation"]
    path = f"/tidemark/conversations/{conversation}/summarize"
    assert client.http.post(path, json={"retention_tokens": 0}, headers=client.headers()).status_code == 200
    asked = len(console.upstream.received)
    visitor, address = console.visitor(), f"/console/conversations/{conversation}/summaries"
    page = visitor.send(f"{address}/preview")
    assert page.status_code == 200
    assert "<dd>extractive</dd>" in page.text
    for choice in ({"strategy": "llm"}, {"template": "coding"}, {"model": "small"}):
        page = visitor.send(f"{address}/preview", **choice)
        assert page.status_code == 400
        assert "no key for the model" in page.text
    assert len(console.upstream.received) == asked
