"""What is redacted is neither stored nor summarized, and every request goes out as it came in."""

from __future__ import annotations

import asyncio
import json
import re
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import given
from hypothesis import strategies as st

from tests.features.memory_flush.test_memory_flush import CONFIG
from tests.request.compaction.test_sealed import values
from tests.request.compaction.test_summarizers import is_summary_call, upstream_with
from tests.request.conftest import Bench, Client, benched
from tests.request.talk import Said, assistant, long, system, user
from tests.support.fresh_stores import fresh_store
from tests.support.scripted import says
from tests.support.waiting import wait_until
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.native import NativeForm
from tidemark.core.conversation.summary import PrefixSummary, SummaryRecipe
from tidemark.core.errors import ConfigError, RedactionFailed
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.privacy import redactor as redactor_module
from tidemark.privacy.json_texts import redact_raw, redact_text
from tidemark.privacy.patterns import compiled_patterns, load_hook, problem_of
from tidemark.privacy.redactor import MOST_THREADS, TextRedactor
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.store.redacted_summary import redacted_summary

SECRET = "zebra@example.org"
PRIVACY = "privacy: {{redact: {{email: '[\\w.+-]+@[\\w-]+\\.\\w+'}}}}\n"
HOOK = "privacy: {{hook: 'tests.privacy.hooks:{name}', timeout_seconds: 0.3}}\n"
STORED = {"history": "stored"}


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A server of the test's own: everything in it is read."""
    with fresh_store() as server:
        yield server


@pytest.fixture
def bench(valkey: EmbeddedValkey, tmp_path: Path) -> Iterator[Bench]:
    """A bench before that server."""
    with benched(valkey.url, tmp_path) as made:
        yield made


def hooked(name: str) -> str:
    """The configuration of a hook, as the bench fills it in."""
    return HOOK.format(name=name).replace("{", "{{").replace("}", "}}")


def turn_with_secrets(turn: int) -> list[Said]:
    """What a client adds in one turn, with the secret in every place that it can write to."""
    arguments = json.dumps({"to": SECRET, "n": 1.50, SECRET: [SECRET]})
    call = {"id": f"c{turn}", "type": "function", "function": {"name": "mail", "arguments": arguments}}
    return [
        user(f"Mail {SECRET} about point {turn}: {long(turn, 80)}"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{turn}", "content": json.dumps({"sent": f"<{SECRET}>", "n": turn})},
    ]


def stored_bytes(valkey: EmbeddedValkey) -> bytes:
    """All that a store holds, compressed values opened."""
    read: list[bytes] = []

    def is_read() -> bool:
        with redis.Redis.from_url(valkey.url) as admin, suppress(AssertionError):  # a key may go meanwhile
            read[:] = [where.encode() + b"\n" + value for where, value in values(admin)]
        return bool(read)

    wait_until(is_read)
    return b"".join(read)


def bodies(bench: Bench) -> list[bytes]:
    """What the upstream got so far."""
    return [received.body for received in bench.upstream.received]


def play(bench: Bench, client: Client, turns: int = 9) -> list[str]:
    """Send a growing talk turn by turn; return the id of its conversation at each turn."""
    bench.upstream.script = says(f"I wrote to {SECRET} again.")
    said, ids = [system(f"Write to {SECRET} only.")], list[str]()
    for turn in range(turns):
        said += turn_with_secrets(turn)
        answer = client.chat(said)
        assert answer.status_code == 200, answer.text
        said.append(assistant(answer.json()["choices"][0]["message"]["content"]))
        assert SECRET in answer.text
        ids.append(answer.headers["x-tidemark-conversation"])
    return ids


def test_a_secret_stands_nowhere_and_every_request_goes_out_as_it_came(
    bench: Bench, valkey: EmbeddedValkey, tmp_path: Path
) -> None:
    """Not in the store, summaries, the flush queue, daily files or an export; and the conversation is recognized."""
    client = bench.client("mine", window=1500, config=CONFIG + PRIVACY)
    ids = play(bench, client, 14)
    body = {"model": "small", "input": f"For {SECRET}?", "instructions": f"Ask {SECRET}. " * 30, "store": True}
    client.http.post("/v1/responses", json=body, headers=client.headers())
    items = [{"type": "message", "role": "user", "content": f"The {SECRET}."}]
    kept = {"items": items, "metadata": {"to": SECRET}}
    client.http.post("/v1/conversations", json=kept, headers=client.headers())
    wait_until(lambda: list((tmp_path / "flush").glob("*/*.jsonl")))
    wait_until(lambda: b"[email]" in stored_bytes(valkey))
    exported = client.http.get(f"/tidemark/conversations/{ids[-1]}/export", headers=client.headers()).text
    summaries = client.http.get(f"/tidemark/conversations/{ids[-1]}/summaries", headers=client.headers()).text
    assert len(json.loads(summaries)["data"]) >= 1
    assert "[email]" in exported
    daily = b"".join(path.read_bytes() for path in (tmp_path / "flush").glob("*/*.jsonl"))
    assert b"[email]" in daily
    for place in (stored_bytes(valkey), exported.encode(), summaries.encode(), daily):
        assert b"zebra" not in place
    assert len(set(ids)) == 1
    found = client.http.get(f"/tidemark/conversations/{ids[0]}/search?q=zebra", headers=client.headers()).json()
    assert found["data"] == []


def test_requests_go_out_byte_for_byte_as_without_redaction(bench: Bench) -> None:
    """As long as nothing is summarized. A summary, which Tidemark writes, is redacted in requests, too."""
    play(bench, bench.client("plain", window=100_000, config=CONFIG), 4)
    without = bodies(bench)
    bench.upstream.received.clear()
    client = bench.client("other", window=100_000, config=CONFIG + PRIVACY)
    play(bench, client, 4)
    assert bodies(bench) == without
    assert all(SECRET.encode() in body for body in without)


@pytest.mark.parametrize("strategy", ["llm", "hybrid", "native", "extractive"])
def test_a_summarizer_reads_and_writes_no_secret(bench: Bench, valkey: EmbeddedValkey, strategy: str) -> None:
    """Neither of a message nor of its own making; it is asked with a text of its own, and not by the request."""
    client = bench.client("mine", window=1500, strategy=strategy, config=CONFIG + PRIVACY)
    bench.upstream.script = upstream_with(says("## Context\nThe mails went to walrus@example.org one by one."))
    said = [message for turn in range(14) for message in turn_with_secrets(turn)]
    answer = client.chat(said)
    assert answer.headers["x-tidemark-action"] == "compacted", answer.text
    asked = [received for received in bench.upstream.received if is_summary_call(received)]
    assert bool(asked) == (strategy != "extractive")
    assert not [received for received in asked if b"zebra" in received.body]
    assert len(bench.upstream.received) == len(asked) + 1
    later = client.chat([*said, assistant("Fine."), user("And?")])
    assert later.headers["x-tidemark-conversation"] == answer.headers["x-tidemark-conversation"]
    for received in bench.upstream.received[len(asked) :]:
        summary = next(str(message) for message in received.json["messages"] if "Summary of earlier" in str(message))
        assert "zebra" not in summary
        assert "walrus" not in summary
    assert not [word for word in (b"zebra", b"walrus") if word in stored_bytes(valkey)]


@pytest.mark.parametrize("environ", [{}, {"TIDEMARK_ENCRYPTION_KEY": "ab" * 32}])
def test_a_stored_history_goes_on_with_what_is_stored(
    bench: Bench, valkey: EmbeddedValkey, environ: dict[str, str]
) -> None:
    """The model sees the redacted history; a client that sends an earlier message again repeats nothing."""
    client = bench.client("mine", config=CONFIG + PRIVACY, environ=environ)
    bench.upstream.script = says(f"Hello {SECRET}.")
    first = client.chat([user(f"I am {SECRET}.")], conversation="talk", **STORED)
    second = client.chat([user("Who am I?")], conversation="talk", **STORED)
    sent = bench.upstream.received[-1].json["messages"]
    assert [message["content"] for message in sent] == ["I am [email].", "Hello [email].", "Who am I?"]
    again = [user("Who am I?"), assistant(f"Hello {SECRET}."), user(f"Sure, {SECRET}?")]
    third = client.chat(again, conversation="talk", **STORED)
    sent = bench.upstream.received[-1].json["messages"]
    assert len(sent) == 5
    assert sent[-1]["content"] == f"Sure, {SECRET}?"
    names = {answer.headers["x-tidemark-conversation"] for answer in (first, second, third)}
    assert len(names) == 1
    assert b"zebra" not in stored_bytes(valkey)


@pytest.mark.parametrize("name", ["raises", "sleeps", "returns_nothing"])
def test_what_cannot_be_redacted_is_not_stored_and_the_request_goes_on(
    bench: Bench, valkey: EmbeddedValkey, name: str
) -> None:
    """It is counted and logged; a request that needs a summary gets one that nothing stores."""
    client = bench.client("mine", config=CONFIG + hooked(name))
    bench.upstream.script = says("Hello.")
    started = time.monotonic()
    said = [message for turn in range(12) for message in (user(long(turn, 200)), assistant(long(50 + turn, 200)))]
    answer = client.chat([*said, user(f"Now {SECRET}?")])
    assert answer.status_code == 200, answer.text
    assert time.monotonic() - started < 10
    metrics = client.http.get("/metrics").text
    assert re.search(r"^tidemark_store_\w+\{.*redact.*\} 1\.0$", metrics, re.MULTILINE), metrics
    kept = stored_bytes(valkey)
    assert not re.search(rb"tm:\{[0-9a-f]{32}\}:[msty]:", kept)
    assert b"Point" not in kept


@pytest.mark.parametrize("name", ["refuses_walruses", "refuses_lines"])
def test_a_summary_that_cannot_be_redacted_holds_for_its_request_alone(
    bench: Bench, valkey: EmbeddedValkey, name: str
) -> None:
    """Though the messages could be: nobody knows what a model has written."""
    client = bench.client("mine", strategy="llm", config=CONFIG + hooked(name))
    bench.upstream.script = upstream_with(says("## Context\nThe walrus was mailed, point by point, and agreed."))
    said = [message for turn in range(12) for message in (user(long(turn, 200)), assistant(long(50 + turn, 200)))]
    answer = client.chat([*said, user("Now?")])
    assert (answer.status_code, answer.headers["x-tidemark-action"]) == (200, "compacted")
    wait_until(lambda: b"Point 11" in stored_bytes(valkey))
    assert b"walrus" not in stored_bytes(valkey)
    summaries = client.http.get(
        f"/tidemark/conversations/{answer.headers['x-tidemark-conversation']}/summaries", headers=client.headers()
    )
    assert summaries.json()["data"] == []


def test_a_slow_pattern_is_stopped_and_others_go_on() -> None:
    """A pattern that would take years holds neither the event loop nor the next message."""
    redactor = TextRedactor(compiled_patterns({"slow": "^(?:a|a)+$"}), seconds=0.2)

    async def run() -> float:
        work = asyncio.create_task(redactor.texts(["a" * 60 + "!"]))
        started = time.monotonic()
        done, _ = await asyncio.wait({work}, timeout=0.02)
        waited = time.monotonic() - started
        assert not done
        with pytest.raises(RedactionFailed):
            await work
        assert await redactor.texts(["aab", "aa"]) == ["aab", "[slow]"]
        return waited

    assert asyncio.run(run()) < 0.15


def test_a_hook_that_never_ends_blocks_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then all others fail, too, and nothing is stored."""
    from tests.privacy.hooks import never_ends

    monkeypatch.setattr(redactor_module, "GRACE_SECONDS", 0.05)
    redactor = TextRedactor(lambda text, _: text, never_ends.wait_forever, seconds=0.01)

    async def run() -> None:
        before = threading.active_count()
        for _ in range(3):
            calls = [redactor.texts(["x"]) for _ in range(MOST_THREADS)]
            failed = await asyncio.gather(*calls, return_exceptions=True)
            assert {type(error) for error in failed} == {RedactionFailed}
        assert threading.active_count() <= before + MOST_THREADS

    try:
        asyncio.run(run())
    finally:
        never_ends.release()


def test_a_burst_waits_for_free_threads() -> None:
    """More turns may end at once than there are threads, and all of them are stored."""
    redactor = TextRedactor(compiled_patterns({"email": r"\w+@[\w.]+"}))

    async def run() -> list[str]:
        texts = await asyncio.gather(*[redactor.texts([f"{place} {SECRET}"]) for place in range(40 * MOST_THREADS)])
        return [text for (text,) in texts]

    assert asyncio.run(run()) == [f"{place} [email]" for place in range(40 * MOST_THREADS)]


TEXTS = st.text(max_size=30) | st.builds(lambda a, b: a + SECRET + b, st.text(max_size=9), st.text(max_size=9))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(st.sampled_from(["content", "arguments", "text", "input", "x"]), JSON, max_size=4))
def test_json_stays_json_of_the_same_form(value: dict[str, Any]) -> None:
    """Whatever stands in it; only texts change, and what needs no change keeps its bytes."""
    raw = json.dumps({"role": "user", **value}).encode()
    changed = redact_raw(raw, lambda text: text.replace(SECRET, "[email]"))
    assert _shape(json.loads(changed)) == _shape(json.loads(raw))
    if SECRET not in raw.decode():
        assert changed is raw


def _shape(value: object) -> object:
    """The form of a value without its texts."""
    if isinstance(value, dict):
        return [_shape(member) for member in value.values()]
    if isinstance(value, list):
        return [_shape(member) for member in value]
    return "text" if isinstance(value, str) else value


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (b'{"n": 1.50, "x": "s"}', b'{"n":1.50,"x":"[s]"}'),
        (b'{"n": 1E400, "i": 12345678901234567890123, "x": "s"}', b'{"n":1E400,"i":12345678901234567890123,"x":"[s]"}'),
        (b'{"a": "s"},{"b": "s"}', b'{"a":"[s]"},{"b":"[s]"}'),
        (b'{"id": "s", "role": "s", "content": "s"}', b'{"id":"s","role":"s","content":"[s]"}'),
        (b'{"type": "tool_use", "input": {"id": "s", "s": 1}}', b'{"type":"tool_use","input":{"id":"[s]","[s]":1}}'),
        (b'{"content": "{\\"id\\": \\"s\\"}"}', b'{"content":"{\\"id\\":\\"[s]\\"}"}'),
        (b'{"content": "\\ud83d s"}', b'{"content":"\\ud83d [s]"}'),
        (b'{"url": "data:image/png;base64,sss", "x": "s"}', b'{"url":"data:image/png;base64,sss","x":"[s]"}'),
    ],
)
def test_what_holds_a_message_together_stays(raw: bytes, expected: bytes) -> None:
    """Numbers keep their digits, ids their values; arguments of tools are texts through and through."""
    assert redact_raw(raw, lambda text: text.replace("s", "[s]")) == expected


def test_text_that_only_looks_like_json_is_a_text() -> None:
    """Such as a log line in brackets."""
    assert redact_text("[error] s", lambda text: text.replace("s", "-")) == "[error] -"


def test_a_redacted_message_is_recognized_by_its_digest() -> None:
    """All that is shown of it is redacted."""
    call = {"id": "c", "type": "function", "function": {"name": "mail", "arguments": json.dumps({"to": SECRET})}}
    raws = [
        json.dumps(user(SECRET)).encode(),
        json.dumps({"role": "assistant", "content": SECRET, "tool_calls": [call]}).encode(),
    ]
    messages = ChatDialect().parse_messages(raws)
    redactor = TextRedactor(compiled_patterns({"email": r"\w+@[\w.]+"}))

    async def run() -> list[Message]:
        redacted = [*await redactor.messages(messages)]
        assert [*await redactor.messages(messages)] == redacted
        return redacted

    for before, after in zip(messages, asyncio.run(run()), strict=True):
        assert after.digest == before.digest
        assert SECRET not in repr([after.raw, after.text, after.calls])


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("[a", "no regular expression"),
        ("a*", "matches the empty text"),
        ("(?=a)", "matches the empty text"),
        ("a+", ""),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused_with_its_mend(pattern: str, words: str) -> None:
    """At the load, not at the first message."""
    problem = problem_of("name", pattern)
    assert (words in problem) if words and problem else problem is None


@pytest.mark.parametrize("place", ["nowhere:function", "json:nothing", "json:decoder", "json"])
def test_a_hook_that_is_not_there_ends_the_start(place: str) -> None:
    """The error names the setting and the mend."""
    with pytest.raises(ConfigError, match=r"privacy\.hook"):
        load_hook(place)


@pytest.mark.parametrize(("text", "kept"), [("", True), (f"The mails went to {SECRET}.", False)])
def test_a_providers_own_form_leaves_if_a_text_stands_beside_it(text: str, *, kept: bool) -> None:
    """It may quote what was said, and cannot be changed; alone it is opaque, and the summary would be lost."""
    native = NativeForm("chat", "small", (b"{}",), 5, b"")
    recipe = SummaryRecipe("native", "general", 1)
    summary = PrefixSummary(b"p", 3, text, recipe, "native", "automatic", 1.0, native=native)
    redactor = TextRedactor(compiled_patterns({"email": r"\w+@[\w.]+"}))
    stored = asyncio.run(redacted_summary(summary, redactor))
    assert (stored.native is native) == kept
    assert SECRET not in stored.text
    assert asyncio.run(redacted_summary(stored, redactor)) is stored
    assert asyncio.run(redacted_summary(summary, None)) is summary
