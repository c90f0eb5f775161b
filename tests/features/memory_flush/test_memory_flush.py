"""What leaves the context is told: exactly those messages, once, with what stands for them, and nobody waits (S0-4)."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from tests.request.compaction.test_background_summaries import Talk, replying
from tests.request.compaction.test_compaction import summaries, talk
from tests.request.compaction.test_oversize import HUGE, PARALLEL
from tests.request.compaction.test_summarizers import SUMMARY
from tests.request.conftest import Bench, Client, benched
from tests.request.talk import Said, history, long, system, user
from tests.support.fresh_stores import fresh_store
from tests.support.scripted import Answer, Received, error, says, whole
from tests.support.waiting import wait_until, whole_lines
from tidemark.store.embedded.server import EmbeddedValkey

CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: {strategy}, retention_tokens: 200, min_tokens: 300}}
memory_flush: {{enabled: true}}
"""


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A server of the test's own: the queue is one for all tenants."""
    with fresh_store() as server:
        yield server


@pytest.fixture
def bench(valkey: EmbeddedValkey, tmp_path: Path) -> Iterator[Bench]:
    """A bench with the memory flush on."""
    with benched(valkey.url, tmp_path) as made:
        yield made


@pytest.fixture
def client(bench: Bench) -> Client:
    """A client of a Tidemark that tells what leaves."""
    return bench.client("k", config=CONFIG)


def daily_lines(folder: Path) -> list[dict[str, Any]]:
    """The lines of the daily tier, oldest first."""
    files = sorted((folder / "flush").glob("*/*.jsonl"))
    return [json.loads(line) for path in files for line in whole_lines(path)]


def arrived(folder: Path, count: int) -> list[dict[str, Any]]:
    """The same, as soon as there are so many; no more come in the next moment."""
    wait_until(lambda: len(daily_lines(folder)) >= count)
    time.sleep(0.3)
    lines = daily_lines(folder)
    assert len(lines) == count
    return lines


def said_of(messages: list[Said]) -> list[Said]:
    """Those that are no system messages."""
    return [one for one in messages if one["role"] != "system"]


def test_exactly_the_messages_that_leave_are_told_and_each_once(bench: Bench, client: Client, tmp_path: Path) -> None:
    """Compaction after compaction: put together they are the conversation's beginning, without gap or repetition."""
    said = [system("Be brief.")]
    actions = talk(client, bench.upstream, said, 60)
    told = arrived(tmp_path, actions.count("compacted"))
    assert len(told) >= 2
    assert [message for one in told for message in one["messages"]] == said_of(said)[: told[-1]["last"]]
    assert [one["first"] for one in told] == [1, *(one["last"] + 1 for one in told[:-1])]
    assert {one["conversation"] for one in told} == {client.chat(said).headers["x-tidemark-conversation"]}
    assert len({one["key"] for one in told}) == len(told)


def test_the_summary_that_replaces_them_is_told_with_the_counts(bench: Bench, client: Client, tmp_path: Path) -> None:
    """The text is the one that the model is given, and the tokens are those of the message it stands in."""
    got = client.chat([*history(16), user("And now?")])
    (one,) = arrived(tmp_path, 1)
    assert one["summary"]["text"] in summaries(bench.upstream.last)[0]
    assert one["summary"]["covered"] == one["last"] == int(got.headers["x-tidemark-summarized-messages"])
    assert one["summary"]["strategy"] == "extractive"
    before, after = int(got.headers["x-tidemark-tokens-before"]), int(got.headers["x-tidemark-tokens-after"])
    assert before - one["tokens"]["messages"] + one["tokens"]["summary"] == pytest.approx(after, abs=20)
    assert one["tenant"] == next((tmp_path / "flush").iterdir()).name
    assert one["model"] == "small"
    assert abs(time.time() - one["at"]) < 60


def test_what_leaves_is_noted_in_the_store_before_the_upstream_is_asked(
    bench: Bench, client: Client, valkey: EmbeddedValkey
) -> None:
    """So whatever happens from then on, somebody knows of it."""
    known: list[int] = []
    with redis.Redis.from_url(valkey.url) as admin:

        def script(request: Received) -> Answer:
            noted, queued = admin.hlen("tm:{flush}:o"), admin.xlen("tm:{flush}:s")
            known.append(int(noted) + int(queued))
            return whole("So.")

        bench.upstream.script = script
        assert client.chat([*history(16), user("And now?")]).headers["x-tidemark-action"] == "compacted"
    assert known
    assert known[0] >= 1


def test_a_frozen_summary_that_is_used_again_tells_nothing(bench: Bench, client: Client, tmp_path: Path) -> None:
    """Nor does a request that is sent once more, nor a fork that goes on from the same summary."""
    said = [*history(16), user("And now?")]
    client.chat(said)
    client.chat(said)
    client.chat([*said, {"role": "assistant", "content": "So."}, user("And then?")])
    got = client.chat([*said[:-1], user("Something else?")])
    assert got.headers["x-tidemark-action"] == "reused"
    arrived(tmp_path, 1)


def test_a_prepared_summary_tells_when_it_is_put_into_use_and_not_before(bench: Bench, tmp_path: Path) -> None:
    """While it waits, the messages are still in the context."""
    bench.upstream.script = replying(says(SUMMARY))
    talking = Talk(bench.client("k", config=CONFIG, strategy="llm", window=4000))
    for got in talking.until("compacted"):
        if got.headers["x-tidemark-action"] == "none":
            assert daily_lines(tmp_path) == []
    (one,) = arrived(tmp_path, 1)
    assert one["summary"]["cause"] == "prepared"
    assert one["messages"] == talking.messages[: one["last"]]


def test_a_tool_result_that_was_clipped_is_told_as_it_came(bench: Bench, client: Client, tmp_path: Path) -> None:
    """What leaves is the client's own message, not what was made of it for the request."""
    assert "clipped" in client.chat(PARALLEL).headers["x-tidemark-warning"]
    said = [*PARALLEL, {"role": "assistant", "content": "Compared."}, *history(16), user("And now?")]
    assert client.chat(said).headers["x-tidemark-action"] == "compacted"
    (one,) = arrived(tmp_path, 1)
    assert one["messages"] == said_of(said)[: one["last"]]
    assert one["messages"][2]["content"] == HUGE


def test_a_system_message_that_the_summary_takes_in_leaves_too(bench: Bench, tmp_path: Path) -> None:
    """In its place among the others; those that stay are not told."""
    client = bench.client("k", config=CONFIG, window=1000)
    inner = [system(long(90 + number, 120)) for number in range(6)]
    said: list[Said] = [system("Be brief.")]
    for number, one in enumerate(inner):
        said += [user(long(number, 40)), one]
    said.append(user("And now?"))
    got = client.chat(said)
    (told,) = arrived(tmp_path, 1)
    forwarded = bench.upstream.last.messages
    assert got.status_code == 200
    gone = [one for one in said if one not in forwarded]
    assert any(one["role"] == "system" for one in gone)
    assert told["messages"] == gone


def test_a_compaction_by_hand_tells_too_and_making_it_anew_does_not(client: Client, tmp_path: Path) -> None:
    """The same messages have left once."""
    talked = client.chat([*history(6), user("And now?")])
    conversation = talked.headers["x-tidemark-conversation"]
    by_hand = f"/tidemark/conversations/{conversation}/summarize"
    got = client.http.post(by_hand, json={"retention_tokens": 100}, headers=client.headers())
    assert got.status_code == 200, got.text
    (one,) = arrived(tmp_path, 1)
    assert one["messages"] == history(6)[: one["last"]]
    again = client.http.post(by_hand, json={"regenerate": True}, headers=client.headers())
    assert again.status_code == 200, again.text
    arrived(tmp_path, 1)


def test_a_request_that_the_upstream_refuses_has_told_all_the_same(
    bench: Bench, client: Client, tmp_path: Path
) -> None:
    """The summary is in use: the next request finds it."""
    bench.upstream.script = lambda _: error(500, "out of order")
    said = [*history(16), user("And now?")]
    assert client.chat(said).status_code == 500
    (one,) = arrived(tmp_path, 1)
    assert one["messages"] == said[: one["last"]]
    bench.upstream.script = says("So.")
    assert client.chat(said).headers["x-tidemark-action"] == "reused"
    arrived(tmp_path, 1)


def test_a_replay_after_the_upstreams_overflow_tells_only_what_leaves_besides(
    bench: Bench, client: Client, tmp_path: Path
) -> None:
    """One request, compacted twice: the second time for a smaller window, and what had left then has left."""
    refusal = "This model's maximum context length is 700 tokens. However, your messages resulted in 900 tokens."
    answers = [error(400, refusal, code="context_length_exceeded"), whole("So.")]
    bench.upstream.script = lambda _: answers.pop(0)
    said = [*history(16), user("And now?")]
    assert client.chat(said).status_code == 200
    assert answers == []
    first, second = arrived(tmp_path, 2)
    assert second["first"] == first["last"] + 1
    assert [*first["messages"], *second["messages"]] == said[: second["last"]]


def test_while_the_store_is_away_requests_are_served_and_what_left_is_told_later(
    bench: Bench, client: Client, valkey: EmbeddedValkey, tmp_path: Path
) -> None:
    """Of a conversation that was compacted anew in each request, once, for its last one."""
    said = [*history(16), user("And now?")]
    valkey.stop()
    for number in range(3):
        got = client.chat(said)
        assert got.headers["x-tidemark-store"] == "degraded"
        assert got.headers["x-tidemark-action"] == "compacted"
        said += [{"role": "assistant", "content": "So."}, user(long(100 + number))]
    assert daily_lines(tmp_path) == []
    valkey.start()
    wait_until(lambda: len(daily_lines(tmp_path)) >= 1, 40)
    (one,) = arrived(tmp_path, 1)
    assert one["messages"] == said[: one["last"]]


def test_what_had_left_before_the_store_went_away_is_not_told_again(
    bench: Bench, client: Client, valkey: EmbeddedValkey, tmp_path: Path
) -> None:
    """A request without the store cannot know; the outbox asks when the store is back."""
    said = [*history(16), user("And now?")]
    client.chat(said)
    (before,) = arrived(tmp_path, 1)
    valkey.stop()
    said += [{"role": "assistant", "content": "So."}, *history(14)[1:], user(long(77))]
    got = client.chat(said)
    assert got.headers["x-tidemark-store"] == "degraded"
    valkey.start()
    wait_until(lambda: len(daily_lines(tmp_path)) >= 2, 40)
    after = arrived(tmp_path, 2)[1]
    assert after["first"] == before["last"] + 1
    assert after["messages"] == said[before["last"] : after["last"]]


def test_switched_off_it_leaves_no_trace_in_the_store(bench: Bench, valkey: EmbeddedValkey, tmp_path: Path) -> None:
    """Off is the default: no key, no file, no command more than without it."""
    client = bench.client("k")
    assert client.chat([*history(16), user("And now?")]).headers["x-tidemark-action"] == "compacted"
    with redis.Redis.from_url(valkey.url) as admin:
        assert [one for one in admin.scan_iter("tm:*") if b"{flush}" in one] == []
    assert not (tmp_path / "flush").exists()


def test_the_metrics_tell_of_queue_and_deliveries(client: Client, tmp_path: Path) -> None:
    """Length, age, deliveries, dead letters."""
    client.chat([*history(16), user("And now?")])
    arrived(tmp_path, 1)

    def tells(line: str) -> Callable[[], bool]:
        return lambda: line in client.http.get("/metrics").text

    wait_until(tells('tidemark_flush_deliveries_total{consumer="daily",outcome="delivered"} 1.0'))
    wait_until(tells('tidemark_flushes_total{outcome="queued"} 1.0'))
    wait_until(tells('tidemark_flush_queue_length{consumer="daily"} 0.0'))
    wait_until(tells('tidemark_flush_queue_age_seconds{consumer="daily"} 0.0'))
    wait_until(tells("tidemark_flush_dead_letters 0.0"))


def test_a_forgotten_conversation_is_gone_from_queue_and_files(
    bench: Bench, client: Client, valkey: EmbeddedValkey, tmp_path: Path
) -> None:
    """``DELETE`` reaches what left the context as well; other conversations' lines stay."""
    gone = client.chat([*history(16), user("And now?")]).headers["x-tidemark-conversation"]
    stays = client.chat([user("Another one."), *history(16), user("And now?")]).headers["x-tidemark-conversation"]
    arrived(tmp_path, 2)
    answer = client.http.delete(f"/tidemark/conversations/{gone}", headers=client.headers())
    assert answer.status_code == 200
    assert [one["conversation"] for one in daily_lines(tmp_path)] == [stays]
    with redis.Redis.from_url(valkey.url) as admin:
        entries = repr(admin.xrange("tm:{flush}:s"))
    assert gone not in entries
    assert stays in entries
