"""A page that stays open: it fetches what has changed and nothing else, and leaves its visitor where they are."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Page, Response, expect

from tests.console.conftest import TOKEN, Console, consoled
from tests.request.conftest import WINDOW, Client
from tests.request.talk import Said, assistant, user

pytestmark = pytest.mark.walk

LIST = "/console/conversations"
LONG = 5_000
MIDDLE = 2_500
ROW_BYTES = 6_000
"""The most that a changed conversation may cost an open list; its table has 25 KB."""
CHANGE_BYTES = 12_000
"""The most that a turn or a summary may cost an open page; the whole page of this conversation has 1.6 MB."""
LATER = 20_000
"""Milliseconds until a change is seen on a busy machine."""
PLACE = f"document.querySelector('#message-{MIDDLE}').getBoundingClientRect().top"

TOTAL = """name => {
    const table = document.querySelector(`#plot-${name}-figures`);
    const place = [...table.querySelectorAll("thead th")].findIndex((cell) => cell.textContent === "Requests");
    return [...table.querySelectorAll("tbody tr")]
        .reduce((sum, row) => sum + Number(row.cells[place].textContent.replace(/\\D/g, "")), 0);
}"""
"""The requests that the table of a plot has in all."""


@pytest.fixture(scope="module")
def console(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Console]:
    """One for all tests of this file."""
    # What is fetched has the summary, whose size is no matter of this file.
    bounded = WINDOW.replace("{more}", ", max_summary_tokens: 4096{more}")
    with consoled(tmp_path_factory.mktemp("open"), window=100_000, config=bounded) as made:
        yield made


@pytest.fixture
def client(console: Console, request: pytest.FixtureRequest) -> Client:
    """A client with conversations of its own."""
    return console.client(request.node.name)


@pytest.fixture
def messages() -> list[Said]:
    """A conversation of 5,000 messages with a tool's result in its middle."""
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    messages = [(user if number % 2 == 0 else assistant)(f"Line {number}") for number in range(LONG)]
    messages[MIDDLE - 1] = {"role": "assistant", "content": None, "tool_calls": [call]}
    messages[MIDDLE] = {"role": "tool", "tool_call_id": "c1", "content": "High water at seven."}
    messages[MIDDLE + 1] = assistant("At seven.")
    return messages


class Fetched:
    """What the script of a page has fetched."""

    def __init__(self, page: Page) -> None:
        self.responses: list[Response] = []
        page.on("response", self._note)

    def _note(self, response: Response) -> None:
        if response.request.resource_type == "fetch":
            self.responses.append(response)

    def size(self) -> int:
        """The bytes of all answers up to now; they are not counted again."""
        answers, self.responses = self.responses, []
        return sum(len(answer.body()) for answer in answers)


def test_a_turn_and_a_summary_are_fetched_alone_and_the_visitor_stays_where_they_are(
    console: Console, page: Page, client: Client, messages: list[Said]
) -> None:
    """Scroll position, focus, what is folded open and what was typed stay."""
    lines = "\n".join(json.dumps(message) for message in messages)
    stored = client.http.post("/tidemark/conversations/import?model=small", content=lines, headers=client.headers())
    path = f"{LIST}/{stored.json()['id']}"
    with page.expect_response("**/console/events"):
        page.goto(f"{path}?view=history")
    fetched = Fetched(page)
    page.get_by_label("Search messages").fill("half a sent")
    page.get_by_label("Tokens to retain").fill("12")
    result = page.locator(f"#message-{MIDDLE + 1} details")
    result.locator("summary").scroll_into_view_if_needed()
    result.locator("summary").press("Enter")
    expect(result).to_have_attribute("open", "")
    place = page.evaluate(PLACE)

    messages += [user("One more?")]
    assert client.chat(messages).status_code == 200
    page.wait_for_selector(f"#message-{LONG + 2}", state="attached")  # expect() looks at all messages each time
    assert 0 < fetched.size() < CHANGE_BYTES

    admin = {"authorization": f"Bearer {TOKEN}"}
    own = f"{console.url}/tidemark/conversations/{stored.json()['id']}/summarize"
    done = client.http.post(own, json={"retention_tokens": 20_000}, headers=admin)
    assert done.status_code == 200, done.text
    page.wait_for_selector("#standing article", state="attached")
    assert 0 < fetched.size() < CHANGE_BYTES
    expect(page.get_by_role("button", name="Regenerate summary")).to_be_attached()
    states = page.locator(".message").evaluate_all("all => all.map((item) => item.dataset.state)")
    assert len(states) == LONG + 2
    assert states == ["summarized"] * states.count("summarized") + ["in_context"] * states.count("in_context")
    assert states.count("summarized") > MIDDLE
    expect(page.locator(f"#message-{MIDDLE} .state")).to_have_text("summarized, no longer in context")
    before = page.locator("#standing").locator("xpath=preceding-sibling::li[1]")
    expect(before).to_have_id(f"message-{states.count('summarized')}")

    assert abs(page.evaluate(PLACE) - place) < 2
    expect(result).to_have_attribute("open", "")
    expect(result.locator("summary")).to_be_focused()
    expect(page.get_by_label("Search messages")).to_have_value("half a sent")
    expect(page.get_by_label("Tokens to retain")).to_have_value("12")


def test_the_overview_stays_as_it_is_looked_at(page: Page, client: Client) -> None:
    """A table that is open goes on, and the focus and its scroll position stay; closed tables are not fetched."""
    page.get_by_text("Figures of tokens").press("Enter")
    table = page.get_by_role("group", name="Figures of tokens")
    table.evaluate("box => { box.scrollTop = 500; }")
    table.focus()
    fetched = Fetched(page)
    first = "first-byte-of-the-provider"
    tokens, times = (page.evaluate(TOTAL, name) for name in ("tokens", first))
    client.chat([user("Hello.")])
    page.wait_for_function(f"name => ({TOTAL})(name) > {tokens}", arg="tokens")
    expect(table).to_be_focused()
    assert table.evaluate("box => box.scrollTop") == 500
    bodies = [answer.text() for answer in fetched.responses]
    assert any("plot-tokens-figures" in body for body in bodies)
    assert not any(f"plot-{first}-figures" in body for body in bodies)
    assert page.evaluate(TOTAL, first) == times
    page.get_by_text("Figures of first byte").press("Enter")
    page.wait_for_function(f"name => ({TOTAL})(name) > {times}", arg=first)


def test_the_list_keeps_the_focus_when_another_conversation_comes_first(page: Page, client: Client) -> None:
    """The link that has it moves down by a row."""
    answer = client.chat([user("An old one.")])
    with page.expect_response("**/console/events"):
        page.goto(LIST)
    old = page.locator(f"#row-{answer.headers['x-tidemark-conversation']} th a")
    old.focus()
    newest = client.chat([user("A new one.")]).headers["x-tidemark-conversation"]
    expect(page.locator("tbody tr").first).to_have_id(f"row-{newest}", timeout=LATER)
    expect(old).to_be_focused()


def test_an_open_list_fetches_the_changed_row_and_the_visitor_stays_where_they_are(page: Page, client: Client) -> None:
    """A row that moves to the top takes the place of no other: what was selected and typed stays."""
    talks = [[user(f"Conversation {number}.")] for number in range(25)]
    rows = [f"row-{client.chat(talk).headers['x-tidemark-conversation']}" for talk in talks]
    with page.expect_response("**/console/events"):
        page.goto(LIST)
    page.get_by_label("Search conversations").fill("half a sent")
    page.evaluate("id => getSelection().selectAllChildren(document.getElementById(id).querySelector('td'))", rows[5])
    page.evaluate("scrollTo(0, 200)")
    link = page.locator(f"#{rows[3]} th a")
    link.evaluate("link => link.focus({ preventScroll: true })")
    fetched = Fetched(page)
    for number, place in ((0, 0), (0, 0), (3, 0)):
        talks[number] += [assistant("Hello there."), user("And now?")]
        client.chat(talks[number])
        turns = page.locator(f"#{rows[number]} [data-name=Requests]")
        expect(turns).to_have_text(str(sum(said["role"] == "user" for said in talks[number])), timeout=LATER)
        expect(page.locator("tbody tr").nth(place)).to_have_id(rows[number])
        assert 0 < fetched.size() < ROW_BYTES
    expect(page.locator("tbody tr")).to_have_count(25)
    expect(link).to_be_focused()
    assert page.evaluate("String(getSelection())") == "small"
    assert page.evaluate("scrollY") > 100
    expect(page.get_by_label("Search conversations")).to_have_value("half a sent")


@pytest.mark.parametrize("place", ["filter", "second page"])
def test_a_list_of_some_conversations_stays_right(page: Page, client: Client, place: str) -> None:
    """A filtered list gets a new row; a later page gets the one that does not fit on the page before it any more."""
    said = [[user(f"Conversation {number}.")] for number in range(26)]
    rows = [f"row-{client.chat(talk).headers['x-tidemark-conversation']}" for talk in said]
    with page.expect_response("**/console/events"):
        page.goto(f"{LIST}?model=small" if place == "filter" else LIST)
    if place == "second page":
        with page.expect_response("**/console/events"):
            page.get_by_role("link", name="Older").click()
        expect(page.locator("tbody tr").first).to_have_id(rows[0])
        talk = [*said[0], assistant("Hello there."), user("And now?")]
        client.chat(talk)  # it is the newest now, and on the first page
        expect(page.locator(f"#{rows[0]}")).to_have_count(0, timeout=LATER)
    else:
        newest = client.chat([user("A new one.")]).headers["x-tidemark-conversation"]
        expect(page.locator("tbody tr").first).to_have_id(f"row-{newest}", timeout=LATER)
        expect(page.locator(f"#{rows[1]}")).to_have_count(0)


def test_a_list_catches_up_after_its_events_were_refused(page: Page, client: Client) -> None:
    """The first conversation of a list and every later one appear by themselves."""
    page.route("**/console/events", lambda route: route.fulfill(status=503))
    page.goto(LIST)
    with page.expect_response("**/console/events"):
        newest = client.chat([user("A new one.")]).headers["x-tidemark-conversation"]
    page.unroute("**/console/events")
    expect(page.locator("tbody tr").first).to_have_id(f"row-{newest}", timeout=LATER)


def test_a_page_catches_up_after_its_events_were_refused(page: Page, client: Client) -> None:
    """A proxy in front that answered 503 for a while, or a server that began again."""
    said = [user("Line 0")]
    path = f"{LIST}/{client.chat(said).headers['x-tidemark-conversation']}"
    page.route("**/console/events", lambda route: route.fulfill(status=503))
    page.goto(path)
    with page.expect_response("**/console/events"):
        client.chat([*said, assistant("Hello there."), user("Line 1")])
    page.unroute("**/console/events")
    expect(page.locator("#message-3")).to_contain_text("Line 1", timeout=LATER)


def test_a_page_whose_session_has_ended_says_so_and_goes_on_after_the_sign_in(page: Page, client: Client) -> None:
    """What was typed stays, and the link opens a page of its own."""
    said = [user("Line 0")]
    path = f"{LIST}/{client.chat(said).headers['x-tidemark-conversation']}"
    with page.expect_response("**/console/events"):
        page.goto(path)
    page.get_by_label("Search messages").fill("half a sent")
    page.context.clear_cookies()
    said += [assistant("Hello there."), user("Line 1")]
    client.chat(said)
    notice = page.get_by_role("status").filter(has_text="Your session has ended")
    expect(notice).to_be_visible(timeout=LATER)
    with page.context.expect_page() as opened:
        notice.get_by_role("link", name="Sign in again").click()
    opened.value.get_by_label("Token or key").fill(TOKEN)
    opened.value.get_by_role("button", name="Sign in").click()
    client.chat([*said, assistant("Hello there."), user("Line 2")])
    expect(page.locator("#message-5")).to_contain_text("Line 2", timeout=LATER)
    expect(notice).to_have_count(0)
    expect(page.get_by_label("Search messages")).to_have_value("half a sent")
