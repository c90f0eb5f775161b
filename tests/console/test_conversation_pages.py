"""Stored conversations in the console: listed, shown with their summaries in place, searched, summarized, forgotten."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace

import pytest

from tests.console.conftest import Console, Visitor
from tests.request.compaction.test_masking import AGENTS, PROMPT, STEPS
from tests.request.conftest import WINDOW, Client
from tests.request.talk import Said, assistant, history, user
from tests.support.scripted import Answer, Received, says
from tidemark.console.messages import MESSAGES_BYTES, newest_within_bytes, within_bytes
from tidemark.console.rendering import divide_by_hits
from tidemark.core.conversation.records import ConversationRecord, MessageRecord
from tidemark.core.cursors import cursor_of
from tidemark.features.conversations.finding import ContextUsage
from tidemark.features.conversations.pages import HistoryPage, MessageEntry

LIST = "/console/conversations"
REPLY_TOKENS = 7
"""Tokens of the upstream's answer in the history."""


def address(client: Client, talk: list[Said], **asked: str) -> str:
    """Send a talk, and return the address of its page."""
    return f"{LIST}/{client.chat(talk, **asked).headers['x-tidemark-conversation']}"


def test_conversations_are_listed_with_how_full_they_are(visitor: Visitor, client: Client) -> None:
    """The last used first; a bar says the percent in figures."""
    assert "No conversation is stored" in visitor.get(LIST).text
    page = address(client, [user("Hello.")])
    client.chat(history(9))
    text = visitor.get(LIST).text
    assert page in text
    bars = re.findall(r'role="meter"[^>]*aria-valuenow="(\d+)" data-level="(\w+)"', text)
    assert len(bars) == 2
    assert all(ContextUsage(int(percent)).level == level for percent, level in bars)
    assert text.index(page) > text.index("<tbody")


def listed(text: str) -> list[str]:
    """The addresses of the conversations on a page of the list, in their order."""
    return re.findall(r'<th scope="row"><a href="([^"#]+)#newest"', text)


def positions(text: str) -> list[int]:
    """The messages on a page."""
    return [int(position) for position in re.findall(r'id="message-(\d+)"', text)]


def link(text: str, name: str) -> str | None:
    """The address of a link between pages; None without one."""
    found = re.search(rf'href="([^"]+)">{name}</a>', text)
    return found and found[1].replace("&amp;", "&")


def test_pages_of_the_list_go_by_one_page_each(visitor: Visitor, client: Client) -> None:
    """Older and newer lead over the same pages, without a gap and without a repetition."""
    for number in range(60):
        client.chat([user(f"Question {number}")])
    place, last, pages = LIST, LIST, list[list[str]]()
    while place:
        text = visitor.get(place).text
        pages.append(listed(text))
        assert (link(text, "Newer") is None) == (len(pages) == 1)
        last, place = place, link(text, "Older") or ""
    assert [len(page) for page in pages] == [25, 25, 10]
    assert len({name for page in pages for name in page}) == 60
    place, back = last, list[list[str]]()
    while place:
        text = visitor.get(place).text
        back.append(listed(text))
        assert (link(text, "Older") is None) == (len(back) == 1)
        place = link(text, "Newer") or ""
    assert back[::-1] == pages


def test_filters_stay_from_page_to_page(visitor: Visitor, client: Client) -> None:
    """A model and a state; a form without words leads to an address that can be kept."""
    for number in range(27):
        client.chat([user(f"Question {number}")])
    sent = visitor.send(LIST, model="small", state="whole", words="")
    assert (sent.status_code, sent.headers["location"]) == (303, f"{LIST}?model=small&state=whole")
    text = visitor.get(sent.headers["location"]).text
    assert len(listed(text)) == 25
    assert "<option selected>small</option>" in text
    older = link(text, "Older")
    assert older is not None
    assert "model=small&state=whole" in older
    second = visitor.get(older).text
    newer = link(second, "Newer")
    assert (len(listed(second)), newer is not None and "model=small&state=whole" in newer) == (2, True)
    assert listed(visitor.get(f"{LIST}?model=other").text) == []
    assert "0 conversations found among 27" in visitor.get(f"{LIST}?state=summarized").text


@pytest.mark.parametrize("state", ["summarized", "whole", "critical"])
def test_states_tell_conversations_apart(visitor: Visitor, client: Client, state: str) -> None:
    """Summarized ones, the others, and those that are full."""
    summarized = address(client, history(12), summarize="force")
    whole = address(client, [user("Hello.")])
    expected = {"summarized": [summarized], "whole": [whole], "critical": []}
    assert listed(visitor.get(f"{LIST}?state={state}").text) == expected[state]


def test_the_list_says_how_many_messages_are_summarized(visitor: Visitor, client: Client) -> None:
    """FR-1.6 and FR-6.1.2: the same number as on the conversation's own page."""
    text = visitor.get(address(client, history(12), summarize="force")).text
    badge = re.search(r'class="badge">(\d+ messages summarized)', text)
    assert badge is not None
    assert badge[1] in visitor.get(LIST).text


def test_conversations_are_found_by_text_name_and_id(visitor: Visitor, client: Client) -> None:
    """All words in one message, in any case; nothing of it is in an address."""
    lighthouse = address(client, [user("Where is the LIGHTHOUSE of Skagen?")])
    other = address(client, [user("Where is the harbour?")])
    named = address(client, [user("Hello.")], conversation="Voyage-7")
    found = {
        "skagen lighthouse": [lighthouse],
        "where is": [other, lighthouse],
        "voyage": [named],
        other.rpartition("/")[2][:12]: [other],
        "whale": [],
    }
    for words, expected in found.items():
        answer = visitor.send(LIST, words=words)
        assert (answer.status_code, str(answer.url).endswith(LIST)) == (200, True)
        assert listed(answer.text) == expected, words
        assert f'value="{words}"' in answer.text


def test_words_are_shown_as_text(visitor: Visitor) -> None:
    """They may be markup."""
    text = visitor.send(LIST, words='"><script>alert(1)</script>').text
    assert "<script>alert" not in text
    assert "&gt;&lt;script&gt;alert(1)" in text


def test_the_summary_stands_in_its_place(visitor: Visitor, client: Client) -> None:
    """What the model no longer sees is marked, in words too, and stays readable."""
    page = address(client, history(12), summarize="force")
    text = visitor.get(f"{page}?view=history").text
    summary = re.search(r'aria-label="Summary of (\d+) messages"', text)
    assert summary is not None
    covered = int(summary[1])
    assert text.count('data-state="summarized"') == covered
    assert text.count("summarized, no longer in context") == covered
    assert text.count('data-state="in_context"') == 25 - covered
    assert text.index(f'id="message-{covered}"') < text.index(summary[0]) < text.index(f'id="message-{covered + 1}"')
    assert "messages summarized" in text
    assert "Regenerate summary" in text
    article = text[text.index(summary[0]) :].partition("</header>")[0]
    figures = re.search(r"the request: ([\d,]+) tokens before, ([\d,]+) after", article)
    assert figures is not None
    before, after = (int(figure.replace(",", "")) for figure in figures.groups())
    assert before > after > 0


def test_a_summary_can_be_folded(visitor: Visitor, client: Client) -> None:
    """FR-6.2.3: its text is behind a switch, which is open at first."""
    text = visitor.get(address(client, history(12), summarize="force")).text
    article = text[text.index('aria-label="Summary of') :].partition("</article>")[0]
    assert "<details open><summary>Text</summary>" in article


@pytest.mark.parametrize("max_tokens", [1, 150, 100_000])
def test_usage_counts_from_the_limit_of_the_last_request(visitor: Visitor, client: Client, max_tokens: int) -> None:
    """Less may be sent to a model where a long reply is asked for; the bar says what the response's headers say."""
    answer = client.post({"model": "small", "messages": history(7), "max_tokens": max_tokens})
    limit, after = (int(answer.headers[f"x-tidemark-{name}"]) for name in ("limit", "tokens-after"))
    bar = re.search(r'aria-valuenow="(\d+)"', visitor.get(LIST).text)
    assert bar is not None
    assert int(bar[1]) == round(100 * (after + REPLY_TOKENS) / limit)


def test_usage_bars_turn_orange_and_red() -> None:
    """FR-6.1.1: at 80 and 95 percent of the limit."""
    levels = {79: "ok", 80: "warning", 94: "warning", 95: "critical", 130: "critical"}
    assert {percent: ContextUsage(percent).level for percent in levels} == levels


def test_a_context_that_is_over_its_limit_says_so_within_the_meter(visitor: Visitor, client: Client) -> None:
    """A meter has no value above its end (WAI-ARIA 1.2, 6.6): what came since the last request may not fit."""
    lines = "\n".join(json.dumps(said) for said in history(30))
    client.http.post("/tidemark/conversations/import?model=small", content=lines, headers=client.headers())
    text = visitor.get(LIST).text
    assert re.search(r'aria-valuetext="over 100 %[^"]*" aria-valuenow="100" data-level="critical"', text)
    assert "<span>over 100 %" in text


def test_the_history_is_summarized_by_a_button(visitor: Visitor, client: Client) -> None:
    """With the tokens to retain; a wrong number is refused and kept."""
    page = address(client, history(8))
    wrong = visitor.send(f"{page}/summarize", page, retention="many")
    assert (wrong.status_code, 'value="many"' in wrong.text) == (400, True)
    assert "whole number of tokens" in wrong.text
    done = visitor.send(f"{page}/summarize", page, retention="100")
    assert (done.status_code, done.headers["location"]) == (303, f"{page}?done=summarized")
    text = visitor.get(done.headers["location"]).text
    assert "The history was summarized." in text
    assert "Summary of" in text


def test_what_people_and_models_write_is_only_ever_text(visitor: Visitor, client: Client) -> None:
    """Markup, scripts and terminal escapes; none of it is in an address or a title."""
    evil = "<script>alert(1)</script> <img src=x onerror=alert(2)> \x1b[31m {{ 7*7 }} &amp;"
    page = address(client, [user(evil), assistant(evil), user("And now?")])
    text = visitor.get(page).text
    assert "<script>alert" not in text
    assert "<img src=x" not in text
    assert "&lt;script&gt;alert(1)" in text
    assert "49" not in re.sub(r"[0-9a-f]{16,}", "", text).partition("<ol")[2].partition("And now?")[0]
    assert "alert" not in re.findall(r"<title>(.*?)</title>", text)[0]
    assert "\x1b" not in text
    assert "␛[31m" in text


def test_calls_results_and_images_are_folded_and_named(visitor: Visitor, client: Client) -> None:
    """No image is loaded."""
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "look", "arguments": '{"at": "tide", "of": "Husum, Dagebüll, Wyk and Wittdün on Amrum"}'},
    }
    image = {"type": "image_url", "image_url": {"url": "https://pictures.example/tide.png"}}
    talk: list[Said] = [
        {"role": "user", "content": [{"type": "text", "text": "See this."}, image]},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "High water at seven."},
    ]
    text = visitor.get(address(client, talk)).text
    assert re.search(r"<summary>look\([^<]*…</summary>", text), "a title that is cut says so"
    assert "image, from pictures.example<" in text
    assert "Result of a tool" in text
    assert '<img src="https' not in text


def test_messages_are_searched_without_words_in_an_address(visitor: Visitor, client: Client) -> None:
    """Summarized ones, too."""
    page = address(client, [user("Where is the lighthouse?"), assistant("On the cape."), *history(2), user("Thanks.")])
    found = visitor.send(f"{page}/search", page, words="lighthouse")
    assert found.status_code == 200
    assert "1 message found" in found.text
    assert "Where is the <mark>lighthouse</mark>?" in found.text
    assert visitor.send(f"{page}/search", page, words=" ").status_code == 400


def test_a_conversation_is_exported_and_forgotten_when_asked_twice(visitor: Visitor, client: Client) -> None:
    """The question comes first."""
    page = address(client, [user("Hello.")])
    lines = visitor.get(f"{page}/export")
    assert json.loads(lines.text.splitlines()[0])["content"] == "Hello."
    question = visitor.get(f"{page}/forget").text
    assert "Yes, forget it" in question
    assert visitor.get(page).status_code == 200
    done = visitor.send(f"{page}/forget", f"{page}/forget")
    assert done.headers["location"] == f"{LIST}?done=forgotten"
    assert visitor.get(page).status_code == 404


@pytest.mark.parametrize("path", ["/0123", "?cursor=nonsense", "?newer=nonsense", "?state=nonsense", f"/{'0' * 48}"])
def test_what_is_not_there_is_a_page_that_says_so(visitor: Visitor, path: str) -> None:
    """An id of nothing, a page of nonsense."""
    answer = visitor.get(LIST + path)
    headings = {400: "This failed", 404: "There is no such page"}
    assert f"<h1>{headings[answer.status_code]}</h1>" in answer.text
    assert ("Nothing was changed" in answer.text) == (answer.status_code == 400)


def test_a_long_history_comes_in_pages(visitor: Visitor, client: Client) -> None:
    """A page has up to 5,000 messages, at first the newest; the earlier ones are a click away, and so is the end."""
    lines = [json.dumps((user if number % 2 == 0 else assistant)(f"Line {number}")) for number in range(5_020)]
    stored = client.http.post(
        "/tidemark/conversations/import?model=small", content="\n".join(lines), headers=client.headers()
    ).json()
    page = f"{LIST}/{stored['id']}?view=history"
    text = visitor.get(page).text
    assert positions(text) == list(range(21, 5_021))
    assert (link(text, "Later messages"), link(text, "Newest messages")) == (None, None)
    earlier, first = link(text, "Earlier messages"), link(text, "First messages")
    assert earlier is not None
    assert first is not None
    rest = visitor.get(earlier.removesuffix("#newest")).text
    assert positions(rest) == list(range(1, 21))
    assert (link(rest, "Earlier messages"), link(rest, "First messages")) == (None, None)
    assert link(rest, "Newest messages") == f"{page}#newest"
    later = link(rest, "Later messages")
    assert later is not None
    assert positions(visitor.get(later).text) == list(range(21, 5_021))
    assert positions(visitor.get(first).text) == list(range(1, 5_001))


@pytest.mark.parametrize(("before", "shown"), [(1, [1]), (2, [1]), (5, [1, 2, 3, 4]), (999, [1, 2, 3, 4, 5, 6, 7])])
def test_a_page_ends_where_its_address_says(visitor: Visitor, client: Client, before: int, shown: list[int]) -> None:
    """And has one message at least; beyond the newest there is nothing."""
    page = address(client, history(3))
    text = visitor.get(f"{page}?view=history&before={cursor_of(before)}").text
    assert positions(text) == shown
    assert (link(text, "Later messages") is None) == (shown[-1] == 7)
    assert visitor.get(f"{page}?view=history&before=nonsense").status_code == 400


def test_a_page_of_very_long_messages_ends_earlier() -> None:
    """So that a browser can show it; none is left out, and one is always there."""
    messages = [MessageRecord(place, "", b"", 1, 0.0) for place in (1, 2, 3)]
    entries = tuple(MessageEntry(message, "in_context", bytes(MESSAGES_BYTES // 2)) for message in messages)
    record = ConversationRecord("0" * 48, "", "small", 3, 3, 0, 1, 0.0, 0.0)
    page = HistoryPage(record, 0, entries, None)
    assert within_bytes(page) == (entries[:2], cursor_of(3))
    assert within_bytes(replace(page, messages=entries[:2])) == (entries[:2], None)
    huge = MessageEntry(messages[0], "in_context", bytes(2 * MESSAGES_BYTES))
    assert within_bytes(replace(page, messages=(huge, *entries[1:])))[0] == (huge,)


def test_a_page_of_the_newest_messages_begins_later_if_they_are_very_long() -> None:
    """The newest one is always there."""
    messages = [MessageRecord(place, "", b"", 1, 0.0) for place in (1, 2, 3)]
    entries = tuple(MessageEntry(message, "in_context", bytes(MESSAGES_BYTES // 2)) for message in messages)
    record = ConversationRecord("0" * 48, "", "small", 3, 3, 0, 1, 0.0, 0.0)
    page = HistoryPage(record, 0, entries, None)
    assert newest_within_bytes(page) == entries[1:]
    assert newest_within_bytes(replace(page, messages=entries[:2])) == entries[:2]
    huge = MessageEntry(messages[2], "in_context", bytes(2 * MESSAGES_BYTES))
    assert newest_within_bytes(replace(page, messages=(*entries[:2], huge))) == (huge,)
    assert newest_within_bytes(replace(page, messages=())) == ()


@pytest.mark.parametrize(
    ("text", "query", "hits"),
    [
        ("At the Café", "cafe", ["Café"]),
        ("<b>bold</b>", "b", ["b", "b", "b"]),
        ("start of art", "art", ["art"]),
        ("restart", "start", ["start"]),
        ("high water, water", '"high water"', ["high water"]),
        ("a+b & c", "+b", ["+b"]),
        ("Nothing.", "", []),
        ("Nothing.", "more", []),
    ],
)
def test_words_are_marked_as_they_are_searched(text: str, query: str, hits: list[str]) -> None:
    """By their beginnings, without case and accents, and with every character of the text in its place."""
    pieces = divide_by_hits(text, query)
    assert "".join(piece for piece, _ in pieces) == text
    assert [piece for piece, is_hit in pieces if is_hit] == hits


def test_hits_are_escaped(visitor: Visitor, client: Client) -> None:
    """Around the mark and within it."""
    page = address(client, [user("<script>alert(1)</script> at the <img> quay")])
    text = visitor.send(f"{page}/search", page, words="script quay").text
    assert (
        "&lt;<mark>script</mark>&gt;alert(1)&lt;/<mark>script</mark>&gt; at the &lt;img&gt; <mark>quay</mark>" in text
    )


def test_what_a_model_names_and_nobody_said_is_shown_with_its_summary(
    start_console: Callable[..., Console],
) -> None:
    """By name, beside what was kept: a person sees it before the next model believes it."""
    console = start_console(strategy="llm", key="the-configured-key")

    def script(request: Received) -> Answer:
        told = "The points were gone through one by one, and ticket RMA-70351 tracks all of them."
        return says(told if "You summarize" in str(request.messages[0]["content"]) else "Fine.")(request)

    console.upstream.script = script
    page = address(console.client(), [*history(9), user("Now?")], summarize="force")
    text = console.visitor().get(page).text
    assert "In no message, though the summary names it (identifiers): <code>RMA-70351</code>" in text
    assert "unsupported 1" in text


def test_masked_results_are_shown_by_their_lines(start_console: Callable[..., Console]) -> None:
    """All that was said stays in context, so there is no text to edit; the history has the results whole."""
    console = start_console(window=16_000, config=WINDOW.replace("{more}", ", mask_results: true{more}"))
    client, visitor, agent = console.client(), console.visitor(), AGENTS["chat"]
    console.upstream.script = says("Fine.")
    items, conversation = [user(PROMPT)], ""
    for number in range(STEPS):
        items += agent.step(number)
        got = client.chat(items)
        console.settle()
        if got.headers["x-tidemark-action"] == "compacted":
            conversation = got.headers["x-tidemark-conversation"]
            break
    page = visitor.get(f"{LIST}/{conversation}").text
    assert re.search(r"\d+ masked results", page)
    assert page.count("<li value=") >= 3
    assert "[Left out: 122 lines" in page
    assert "119: token 119 of part 0" in page
    assert "summaries/edit" not in page
    assert visitor.get(f"{LIST}/{conversation}/summaries/edit").status_code == 409
