"""A second dialect runs through the whole pipeline: one class and one line of wiring are all that it takes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.request.conftest import Bench, Client
from tests.request.talk import user
from tests.support.scripted import SSE_HEADERS, Answer, Received, error, says
from tests.support.toy import OVER, ToyDialect, events_in, word
from tidemark.core.conversation.summary import OPENING

TALK = "/v1/talk"
LONG = "The harbour opens at seven, and the ferry to the islands leaves when the tide allows it. " * 6
CLAUDE = """
model_list:
  - model_name: small
    litellm_params: {{model: anthropic/claude-sonnet-4-5, api_key: k}}
"""


@dataclass
class Talker:
    """A client of the toy dialect."""

    client: Client

    def post(self, body: Any, **asked: str) -> httpx.Response:
        """Send a body."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.http.post(TALK, content=content, headers=self.client.headers(**asked))

    def talk(
        self, turns: list[dict[str, str]], *, live: bool = False, yours: bool = False, **asked: str
    ) -> httpx.Response:
        """Send turns."""
        body = {"model": "small", "turns": turns, "live": live, "at_most": 100}
        return self.post({**body, "yours": True} if yours else body, **asked)


def human(text: str) -> dict[str, str]:
    """A turn of the user."""
    return {"who": "human", "says": text}


def bot(text: str) -> dict[str, str]:
    """A turn of the model."""
    return {"who": "bot", "says": text}


def talked(request: Received) -> Answer:
    """An upstream that speaks the toy dialect."""
    if request.json.get("live"):
        return Answer([word("Fine "), word("weather."), OVER], headers=list(SSE_HEADERS))
    return Answer([b'{"bot": "Fine weather.", "why": "done", "spent": {"in": 11, "out": 5}}'])


def speaking(request: Received) -> Answer:
    """An upstream that speaks both."""
    return talked(request) if request.path == TALK else says("Fine weather.")(request)


@pytest.fixture
def talker(bench: Bench, request: pytest.FixtureRequest) -> Talker:
    """A client of a Tidemark that serves the toy dialect beside chat completions."""
    bench.upstream.script = speaking
    return Talker(bench.client(request.node.nodeid, dialects={TALK: ToyDialect()}))


def long_talk(exchanges: int) -> list[dict[str, str]]:
    """A talk with a question at its end."""
    turns = [{"who": "rules", "says": "Be brief."}]
    for number in range(exchanges):
        turns += [human(f"{number}: {LONG}"), bot("Fine weather.")]
    return [*turns, human("And now?")]


def test_a_request_under_budget_goes_out_as_it_came(bench: Bench, talker: Talker) -> None:
    """Promise 1: only the model's name changes, and the reply's bytes are the upstream's."""
    body = b'{ "model":"small", "odd": [1.0, {"x":null}],\n "turns" : [ {"who":"human","says":"Hi."} ] }'
    answer = talker.post(body)
    assert answer.content == b'{"bot": "Fine weather.", "why": "done", "spent": {"in": 11, "out": 5}}'
    assert answer.headers["x-tidemark-action"] == "none"
    assert bench.upstream.last.path == TALK
    assert bench.upstream.last.json == json.loads(body) | {"model": "scripted"}


def test_a_long_talk_is_compacted_and_its_prefix_stays_frozen(bench: Bench, talker: Talker) -> None:
    """The summary is a turn of this dialect; the next request reuses it, byte for byte."""
    talk = long_talk(18)
    first = talker.talk(talk)
    assert first.headers["x-tidemark-action"] == "compacted"
    forwarded = bench.upstream.last.json["turns"]
    assert forwarded[0] == {"who": "rules", "says": "Be brief."}
    assert forwarded[1]["who"] == "rules"
    assert forwarded[1]["says"].startswith(OPENING)
    assert forwarded[-1] == human("And now?")
    before = bench.upstream.last.body.partition(b'"turns":')[2].partition(b"]")[0]
    second = talker.talk([*talk, bot("Fine weather."), human("And later?")])
    assert second.headers["x-tidemark-action"] == "reused"
    assert before in bench.upstream.last.body


def test_a_stream_is_carried_event_by_event_and_its_turn_is_stored(bench: Bench, talker: Talker) -> None:
    """The stored reply makes the client's next request go on with the same conversation."""
    first = talker.talk([human("How is the weather?")], live=True)
    assert first.content == word("Fine ") + word("weather.") + OVER
    again = talker.talk([human("How is the weather?"), bot("Fine weather."), human("And the tide?")])
    assert again.headers["x-tidemark-conversation"] == first.headers["x-tidemark-conversation"]
    assert len(bench.upstream.received) == 2


def test_stored_history_supplies_the_earlier_turns(bench: Bench, talker: Talker) -> None:
    """The client sends its new turn only."""
    for text in ("How is the weather?", "And the tide?"):
        talker.talk([human(text)], history="stored", conversation="harbour")
    assert bench.upstream.last.json["turns"] == [
        human("How is the weather?"),
        bot("Fine weather."),
        human("And the tide?"),
    ]


def test_a_conversation_in_two_dialects_is_one_conversation(bench: Bench, talker: Talker) -> None:
    """It begins in chat completions, and the summary made there is used here."""
    talk = long_talk(18)
    names = {"rules": "system", "human": "user", "bot": "assistant"}
    chat = talker.client.chat([{"role": names[turn["who"]], "content": turn["says"]} for turn in talk])
    assert chat.headers["x-tidemark-action"] == "compacted"
    toy = talker.talk([*talk, bot("Fine weather."), human("And later?")])
    assert toy.headers["x-tidemark-action"] == "reused"
    assert toy.headers["x-tidemark-conversation"] == chat.headers["x-tidemark-conversation"]


def test_a_summary_is_made_where_the_client_asks_for_one(bench: Bench, talker: Talker) -> None:
    """``X-Tidemark-Summarize: force``."""
    answer = talker.talk(long_talk(4), summarize="force")
    assert answer.headers["x-tidemark-action"] == "forced"
    assert bench.upstream.last.json["turns"][1]["says"].startswith(OPENING)


class TypingDialect(ToyDialect):
    """The toy under the name of a dialect that the setting knows."""

    name = "responses"


@pytest.mark.parametrize("live", [False, True])
def test_a_command_is_answered_where_it_is_switched_on_and_leaves_no_trace(
    bench: Bench, request: pytest.FixtureRequest, *, live: bool
) -> None:
    """Later requests go out without the command and its answer."""
    bench.upstream.script = speaking
    more = ", command_dialects: [chat, responses]"
    talker = Talker(bench.client(request.node.nodeid, more=more, dialects={TALK: TypingDialect()}))
    asked = [human("How is the weather?"), bot("Fine weather."), human("/context")]
    answer = talker.talk(asked, live=live)
    text = str(next(events_in(answer.content))[1]["w"]) if live else answer.json()["bot"]
    assert "Total tokens" in text
    assert bench.upstream.received == []
    talker.talk([*asked, bot(text), human("And the tide?")])
    assert bench.upstream.last.json["turns"] == [asked[0], asked[1], human("And the tide?")]


def test_a_command_reaches_the_model_where_it_is_not_switched_on(bench: Bench, talker: Talker) -> None:
    """Commands are chat completions' alone; there they stay answered."""
    assert talker.talk([human("/context")]).json()["bot"] == "Fine weather."
    assert bench.upstream.last.json["turns"] == [human("/context")]
    assert "Total tokens" in talker.client.chat([user("/context")]).json()["choices"][0]["message"]["content"]
    assert len(bench.upstream.received) == 1


def with_a_small_window(request: Received) -> Answer:
    """An upstream whose window is smaller than known."""
    if len(request.body) > 4000:
        text = "This model's maximum context length is 1000 tokens. However, your messages resulted in 1500 tokens."
        return error(400, text, code="context_length_exceeded")
    return talked(request)


def test_an_overflow_is_replayed_smaller(bench: Bench, talker: Talker) -> None:
    """The upstream's window is smaller than known."""
    bench.upstream.script = with_a_small_window
    answer = talker.talk(long_talk(8))
    assert (answer.status_code, answer.json()["bot"]) == (200, "Fine weather.")
    assert "tokens and sent again" in answer.headers["x-tidemark-warning"]


@pytest.mark.parametrize("summarize", ["auto", "force"])
def test_a_request_that_is_left_to_the_upstream_goes_out_as_it_came(
    bench: Bench, talker: Talker, summarize: str
) -> None:
    """However long it is, and though a summary stands in the store; a warning says so, and nothing is prepared."""
    talk = long_talk(18)
    talker.talk(talk)
    answer = talker.talk([*talk, bot("Fine weather."), human("And later?")], yours=True, summarize=summarize)
    assert answer.headers["x-tidemark-action"] == "none"
    assert answer.headers["x-tidemark-warning"] == "left to the upstream: 'yours' asks the provider to compact"
    assert bench.upstream.last.json["turns"] == [*talk, bot("Fine weather."), human("And later?")]
    bench.settle()
    assert len(bench.upstream.received) == 2


def test_switched_off_is_off_also_for_what_is_left_to_the_upstream(talker: Talker) -> None:
    """``X-Tidemark-Summarize: off`` says what was done, as ever."""
    answer = talker.talk(long_talk(18), yours=True, summarize="off")
    assert answer.headers["x-tidemark-action"] == "bypassed"


def test_an_overflow_of_what_is_left_to_the_upstream_is_replayed(bench: Bench, talker: Talker) -> None:
    """The provider did not compact, so Tidemark does; the member that asked stays in the request."""
    bench.upstream.script = with_a_small_window
    answer = talker.talk(long_talk(8), yours=True)
    assert (answer.status_code, answer.json()["bot"]) == (200, "Fine weather.")
    assert answer.headers["x-tidemark-action"] == "compacted"
    assert "tokens and sent again" in answer.headers["x-tidemark-warning"]
    assert bench.upstream.last.json["yours"] is True


def test_errors_are_written_in_the_dialect(talker: Talker) -> None:
    """A bad body, a model that nobody serves, and a request that does not fit."""
    bad = talker.post({"model": "small", "turns": [{"who": "wizard", "says": "Hi."}]})
    assert (bad.status_code, bad.json()["problem"]["code"]) == (400, "invalid_type")
    unknown = talker.post({"model": "none", "turns": [human("Hi.")]})
    assert (unknown.status_code, unknown.json()["problem"]["code"]) == (404, "model_not_found")
    large = talker.talk([human(LONG * 40)])
    assert (large.status_code, large.json()["problem"]["code"]) == (400, "context_length_exceeded")


def test_a_stream_that_breaks_off_ends_with_an_error_event(bench: Bench, talker: Talker) -> None:
    """No end is made up."""
    bench.upstream.script = lambda _: Answer([word("Fine ")], headers=list(SSE_HEADERS), breaks=True)
    answer = talker.talk([human("How is the weather?")], live=True)
    events = list(events_in(answer.content))
    assert [name for name, _ in events] == ["word", "problem"]
    assert events[1][1]["problem"]["code"] == "upstream_incomplete"  # type: ignore[index]


def test_a_provider_that_does_not_speak_the_dialect_is_named(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Litellm translates chat completions only; the error says what to change."""
    talker = Talker(bench.client(request.node.nodeid, config=CLAUDE, dialects={TALK: ToyDialect()}))
    answer = talker.talk([human("Hi.")])
    assert (answer.status_code, answer.json()["problem"]["code"]) == (400, "dialect_not_served")
    assert "lane: wire" in answer.json()["problem"]["text"]


def test_an_unknown_path_is_answered_with_those_of_all_dialects(talker: Talker) -> None:
    """The list follows the wiring."""
    answer = talker.client.http.post("/nowhere", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "unknown_url")
    message = answer.json()["error"]["message"]
    assert all(path in message for path in ("/v1/chat/completions", "/v1/responses", "/v1/talk", "GET /v1/models"))


def test_chat_completions_go_on_beside_it(bench: Bench, talker: Talker) -> None:
    """Each path has a dialect of its own."""
    answer = talker.client.chat([user("Hi.")])
    assert answer.json()["choices"][0]["message"]["content"] == "Fine weather."
    assert bench.upstream.last.path == "/v1/chat/completions"
