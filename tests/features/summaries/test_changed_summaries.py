"""``/tidemark/conversations/{id}/summaries``: a summary is previewed, replaced and edited, and requests use it."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import httpx
import pytest

from tests.request.conftest import Bench, Client
from tests.request.talk import Said, assistant, history, user
from tests.support.scripted import Received, says

FIRST = "The first summary tells of points and of what was said about them."
SECOND = "The second summary tells it better, and of the same points."
EDITED = "Written by a person: the harbour opens at nine, and point 3 is settled."


def writes(text: str, answer: str = "Hello there.") -> Any:
    """An upstream whose summaries are ``text``, and whose answers are not."""

    def respond(request: Received) -> Any:
        is_summarizer = "You summarize" in str(request.messages[0]["content"])
        return says(text if is_summarizer else answer)(request)

    return respond


def ask(client: Client, conversation: str, path: str, body: Any = None, key: str | None = None) -> httpx.Response:
    """Post to a path below the conversation's."""
    headers = client.headers() if key is None else {"authorization": f"Bearer {key}"}
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return client.http.post(f"/tidemark/conversations/{conversation}/{path}", content=content, headers=headers)


def change(client: Client, conversation: str, **body: Any) -> dict[str, Any]:
    """Replace the summary."""
    got = ask(client, conversation, "summaries", body)
    assert got.status_code == 200, got.text
    return dict(got.json())


def preview(client: Client, conversation: str, **body: Any) -> dict[str, Any]:
    """Preview another summary."""
    got = ask(client, conversation, "summaries/preview", body)
    assert got.status_code == 200, got.text
    return dict(got.json())


def in_use(client: Client, conversation: str) -> dict[str, Any]:
    """The summary that is in use, as it is listed."""
    got = client.http.get(f"/tidemark/conversations/{conversation}/summaries", headers=client.headers())
    (only,) = [summary for summary in got.json()["data"] if summary["in_use"]]
    return dict(only)


def code_of(got: httpx.Response) -> tuple[int, str]:
    """The status and the code of an error."""
    return got.status_code, got.json()["error"]["code"]


def stored(client: Client, said: list[Said], **asked: str) -> str:
    """One turn, and the id of the conversation that holds it; the answer is appended to the history."""
    got = client.chat(said, **asked)
    assert got.status_code == 200, got.text
    said.append(assistant(got.json()["choices"][0]["message"]["content"]))
    return got.headers["x-tidemark-conversation"]


def summarized(bench: Bench, client: Client, said: list[Said], text: str = FIRST) -> str:
    """A conversation with a summary of all but its newest message."""
    bench.upstream.script = writes(text)
    conversation = stored(client, said)
    got = ask(client, conversation, "summarize", {"retention_tokens": 0})
    assert got.status_code == 200, got.text
    return conversation


def sent_summary(bench: Bench) -> str:
    """The summary in what was forwarded last."""
    (summary,) = [
        str(message["content"]) for message in bench.upstream.last.messages if "Summary of earlier" in str(message)
    ]
    return summary


@pytest.fixture
def writer(bench: Bench, request: pytest.FixtureRequest) -> Client:
    """A client of a Tidemark whose summaries a model writes."""
    return bench.client(request.node.nodeid, strategy="llm")


def test_a_preview_is_not_in_use_until_somebody_uses_it(bench: Bench, writer: Client) -> None:
    """Both are shown; the next request still carries the present one, and after the use exactly the previewed one."""
    said = [*history(4), user("What now?")]
    conversation = summarized(bench, writer, said)
    bench.upstream.script = writes(SECOND)
    shown = preview(writer, conversation)
    assert SECOND in shown["summary"]
    assert FIRST in shown["present"]["summary"]
    assert shown["strategy"] == "llm"
    assert shown["tokens_after"] < shown["tokens_before"] == shown["present"]["tokens_before"]
    said.append(user("And then?"))
    stored(writer, said)
    assert FIRST in sent_summary(bench)
    bench.upstream.script = writes("Another model call would give this text.")
    used = change(writer, conversation, preview=shown["preview"])
    assert (used["summary"], used["edited"]) == (shown["summary"], False)
    got = writer.chat([*said, user("So?")])
    assert got.headers["x-tidemark-action"] == "reused"
    assert shown["summary"] in sent_summary(bench)


def test_a_preview_that_is_used_twice_changes_nothing_more(bench: Bench, writer: Client) -> None:
    """A double click; there is one earlier version, not two."""
    conversation = summarized(bench, writer, [*history(4), user("What now?")])
    bench.upstream.script = writes(SECOND)
    shown = preview(writer, conversation)
    assert change(writer, conversation, preview=shown["preview"]) == change(
        writer, conversation, preview=shown["preview"]
    )
    (version,) = in_use(writer, conversation)["versions"]
    assert FIRST in version["text"]


def test_the_strategy_template_and_model_of_a_preview_are_the_persons(bench: Bench, writer: Client) -> None:
    """Requests find the summary all the same, and what wrote it is shown."""
    said = [*history(4), user("What now?")]
    conversation = summarized(bench, writer, said)
    bench.upstream.script = writes(SECOND)
    shown = preview(writer, conversation, strategy="hybrid", template="coding", model="small")
    assert shown["strategy"] == "hybrid"
    assert shown["written_with"].startswith("hybrid:coding:")
    assert shown["written_with"].endswith(":small")
    assert SECOND in shown["summary"]
    change(writer, conversation, preview=shown["preview"])
    assert writer.chat([*said, user("So?")]).headers["x-tidemark-strategy"] == "hybrid"
    assert shown["summary"] in sent_summary(bench)
    assert in_use(writer, conversation)["written_with"] == shown["written_with"]


def test_an_edited_summary_is_used_from_the_next_request_on(bench: Bench, writer: Client) -> None:
    """On another worker too; the text before it stays as a version, and the token counts are exact."""
    said = [*history(4), user("What now?")]
    conversation = summarized(bench, writer, said)
    other = bench.client(writer.key, strategy="llm")
    before = in_use(writer, conversation)
    changed = change(writer, conversation, text=f"  {EDITED}\n", version=before["version"])
    assert (changed["summary"], changed["edited"]) == (EDITED, True)
    got = other.chat([*said, user("And then?")])
    assert got.headers["x-tidemark-action"] == "reused"
    assert EDITED in sent_summary(bench)
    after = in_use(writer, conversation)
    assert (after["text"], after["edited"], after["version"]) == (EDITED, True, changed["version"])
    (version,) = after["versions"]
    assert version["text"] == before["text"]
    assert (version["edited"], version["version"]) == (False, before["version"])
    context = other.http.get(f"/tidemark/conversations/{conversation}/context", headers=other.headers()).json()
    whole = other.chat(context["messages"]).headers["x-tidemark-tokens-before"]
    assert context["tokens"] == int(whole)


def test_the_figures_of_a_changed_summary_are_those_of_the_next_request(bench: Bench, writer: Client) -> None:
    """``tokens_after`` is what a request with the stored messages has."""
    conversation = summarized(bench, writer, [*history(4), user("What now?")])
    changed = change(writer, conversation, text=EDITED)
    context = writer.http.get(f"/tidemark/conversations/{conversation}/context", headers=writer.headers()).json()
    assert changed["tokens_after"] == context["tokens"]


def test_a_later_compaction_builds_on_the_edited_text(bench: Bench, writer: Client) -> None:
    """The summarizer is given it, and not the text before it."""
    said = [*history(4), user("What now?")]
    conversation = summarized(bench, writer, said)
    change(writer, conversation, text=EDITED)
    bench.upstream.script = writes("A summary upon what the person wrote, with the newest points.")
    said += history(6)[8:]
    said.append(user("Now?"))
    stored(writer, said)
    got = ask(writer, conversation, "summarize", {"retention_tokens": 0})
    assert "upon what the person wrote" in got.json()["summary"]
    asked = str(bench.upstream.last.messages)
    assert EDITED in asked
    assert FIRST not in asked


def test_a_regenerated_summary_takes_in_the_edited_one_before_it(bench: Bench, writer: Client) -> None:
    """A cascade: the newest summary is made again of the edited text and the messages since."""
    said = [*history(4), user("What now?")]
    conversation = summarized(bench, writer, said)
    change(writer, conversation, text=EDITED)
    said += history(6)[8:]
    said.append(user("Now?"))
    stored(writer, said)
    ask(writer, conversation, "summarize", {"retention_tokens": 0})
    preview(writer, conversation)
    assert EDITED in str(bench.upstream.last.messages)


def test_what_was_prepared_before_the_edit_does_not_bring_the_old_text_back(bench: Bench) -> None:
    """Above the prepare mark the next summary waits already; it had taken in the text that was edited."""
    client = bench.client("prepared before the edit", strategy="llm")
    said = [*history(4), user("What now?")]
    conversation = summarized(bench, client, said)
    bench.upstream.script = writes("Prepared upon the old text, with the points since then.")
    number = 8
    while True:  # until a summary is prepared
        said += [*history(number + 1)[2 * number :], user(f"Question {number}?")]
        got = client.chat(said)
        assert got.headers["x-tidemark-action"] == "reused"
        said.append(assistant("Hello there."))
        number += 1
        bench.settle()
        if "You summarize" in str(bench.upstream.last.messages[0]["content"]):
            break
    change(client, conversation, text=EDITED)
    bench.upstream.script = writes("Made upon what the person wrote, with all points since then.")
    asked = len(bench.upstream.received)
    while got.headers["x-tidemark-action"] == "reused":
        said += [*history(number + 1)[2 * number :], user(f"Question {number}?")]
        got = client.chat(said)
        said.append(assistant("Hello there."))
        number += 1
        bench.settle()
    forwarded = [str(request.messages) for request in bench.upstream.received[asked:]]
    assert not any("Prepared upon the old text" in text for text in forwarded)
    assert "Made upon what the person wrote" in sent_summary(bench)
    assert any(EDITED in text and "You summarize" in text for text in forwarded)


def test_a_fork_before_the_summary_is_not_affected(bench: Bench, writer: Client) -> None:
    """Its messages are others, so no summary of theirs changes."""
    said = [*history(4), user("What now?")]
    conversation = summarized(bench, writer, said)
    fork = [*said[:3], user("Something else."), assistant("Well."), *history(6)[8:], user("And?")]
    other = summarized(bench, writer, fork, "The fork has a summary of its own, with its points.")
    assert other != conversation
    change(writer, conversation, text=EDITED)
    writer.chat([*fork, user("Go on.")])
    assert "The fork has a summary of its own" in sent_summary(bench)
    writer.chat([*said, user("Go on.")])
    assert EDITED in sent_summary(bench)


def test_of_two_people_who_edit_the_second_is_told(bench: Bench, writer: Client) -> None:
    """Nothing is replaced; the same text twice is no conflict."""
    conversation = summarized(bench, writer, [*history(4), user("What now?")])
    version = in_use(writer, conversation)["version"]
    shown = preview(writer, conversation)
    change(writer, conversation, text=EDITED, version=version)
    assert change(writer, conversation, text=EDITED, version=version)["summary"] == EDITED
    for body in ({"text": "Another text.", "version": version}, {"preview": shown["preview"]}):
        assert code_of(ask(writer, conversation, "summaries", body)) == (409, "summary_conflict")
    assert in_use(writer, conversation)["text"] == EDITED


@pytest.mark.parametrize("text", ["", "  \n ", "word " * 400])
def test_a_text_of_no_length_or_beyond_the_bound_is_refused(bench: Bench, writer: Client, text: str) -> None:
    """The message tells the range; the largest text that it allows is taken."""
    conversation = summarized(bench, writer, [*history(4), user("What now?")])
    got = ask(writer, conversation, "summaries", {"text": text})
    assert code_of(got) == (400, "invalid_summary_length")
    assert got.json()["error"]["param"] == "text"
    most = change(writer, conversation, text=EDITED)["max_text_tokens"]
    assert f"1 to {most} tokens" in got.json()["error"]["message"]
    at_most = change(writer, conversation, text="word" + " word" * (most - 1))
    assert at_most["text_tokens"] == most
    assert code_of(ask(writer, conversation, "summaries", {"text": "word" + " word" * most}))[0] == 400


@pytest.mark.parametrize(
    ("path", "body", "refusal"),
    [
        ("summaries", {}, (400, "missing_required_parameter")),
        ("summaries", {"text": "a", "preview": "b"}, (400, "missing_required_parameter")),
        ("summaries", {"text": 5}, (400, "invalid_type")),
        ("summaries", {"preview": "b", "version": "c"}, (400, "invalid_value")),
        ("summaries", {"summary": "a"}, (400, "unknown_parameter")),
        ("summaries", b"{", (400, "invalid_json")),
        ("summaries", {"preview": "nothing of ours"}, (404, "preview_not_found")),
        ("summaries", {"preview": "0" * 32}, (404, "preview_not_found")),
        ("summaries/preview", {"strategy": "magic"}, (400, "invalid_value")),
        ("summaries/preview", {"template": "poem"}, (400, "invalid_value")),
        ("summaries/preview", {"strategy": "extractive", "template": "coding"}, (400, "invalid_value")),
        ("summaries/preview", {"model": "none-such"}, (404, "model_not_found")),
        ("summaries/preview", {"model": 5}, (400, "invalid_type")),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(
    bench: Bench, writer: Client, path: str, body: Any, refusal: tuple[int, str]
) -> None:
    """In OpenAI's envelope."""
    conversation = summarized(bench, writer, [*history(4), user("What now?")])
    assert code_of(ask(writer, conversation, path, body)) == refusal
    assert FIRST in in_use(writer, conversation)["text"]


def test_a_conversation_without_a_summary_has_nothing_to_change(client: Client) -> None:
    """It is summarized first."""
    conversation = stored(client, [*history(4), user("What now?")])
    assert code_of(ask(client, conversation, "summaries", {"text": EDITED})) == (409, "no_summary")
    assert code_of(ask(client, conversation, "summaries/preview")) == (409, "no_summary")


def test_a_summarizer_that_fails_leaves_everything_as_it_is(bench: Bench, writer: Client) -> None:
    """The error says so."""
    conversation = summarized(bench, writer, [*history(4), user("What now?")])
    bench.upstream.script = writes("")
    got = ask(writer, conversation, "summaries/preview")
    assert code_of(got) == (503, "compaction_failed")
    assert "nothing was changed" in got.json()["error"]["message"]
    assert FIRST in in_use(writer, conversation)["text"]


def test_another_tenants_summary_is_out_of_reach(bench: Bench, writer: Client) -> None:
    """The answer is that of a conversation that does not exist."""
    conversation = summarized(bench, writer, [*history(4), user("What now?")])
    for path, body in (("summaries", {"text": EDITED}), ("summaries/preview", {})):
        assert code_of(ask(writer, conversation, path, body, key="another")) == (404, "conversation_not_found")


def test_the_clients_own_name_leads_to_the_conversation(bench: Bench, writer: Client) -> None:
    """As where it is read."""
    said = [*history(4), user("What now?")]
    bench.upstream.script = writes(FIRST)
    stored(writer, said, conversation="my boat")
    assert ask(writer, "my boat", "summarize", {"retention_tokens": 0}).status_code == 200
    assert change(writer, "my boat", text=EDITED)["summary"] == EDITED


def test_half_of_a_character_is_replaced(bench: Bench, writer: Client) -> None:
    """No text is a fault of ours."""
    conversation = summarized(bench, writer, [*history(4), user("What now?")])
    got = ask(writer, conversation, "summaries", b'{"text": "A boat \\ud83d sails."}')
    assert (got.status_code, got.json()["summary"]) == (200, "A boat ? sails.")


def test_a_summary_that_was_being_made_upon_the_old_text_stays_out_of_use(bench: Bench, writer: Client) -> None:
    """Its request had begun before the edit; one that begins after it does not wait for it, and gets the new text."""
    said = [*history(4), user("What now?")]
    conversation = summarized(bench, writer, said)
    said += [*history(6)[8:], user("Now?")]
    asked, go_on = threading.Event(), threading.Event()

    def late(request: Received) -> Any:
        if "You summarize" not in str(request.messages[0]["content"]):
            return says("Hello there.")(request)
        if EDITED in str(request.messages):
            return says("Made upon what the person wrote, with the newest points.")(request)
        asked.set()
        return replace(says("Made upon the old text, with the newest points since.")(request), waits=[go_on])

    bench.upstream.script = late
    forced = {"summarize": "force", "retention_tokens": "0"}
    with ThreadPoolExecutor() as pool:
        early = pool.submit(writer.chat, said, **forced)
        assert asked.wait(20)
        change(writer, conversation, text=EDITED)
        later = writer.chat(said, **forced)
        assert "Made upon what the person wrote" in sent_summary(bench)
        go_on.set()
        assert early.result().headers["x-tidemark-action"] == "forced"
    assert "x-tidemark-degraded" not in early.result().headers
    assert later.headers["x-tidemark-action"] == "forced"
    writer.chat([*said, assistant("Hello there."), user("So?")])
    assert "Made upon what the person wrote" in sent_summary(bench)


def test_what_the_model_saw_before_an_edit_can_still_be_shown(bench: Bench, writer: Client) -> None:
    """The earlier version stands in the context of a message of that time."""
    said = [*history(4), user("What now?")]
    conversation = summarized(bench, writer, said)
    said.append(user("And then?"))
    stored(writer, said)
    seen = sent_summary(bench)
    change(writer, conversation, text=EDITED)
    got = writer.http.get(f"/tidemark/conversations/{conversation}/context?at={len(said)}", headers=writer.headers())
    shown = got.json()
    assert shown["exact"]
    assert str(shown["messages"][0]["content"]) == seen


def test_a_preview_never_goes_to_a_model_of_another_upstream(bench: Bench) -> None:
    """It would receive what was never sent to it; the answer is that of a conversation that does not exist."""
    config = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
  - model_name: other
    litellm_params: {{model: openai/scripted, api_base: "{base}/elsewhere"}}
compaction:
  defaults: {{strategy: {strategy}, retention_tokens: 200, min_tokens: 300{more}}}
"""
    client = bench.client("another upstream", strategy="llm", config=config)
    conversation = summarized(bench, client, [*history(4), user("What now?")])
    asked = len(bench.upstream.received)
    got = ask(client, conversation, "summaries/preview", {"model": "other"})
    assert code_of(got) == (404, "conversation_not_found")
    assert len(bench.upstream.received) == asked
