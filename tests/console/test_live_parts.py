"""What an open page of the console asks for by itself: the parts that have changed, and no others."""

from __future__ import annotations

import re
import time

import httpx
import pytest

from tests.console.conftest import TOKEN, Console, Visitor
from tests.request.conftest import SECRET, Client
from tests.request.talk import Said, assistant, history, user
from tidemark.console.sessions import COOKIE, Sessions
from tidemark.console.visit import PARTS_HEADER
from tidemark.server import guarding
from tidemark.server.operator import OperatorAccess

LIST = "/console/conversations"
PART = re.compile(r'<(\w+) id="([\w-]+)" data-live="([^"]*)"')


def marks(answer: httpx.Response) -> dict[str, str]:
    """The marks of the parts of a page or an answer, by their ids."""
    assert answer.status_code == 200
    return {name: mark for _, name, mark in PART.findall(answer.text)}


def renewed(visitor: Visitor, path: str, known: dict[str, str]) -> httpx.Response:
    """What an open page gets when it asks for what is newer than its parts."""
    header = ",".join(f"{name}={mark}" for name, mark in known.items())
    answer = visitor.http.get(path, headers={PARTS_HEADER: header})
    assert PARTS_HEADER in answer.headers
    return answer


def conversation(client: Client, talk: list[Said], **asked: str) -> str:
    """Send a talk, and return the address of its page."""
    return f"{LIST}/{client.chat(talk, **asked).headers['x-tidemark-conversation']}"


@pytest.mark.parametrize("path", ["/console", "/console?window=day", LIST, "", "?view=history", "?view=summaries"])
def test_a_page_that_has_not_changed_gets_nothing(visitor: Visitor, client: Client, path: str) -> None:
    """Every part has a mark, which stays as long as its content."""
    path = path if path.startswith("/") else conversation(client, history(12), summarize="force") + path
    known = marks(visitor.get(path))
    assert known
    assert "" not in known.values()
    assert renewed(visitor, path, known).content == b""


def test_an_open_conversation_gets_the_new_messages_alone(visitor: Visitor, client: Client) -> None:
    """They follow those that it shows; the facts above them have changed too."""
    talk = history(3)
    path = conversation(client, talk)
    known = marks(visitor.get(path))
    client.chat([*talk, assistant("Hello there."), user("And now?")])
    answer = renewed(visitor, path, known)
    assert marks(answer).keys() == {"facts", "messages"}
    assert re.findall(r'id="message-(\d+)"', answer.text) == ["8", "9"]
    assert "data-more" in answer.text
    known |= marks(answer)
    assert renewed(visitor, path, known).content == b""


def test_an_open_conversation_gets_a_new_summary_without_its_messages(visitor: Visitor, client: Client) -> None:
    """The list says how many messages the summary stands for, and the summary behind which one it stands."""
    talk = conversation(client, history(8))
    path = f"{talk}?view=history"
    known = marks(visitor.get(path))
    assert visitor.send(f"{talk}/summarize", path, retention="100").status_code == 303
    answer = renewed(visitor, path, known)
    assert marks(answer).keys() == {"facts", "tools", "messages", "standing"}
    covered = re.findall(r'data-covered="(\d+)"', answer.text)
    assert re.findall(r'data-after="message-(\d+)"', answer.text) == covered
    assert 'id="message-1"' not in answer.text
    known |= marks(answer)
    assert renewed(visitor, path, known).content == b""
    known |= {"standing": "of another summary"}
    assert marks(renewed(visitor, path, known)).keys() == {"standing"}


def test_a_summary_that_is_gone_leaves_the_page(visitor: Visitor, client: Client) -> None:
    """The page shows one, and the conversation has none."""
    path = f"{conversation(client, history(2))}?view=history"
    known = marks(visitor.get(path)) | {"standing": "of a summary that was there"}
    assert renewed(visitor, path, known).text == '<div id="standing" data-live data-gone></div>'


def test_a_page_of_another_history_gets_all_messages(visitor: Visitor, client: Client) -> None:
    """The id of the last message stands for all before it; a mark of nonsense is no history."""
    path = f"{conversation(client, history(2))}?view=history"
    known = marks(visitor.get(path))
    last, _, rest = known["messages"].split(".", 2)
    for mark in (f"{last}.0123456789abcdef.{rest}", "nonsense", "9.9.9.9", f"99999999.{rest}", ""):
        answer = renewed(visitor, path, known | {"messages": mark})
        assert marks(answer).keys() == {"messages"}
        assert len(re.findall(r'id="message-\d+"', answer.text)) == 5
        assert "data-more" not in answer.text


@pytest.mark.parametrize("header", ["", ",", "=", "facts", "nothing=1", ",".join(f"x{n}=1" for n in range(500))])
def test_a_header_of_nonsense_gets_no_more_than_it_names(visitor: Visitor, client: Client, header: str) -> None:
    """And no error."""
    answer = visitor.http.get(conversation(client, history(2)), headers={PARTS_HEADER: header})
    assert answer.status_code == 200
    assert "message-1" not in answer.text
    assert len(answer.content) < 10_000


def test_an_open_list_gets_the_changed_row_alone(visitor: Visitor, client: Client) -> None:
    """A conversation that stays at its place changes its figures only."""
    conversation(client, history(1))
    talk = history(3)
    changed = conversation(client, talk)
    known = marks(visitor.get(LIST))
    client.chat([*talk, assistant("Hello there."), user("And now?")])
    answer = renewed(visitor, LIST, known)
    assert marks(answer).keys() == {changed.replace(f"{LIST}/", "row-")}
    assert len(answer.content) < 2_000
    known |= marks(answer)
    assert renewed(visitor, LIST, known).content == b""


def test_an_open_list_gets_a_new_row_whole_and_of_the_others_their_places(visitor: Visitor, client: Client) -> None:
    """The body of the table comes with it, in the new order; a row that left the page is not in it."""
    old = [conversation(client, [user(f"Number {number}.")]).replace(f"{LIST}/", "row-") for number in range(25)]
    known = marks(visitor.get(LIST))
    assert set(old) < known.keys()
    new = conversation(client, [user("A new one.")]).replace(f"{LIST}/", "row-")
    answer = renewed(visitor, LIST, known)
    assert marks(answer).keys() == {"rows", "pages", new}
    assert re.findall(r'<tr id="(row-\w+)" data-same></tr>', answer.text) == old[:0:-1]
    assert answer.text.index(new) < answer.text.index(old[-1])
    assert len(answer.content) < 6_000


def test_an_open_list_gets_a_moved_row_with_its_new_figures(visitor: Visitor, client: Client) -> None:
    """The other rows are not in the answer, but their places are."""
    talk = history(1)
    first = conversation(client, talk).replace(f"{LIST}/", "row-")
    second = conversation(client, history(2)).replace(f"{LIST}/", "row-")
    known = marks(visitor.get(LIST))
    client.chat([*talk, assistant("Hello there."), user("And now?")])
    answer = renewed(visitor, LIST, known)
    assert marks(answer).keys() == {"rows", first}
    assert re.findall(r'<tr id="(row-\w+)" data-same></tr>', answer.text) == [first, second]


@pytest.mark.parametrize("address", [LIST, f"{LIST}?model=small"])
def test_an_open_list_loses_the_row_of_a_forgotten_conversation(visitor: Visitor, client: Client, address: str) -> None:
    """The last one too; then the page says that there is none."""
    path = conversation(client, history(1))
    known = marks(visitor.get(address))
    assert path.replace(f"{LIST}/", "row-") in known
    assert visitor.send(f"{path}/forget", path).status_code == 303
    answer = renewed(visitor, address, known)
    assert {"rows", "found"} <= marks(answer).keys()
    assert "data-same" not in answer.text


def test_an_open_page_does_not_keep_a_session_from_ending(console: Console) -> None:
    """A session ends 12 hours after its visitor did something; a page that renews itself is nobody's doing."""
    an_hour_ago = Sessions(OperatorAccess("127.0.0.1", TOKEN), SECRET, lambda: time.time() - 3600)
    headers = {"cookie": f"{COOKIE}={an_hour_ago.cookie(an_hour_ago.new(guarding.Visitor('operator')))}"}
    http = console.visitor(signed_in=False).http
    assert "set-cookie" not in http.get("/console", headers={**headers, PARTS_HEADER: "figures="}).headers
    assert COOKIE in http.get("/console", headers=headers).headers["set-cookie"]
