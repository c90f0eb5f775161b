"""Compaction as a client sees it: marks, reuse, cascade, force, forks, restarts, tenants."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.request.conftest import Bench, Client
from tests.request.talk import Said, assistant, history, long, system, user
from tests.support.scripted import Answer, Received, ScriptedUpstream, error, says, whole
from tidemark.store.embedded.server import EmbeddedValkey

OPENING = "Summary of earlier turns"


def summaries(request: Received) -> list[str]:
    """The texts of the summary messages that were forwarded."""
    return [said["content"] for said in request.messages if str(said.get("content")).startswith(OPENING)]


def talk(client: Client, upstream: ScriptedUpstream, said: list[Said], turns: int, words: int = 60) -> list[str]:
    """Go on with a conversation; the history grows in ``said``. Returns what was done at each turn."""
    actions = []
    for _ in range(turns):
        number = len(said)
        said.append(user(long(number, words)))
        answer = long(number + 1, words)
        upstream.script = says(answer)
        got = client.chat(said)
        assert got.status_code == 200, got.text
        assert int(got.headers["x-tidemark-tokens-after"]) <= int(got.headers["x-tidemark-limit"])
        actions.append(got.headers["x-tidemark-action"])
        said.append(assistant(answer))
    return actions


def test_a_conversation_goes_on_past_its_window(bench: Bench, client: Client) -> None:
    """The main job: it is compacted when due, then reused until it is due again, and never refused."""
    said = [system("Be brief.")]
    actions = talk(client, bench.upstream, said, 60)
    assert actions.count("compacted") >= 2
    first = actions.index("compacted")
    assert set(actions[:first]) == {"none"}
    assert set(actions[first:]) == {"compacted", "reused"}
    assert "compacted" not in actions[first + 1 : first + 4], "some turns fit above the low water"


def test_between_two_compactions_the_forwarded_prefix_is_frozen(bench: Bench, client: Client) -> None:
    """Promise 5: a reused request begins with the bytes of the one before it."""
    said = [system("Be brief.")]
    actions = talk(client, bench.upstream, said, 50)
    bodies = [request.body for request in bench.upstream.received]
    reused = [turn for turn, action in enumerate(actions) if action == "reused"]
    assert reused
    for turn in reused:
        before = bodies[turn - 1].split(b'],"max_tokens"')[0]
        assert bodies[turn].startswith(before)


def test_the_summary_stands_after_the_clients_system_messages(bench: Bench, client: Client) -> None:
    """Promise 2: head, ONE summary message, kept turns; the newest message as it was."""
    said = [system("First."), {"role": "developer", "content": "Second."}, *history(16), user("And now?")]
    got = client.chat(said)
    sent = bench.upstream.last.messages
    assert got.headers["x-tidemark-action"] == "compacted"
    assert sent[:2] == said[:2]
    assert sent[2]["role"] == "system"
    assert sent[2]["content"].startswith(OPENING)
    assert len(summaries(bench.upstream.last)) == 1
    gone = int(got.headers["x-tidemark-summarized-messages"])
    assert sent[3:] == said[2 + gone :]
    assert got.headers["x-tidemark-strategy"] == "extractive"
    assert int(got.headers["x-tidemark-tokens-after"]) < int(got.headers["x-tidemark-tokens-before"])
    assert int(got.headers["x-tidemark-tokens-after"]) <= 0.45 * int(got.headers["x-tidemark-limit"]) + 1


def test_the_next_summary_takes_in_the_one_before(bench: Bench, client: Client) -> None:
    """FR-1.4.2: what only the first summary tells is still told by the second."""
    said: list[Said] = [
        user("My boat is called Arcturus and you must never sail after dark."),
        assistant("Understood."),
    ]
    talk(client, bench.upstream, said, 55)
    texts = {summaries(request)[0] for request in bench.upstream.received if summaries(request)}
    assert len(texts) >= 2
    assert all("Arcturus" in text for text in texts)
    assert all("never sail after dark" in text for text in texts)


def test_force_compacts_now_and_the_conversation_stays_compacted(bench: Bench, client: Client) -> None:
    """``X-Tidemark-Summarize: force``: far below the high water; FR-2.4.1: later turns use the summary."""
    said = [*history(4), user("What now?")]
    forced = client.chat(said, summarize="force")
    assert forced.headers["x-tidemark-action"] == "forced"
    assert "below the minimum" not in forced.headers.get("x-tidemark-warning", "")
    assert summaries(bench.upstream.last)
    later = client.chat([*said, assistant("Hello there."), user("And then?")])
    assert later.headers["x-tidemark-action"] == "reused"
    assert summaries(bench.upstream.received[-1]) == summaries(bench.upstream.received[-2])


def test_force_below_the_minimum_is_done_with_a_warning(bench: Bench, client: Client) -> None:
    """FR-5.4.2."""
    got = client.chat([*history(2, 40), user("So?")], summarize="force", retention_tokens="50")
    assert got.headers["x-tidemark-action"] == "forced"
    assert "below the minimum of 300" in got.headers["x-tidemark-warning"]


def test_force_with_nothing_to_summarize_says_so(bench: Bench, client: Client) -> None:
    """The newest message is never summarized; the request goes out as it came."""
    got = client.chat([user("Only this.")], summarize="force")
    assert got.headers["x-tidemark-action"] == "none"
    assert "nothing to summarize" in got.headers["x-tidemark-warning"]


def test_the_requests_own_retention_is_kept(bench: Bench, client: Client) -> None:
    """FR-2.2.2: ``X-Tidemark-Retention-Tokens`` in place of the configured one."""
    said = [*history(6), user("Now?")]
    few = client.chat(said, summarize="force", retention_tokens="10")
    assert len(bench.upstream.last.messages) == 2
    assert few.headers["x-tidemark-summarized-messages"] == "12"


def test_off_forwards_the_request_as_it_is(bench: Bench, client: Client) -> None:
    """``X-Tidemark-Summarize: off`` bypasses, over the limit too: the upstream judges."""
    said = [*history(40), user("Now?")]
    got = client.chat(said, summarize="off")
    assert got.headers["x-tidemark-action"] == "bypassed"
    assert bench.upstream.last.messages == said


def test_a_fork_and_a_rewind_use_the_newest_summary_that_is_still_true(bench: Bench, client: Client) -> None:
    """An edit after the summarized part shares the summary; one inside it falls back to what is true."""
    said = [system("Be brief.")]
    talk(client, bench.upstream, said, 30)
    covered = int(client.chat([*said, user("x")]).headers["x-tidemark-summarized-messages"])
    kept = summaries(bench.upstream.last)
    fork = [*said[:-2], user("Something else altogether.")]
    got = client.chat(fork)
    assert got.headers["x-tidemark-action"] == "reused"
    assert summaries(bench.upstream.last) == kept
    edited = [*said]
    edited[covered] = user("An edit inside the summarized part.")
    got = client.chat([*edited, user("y")])
    assert got.headers["x-tidemark-action"] == "compacted"
    assert "An edit inside" in summaries(bench.upstream.last)[0] or summaries(bench.upstream.last) != kept
    short = [*said[:4], user("Back at the start.")]
    got = client.chat(short)
    assert got.headers["x-tidemark-action"] == "none"
    assert bench.upstream.last.messages == short


def test_two_conversations_with_the_same_opening_do_not_meet(bench: Bench, client: Client) -> None:
    """FIELD.md: they thrash elsewhere; here each has its own summaries, and the ids part where they do."""
    first, second = [user("Hello")], [user("Hello")]
    bench.upstream.script = says("Hi.")
    client.chat(first)
    first.append(assistant("Hi."))
    second.append(assistant("Hi."))
    texts: dict[int, Any] = {}
    for turn in range(40):
        for which, said in enumerate((first, second)):
            said.append(user(f"conversation {which} " + long(turn)))
            bench.upstream.script = says(f"answer {which} " + long(turn))
            got = client.chat(said)
            assert got.status_code == 200
            texts[which] = (got.headers["x-tidemark-conversation"], summaries(bench.upstream.last), got)
            said.append(assistant(f"answer {which} " + long(turn)))
    assert texts[0][0] != texts[1][0]
    assert "conversation 1" not in texts[0][1][0]
    assert "conversation 0" not in texts[1][1][0]


def test_two_tenants_with_the_same_text_share_nothing(bench: Bench, client: Client) -> None:
    """Promise 8: another credential, another conversation; the summary is made anew."""
    said = [*history(16), user("Now?")]
    mine = client.chat(said)
    other = Client(client.http, key=client.key + "other")
    theirs = other.chat(said)
    assert mine.headers["x-tidemark-action"] == theirs.headers["x-tidemark-action"] == "compacted"
    assert mine.headers["x-tidemark-conversation"] != theirs.headers["x-tidemark-conversation"]


def test_a_named_conversation_is_its_own(bench: Bench, client: Client) -> None:
    """``X-Tidemark-Conversation`` sets conversations of equal text apart."""
    said = [*history(16), user("Now?")]
    one = client.chat(said, conversation="one")
    two = client.chat(said, conversation="two")
    again = client.chat([*said, assistant("Hello there."), user("And?")], conversation="one")
    ids = [got.headers["x-tidemark-conversation"] for got in (one, two, again)]
    assert ids[0] == ids[2] != ids[1]
    assert [got.headers["x-tidemark-action"] for got in (one, two, again)] == ["compacted", "compacted", "reused"]


def test_summaries_and_history_outlive_a_restart(bench: Bench, tmp_path: Path) -> None:
    """A new process on the same folder goes on where the old one stopped, to the byte."""
    said = [system("Be brief.")]
    with EmbeddedValkey(tmp_path / "own") as server:
        client = bench.client("restart", store=server.url)
        talk(client, bench.upstream, said, 20)
        before = summaries(bench.upstream.last)
    with EmbeddedValkey(tmp_path / "own") as server:
        client = bench.client("restart", store=server.url)
        got = client.chat([*said, user("Still there?")])
    assert before
    assert got.headers["x-tidemark-action"] == "reused"
    assert summaries(bench.upstream.last) == before


def test_a_store_that_is_gone_stops_no_request(bench: Bench, tmp_path: Path) -> None:
    """Requests flow, over budget they are compacted from the request alone, and the header says so."""
    with EmbeddedValkey(tmp_path / "own") as server:
        client = bench.client("gone", store=server.url)
        assert client.chat([user("hi")]).headers["x-tidemark-store"] == "ok"
    said = [*history(16), user("Now?")]
    first = client.chat(said)
    second = client.chat([*said, assistant("Hello there."), user("And?")])
    for got in (first, second):
        assert got.status_code == 200
        assert got.headers["x-tidemark-store"] == "degraded"
        assert got.headers["x-tidemark-action"] == "compacted"


def test_what_cannot_fit_is_refused_in_openais_words(bench: Bench, client: Client) -> None:
    """Promise 4: never a silent overflow; the error has the code and the numbers, and nothing is sent."""
    got = client.chat([user("word " * 5000)])
    told = got.json()["error"]
    assert got.status_code == 400
    assert (told["code"], told["type"], told["param"]) == (
        "context_length_exceeded",
        "invalid_request_error",
        "messages",
    )
    assert "2000 tokens" in told["message"]
    assert got.headers["x-tidemark-action"] == "failed"
    assert not bench.upstream.received


def test_the_reply_reserve_follows_the_request(client: Client) -> None:
    """A longer reply leaves less for the input, down to the model's longest one: 200 tokens."""
    limits = []
    for wanted in ({"max_tokens": 100}, {"max_completion_tokens": 700}, {}):
        got = client.post({"model": "small", "messages": [user("hi")], **wanted})
        limits.append(int(got.headers["x-tidemark-limit"]))
    assert limits == [1800, 1700, 1700]


@pytest.mark.parametrize("round_size", [1, 3])
def test_an_agent_loop_is_compacted_inside_its_only_turn(bench: Bench, client: Client, round_size: int) -> None:
    """One message of the user and many tool rounds; calls and results never part, parallel ones neither."""
    said: list[Said] = [system("You are an agent."), user("Find the bug in the parser and never touch main.py.")]
    for number in range(40):
        ids = [f"call_{number}_{i}" for i in range(round_size)]
        calls = [
            {"id": one, "type": "function", "function": {"name": "read", "arguments": f'{{"path": "f{number}.py"}}'}}
            for one in ids
        ]
        said.append({"role": "assistant", "content": None, "tool_calls": calls})
        said += [{"role": "tool", "tool_call_id": one, "content": long(number, 50)} for one in reversed(ids)]
        got = client.chat(said)
        assert got.status_code == 200, got.text
        sent = bench.upstream.last.messages
        called = {call["id"] for message in sent for call in message.get("tool_calls") or ()}
        answered = {message["tool_call_id"] for message in sent if message["role"] == "tool"}
        assert called == answered
        assert sent[-1] == said[-1]
    assert "never touch main.py" in summaries(bench.upstream.last)[0]


def test_an_upstreams_overflow_is_learned_and_replayed_once(bench: Bench, client: Client) -> None:
    """As docs/wire.md says, a window that proves too large is replayed at the smaller size, before the first byte."""

    def tight(request: Received) -> Answer:
        size = len(request.body) // 4
        if size > 300:
            told = (
                f"This model's maximum context length is 300 tokens. However, your messages resulted in {size} tokens."
            )
            return error(400, told, code="context_length_exceeded")
        return whole("Fits.")

    bench.upstream.script = tight
    said = [*history(7), user("Now?")]
    got = client.chat(said)
    assert got.status_code == 200, got.text
    assert len(bench.upstream.received) == 2
    assert "sent again" in got.headers["x-tidemark-warning"]
    assert got.headers["x-tidemark-action"] == "compacted"
    later = client.chat([*said, assistant("Fits."), user("And now?")])
    assert later.status_code == 200
    assert len(bench.upstream.received) == 3, "what was learned is known at once the next time"
