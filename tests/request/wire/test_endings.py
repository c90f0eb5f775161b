"""How a stream begins and ends where something is out of the ordinary: headers, status, errors, what is stored."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from itertools import pairwise
from typing import Any

import httpx
import openai
import pytest

from tests.request.compaction.test_summarizers import SUMMARY, upstream_with
from tests.request.conftest import Bench, Client
from tests.request.talk import history, user
from tests.request.wire.test_streaming import ASK, always, events
from tests.support.scripted import SSE_HEADERS, Answer, chunk, error, says, streamed, whole
from tests.support.waiting import wait_until
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore

DEEP = "[" * 3000 + "]" * 3000
IMPATIENT = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: {strategy}, retention_tokens: 200, min_tokens: 300}}
server: {{keepalive_seconds: %s}}
"""


def facts(response: httpx.Response) -> dict[str, str]:
    """The ``X-Tidemark-*`` headers."""
    return {name: value for name, value in response.headers.items() if name.startswith("x-tidemark-")}


def bytes_of(answer: Answer) -> bytes:
    """All bytes of an answer."""
    return b"".join(piece for piece in answer.pieces if isinstance(piece, bytes))


def stored(store_url: str, conversation: str) -> list[bytes]:
    """The messages of a conversation as they lie in the store."""

    async def look() -> list[bytes]:
        store = RedisStore(store_url, Codec(), ttl_seconds=None)
        try:
            return [message.raw for message in await store.messages(conversation)]
        finally:
            await store.close()

    return asyncio.run(look())


def test_an_answer_nested_too_deeply_to_be_read_is_delivered(bench: Bench, client: Client) -> None:
    """Whole or streamed: that it cannot be read here is no reason to keep it from the client."""
    deep = bytes_of(whole("fine")).rstrip()[:-1] + b',"extra":' + DEEP.encode() + b"}"
    bench.upstream.script = lambda _: Answer([deep])
    got = client.chat([user("hi")])
    assert (got.status_code, got.content) == (200, deep)
    answer = streamed("all of it")
    answer.pieces = [*answer.pieces[:2], b'data: {"extra":' + DEEP.encode() + b"}\n\n", *answer.pieces[2:]]
    bench.upstream.script = lambda _: answer
    assert client.post(ASK).content == bytes_of(answer)


def test_a_client_that_leaves_after_the_last_word_finds_its_turn(bench: Bench, client: Client, store_url: str) -> None:
    """``finish_reason`` was there, ``[DONE]`` was not: many clients do not wait for it."""
    answer = streamed("the whole answer")
    answer.pieces = [*answer.pieces[:-1], 20.0, answer.pieces[-1]]
    bench.upstream.script = lambda _: answer
    with client.http.stream("POST", "/v1/chat/completions", json=ASK, headers=client.headers()) as got:
        conversation = got.headers["x-tidemark-conversation"]
        next(line for line in got.iter_lines() if '"finish_reason": "stop"' in line)
    wait_until(lambda: any(b"the whole answer" in raw for raw in stored(store_url, conversation)))


def test_an_error_reaches_the_client_of_an_upstream_that_told_a_length(bench: Bench, client: Client) -> None:
    """Our event makes the body longer than the upstream's ``content-length`` says."""
    body = bytes_of(streamed("only a part", finish=False, done=False))
    headers = [*SSE_HEADERS, (b"content-length", str(len(body)).encode())]
    bench.upstream.script = lambda _: Answer([body], headers=headers)
    got = client.post(ASK)
    assert "content-length" not in got.headers
    assert got.content.startswith(body)
    assert events(got.content)[-1]["error"]["code"] == "upstream_incomplete"


def test_a_stream_that_says_nothing_at_all_is_a_502(bench: Bench, client: Client) -> None:
    """Before the first byte there is still a status to tell it by, and SDKs send again; a cut event is no byte."""
    for pieces in ([], [b'data: {"id":"chatcmpl-1","choi']):
        bench.upstream.script = partial(always, Answer(pieces, headers=list(SSE_HEADERS), breaks=bool(pieces)))
        got = client.post(ASK)
        assert got.status_code == 502
        assert got.json()["error"]["code"] == "upstream_incomplete"
        assert facts(got)


@pytest.mark.parametrize(
    "headers",
    [[], [(b"content-type", b"Text/Event-Stream;charset=UTF-8")], [(b"content-type", b"text/plain")]],
    ids=["none", "other case", "another"],
)
def test_a_stream_by_another_name_is_streamed(bench: Bench, client: Client, headers: list[tuple[bytes, bytes]]) -> None:
    """A stream was asked for: without a content type, or with an odd one, each chunk still arrives as it is sent."""
    answer = streamed("a b c d e f", pace=0.15)
    answer.headers = headers
    bench.upstream.script = lambda _: answer
    with client.http.stream("POST", "/v1/chat/completions", json=ASK, headers=client.headers()) as got:
        arrived = [(time.monotonic(), piece) for piece in got.iter_raw() if piece]
    assert b"".join(piece for _, piece in arrived) == bytes_of(answer)
    assert len([after for before, after in pairwise(arrived) if after[0] - before[0] > 0.1]) >= 5


def test_json_in_answer_to_a_wish_for_a_stream_keeps_its_status_and_length(bench: Bench, client: Client) -> None:
    """A server that cannot stream answers whole; nothing is added to its JSON."""
    answer = whole("not streamed")
    answer.headers = [(b"content-type", b"Application/JSON; charset=utf-8")]
    bench.upstream.script = lambda _: answer
    got = client.post(ASK)
    assert got.content == bytes_of(answer)
    assert got.headers["content-length"] == str(len(got.content))


def test_a_page_of_html_is_no_complete_answer(bench: Bench, client: Client) -> None:
    """A login page with status 200: carried, streamed or not, and counted as incomplete."""
    page = b"<html>\n\n<p>log in first</p></html>"
    bench.upstream.script = lambda _: Answer([page], headers=[(b"content-type", b"text/html")])
    assert client.chat([user("hi")]).content == page
    got = client.post(ASK)
    assert got.content.startswith(page)
    assert events(got.content)[-1]["error"]["code"] == "upstream_incomplete"

    def counted(outcome: str) -> list[str]:
        lines = client.http.get("/metrics").text.splitlines()
        named = [line for line in lines if line.startswith("tidemark_requests_total{")]
        return [line.rpartition(" ")[2] for line in named if f'outcome="{outcome}"' in line]

    wait_until(lambda: counted("incomplete") == ["2.0"])
    assert not counted("complete")


@pytest.mark.parametrize("number", ["1" * 400, "-" + "1" * 400, "true", '"20"', "1e3", "null", "[]"])
def test_counts_of_the_upstream_that_are_none_are_not_counted(bench: Bench, client: Client, number: str) -> None:
    """Whatever stands in ``usage``: the answer is delivered, the request told of, and the metrics stay readable."""
    usage = '"usage": {"prompt_tokens": %s, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": %s}}'
    body = bytes_of(whole("fine", usage=False)).rstrip()[:-1] + f", {usage % (number, number)}}}".encode()
    bench.upstream.script = lambda _: Answer([body])
    assert client.chat([user("hi")]).content == body

    def counted(name: str) -> list[str]:
        lines = client.http.get("/metrics").text.splitlines()
        return [line.rpartition(" ")[2] for line in lines if line.startswith(f"tidemark_{name}_total{{")]

    wait_until(lambda: counted("requests") == ["1.0"])
    assert counted("upstream_completion_tokens") == ["7.0"]
    assert counted("upstream_prompt_tokens") == counted("upstream_cached_prompt_tokens") == []


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_the_openai_sdk_reads_the_error_after_an_event_that_was_cut_short(
    bench: Bench, client: Client, line_end: bytes
) -> None:
    """``APIError`` with our words, after all that was said; half an event would be a ``JSONDecodeError``."""
    said = [chunk(delta={"content": "hello"}, finish_reason=None), b'data: {"id":"chatcmpl-1","choi']
    pieces: list[bytes | float] = [piece.replace(b"\n", line_end) for piece in said]
    bench.upstream.script = lambda _: Answer(pieces, headers=list(SSE_HEADERS), breaks=True)
    heard: list[str | None] = []
    with openai.OpenAI(base_url=f"{client.http.base_url}/v1", api_key=client.key, max_retries=0) as sdk:
        stream = sdk.chat.completions.create(model="small", stream=True, messages=[{"role": "user", "content": "hi"}])
        with pytest.raises(openai.APIError, match="stopped in the middle") as raised:
            heard.extend(piece.choices[0].delta.content for piece in stream)
    assert heard == ["hello"]
    assert raised.value.code == "upstream_incomplete"


LATE_SECONDS = 1.1


def impatient(bench: Bench, request: pytest.FixtureRequest, *, seconds: float = 0.3, **settings: Any) -> Client:
    """A client of a Tidemark whose comments are so many seconds apart, and the first a little later."""
    return bench.client(request.node.nodeid, config=IMPATIENT % seconds, **settings)


def test_a_refusal_keeps_its_status_where_the_first_comment_has_not_gone_out(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """The first comment settles the status, so it comes later than the others do."""
    refusal = error(429, "slow down", headers=[(b"retry-after", b"7")])
    refusal.before_headers = LATE_SECONDS
    bench.upstream.script = lambda _: refusal
    got = impatient(bench, request, seconds=1).post(ASK)
    assert (got.status_code, got.headers["retry-after"]) == (429, "7")
    assert facts(got)


@pytest.mark.parametrize("late", ["an answer", "a refusal", "a page of html"])
def test_a_stream_that_a_comment_opens_says_what_was_done(
    bench: Bench, request: pytest.FixtureRequest, late: str
) -> None:
    """Promise 9, streams too: the headers are those of a quick answer, whatever comes after the comments."""
    answer = {
        "an answer": streamed("late but whole"),
        "a refusal": error(429, "slow down"),
        "a page of html": Answer([b"<html>\n</html>"], 502),
    }[late]
    asked = {**ASK, "messages": [*history(18), user("Now?")]}
    bench.upstream.script = says("quick")
    quick = facts(impatient(bench, request, seconds=60).post(asked))  # no comment opens it, however busy the machine is
    client = impatient(bench, request)
    answer.before_headers = LATE_SECONDS
    bench.upstream.script = lambda _: answer
    got = client.post({**asked, "messages": [*asked["messages"][:-1], user("And now?")]})
    assert got.status_code == 200
    assert got.content.startswith(b": keep-alive\n\n")
    assert facts(got).keys() == quick.keys()
    assert facts(got)["x-tidemark-action"] == "reused"
    if late == "an answer":
        assert got.content.endswith(bytes_of(answer))
    else:
        assert events(got.content)[-1]["error"]["message"] == (
            "slow down" if late == "a refusal" else "The upstream answered with status 502."
        )


def test_an_upstream_that_thinks_after_its_headers_keeps_them(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Its request id and limits are there when the comment opens the response, so they go out with it."""
    answer = streamed("late but whole")
    answer.pieces = [LATE_SECONDS, *answer.pieces]
    bench.upstream.script = lambda _: answer
    got = impatient(bench, request).post(ASK)
    assert got.content.startswith(b": keep-alive\n\n")
    assert got.headers["x-request-id"] == "req_1"
    assert facts(got)


def test_a_compaction_that_takes_too_long_is_told_in_a_comment(bench: Bench, request: pytest.FixtureRequest) -> None:
    """What was done is not known yet when the connection must be kept: it follows as soon as it is."""

    def summary(_: Any) -> Answer:
        answer = whole(SUMMARY)
        answer.before_headers = LATE_SECONDS
        return answer

    bench.upstream.script = upstream_with(summary)
    client = impatient(bench, request, strategy="llm")
    got = client.post({**ASK, "messages": [*history(18), user("Now?")]})
    assert not facts(got)
    assert b"\n: x-tidemark-action: compacted\n" in got.content
    assert events(got.content)[-1] == "[DONE]"
