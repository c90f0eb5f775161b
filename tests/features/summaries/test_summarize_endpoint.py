"""``POST /tidemark/conversations/{id}/summarize``: a stored conversation is compacted, and its next request uses it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.request.conftest import SECRET, WINDOW, Bench, Client
from tests.request.talk import Said, assistant, history, system, user
from tests.support.scripted import Received, error, says
from tests.support.serving import NO_TLS, Serving
from tidemark.app.application import create_app
from tidemark.config import load

TOKEN = "the operator's token"
KEYED = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}", api_key: the-configured-key}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: {strategy}, retention_tokens: 200, min_tokens: 300{more}}}
"""
TWO = (
    WINDOW.replace("compaction:\n", "")
    .replace(
        "  defaults",
        """\
  - model_name: other
    litellm_params: {{model: openai/scripted, api_base: "{base}/elsewhere"}}
compaction:
  defaults""",
    )
    .lstrip("\n")
)


ALL = {"retention_tokens": 0}
"""All but the newest message: enough for a summary of some length."""


def summarize(client: Client, conversation: str, body: Any = None, key: str | None = None) -> httpx.Response:
    """Ask by hand."""
    headers = client.headers() if key is None else {"authorization": f"Bearer {key}"}
    content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
    return client.http.post(f"/tidemark/conversations/{conversation}/summarize", content=content, headers=headers)


def stored(client: Client, said: list[Said], **asked: str) -> str:
    """One turn, and the id of the conversation that holds it; the answer is appended to the history."""
    got = client.chat(said, **asked)
    assert got.status_code == 200, got.text
    said.append(assistant(got.json()["choices"][0]["message"]["content"]))
    return got.headers["x-tidemark-conversation"]


def writes(text: str) -> Callable[[Received], Any]:
    """An upstream whose summaries are ``text``, and whose answers are not."""

    def answer(request: Received) -> Any:
        summarizing = len(request.messages) == 2 and "ummar" in str(request.messages[0]["content"])
        return says(text if summarizing else "Hello there.")(request)

    return answer


@pytest.fixture
def operated(bench: Bench, store_url: str, tmp_path: Path) -> Callable[..., Client]:
    """Starts a Tidemark that has an operator."""

    def start(key: str, *, config: str = WINDOW, strategy: str = "llm", more: str = "") -> Client:
        path = tmp_path / "operated.yaml"
        base = f"{bench.upstream_url}/v1"
        path.write_text(config.format(base=base, window=2000, strategy=strategy, more=more))
        settings = load(path, {"TIDEMARK_DATA_DIR": str(tmp_path), "TIDEMARK_ADMIN_TOKEN": TOKEN})
        app = create_app(settings, store_url=store_url, secret=SECRET, warn=lambda _: None)
        url = bench.stack.enter_context(Serving(app)).url
        return Client(bench.stack.enter_context(httpx.Client(base_url=url, timeout=30, verify=NO_TLS)), key)

    return start


def test_a_stored_conversation_is_compacted_and_its_next_request_uses_it(bench: Bench, client: Client) -> None:
    """The answer says what was done, and the next chat request reuses the summary."""
    said = [system("Be brief."), *history(10), user("What now?")]
    conversation = stored(client, said)
    got = summarize(client, conversation)
    assert got.status_code == 200, got.text
    told = got.json()
    assert set(told) == {
        "conversation",
        "summary",
        "strategy",
        "summarized_messages",
        "tokens_before",
        "tokens_after",
    }
    assert (told["conversation"], told["strategy"]) == (conversation, "extractive")
    assert told["tokens_after"] < told["tokens_before"]
    assert got.headers["x-tidemark-action"] == "forced"
    assert "x-tidemark-warning" not in got.headers
    asked = len(bench.upstream.received)
    later = client.chat([*said, user("And then?")])
    assert len(bench.upstream.received) == asked + 1
    assert later.headers["x-tidemark-action"] == "reused"
    assert later.headers["x-tidemark-conversation"] == conversation
    assert int(later.headers["x-tidemark-summarized-messages"]) == told["summarized_messages"]
    sent = bench.upstream.last.messages
    assert sent[0] == system("Be brief.")
    assert told["summary"] in sent[1]["content"]
    assert sent[2:] == [*said[1 + told["summarized_messages"] :], user("And then?")]


def test_the_system_messages_of_the_last_request_count(client: Client) -> None:
    """Tokens are those of the request that the client would send, but for what it adds."""
    said = [system("Rules. " * 100), *history(4), user("What now?")]
    conversation = stored(client, said)
    before = summarize(client, conversation).json()["tokens_before"]
    counted = client.chat(said).headers["x-tidemark-tokens-before"]
    assert before == int(counted)


def test_the_retention_of_the_body_holds(client: Client) -> None:
    """FR-2.2.2."""
    conversation = stored(client, [*history(6), user("Now?")])
    assert summarize(client, conversation, {"retention_tokens": 0}).json()["summarized_messages"] == 13


def test_below_the_minimum_it_is_done_with_a_warning(client: Client) -> None:
    """FR-5.4.2: in the header and in the body."""
    conversation = stored(client, [*history(2, 40), user("So?")])
    got = summarize(client, conversation, {"retention_tokens": 50})
    assert got.json()["summarized_messages"] > 0
    assert "below the minimum of 300" in got.json()["warning"]
    assert got.headers["x-tidemark-warning"] == got.json()["warning"]


def test_nothing_to_summarize_is_told(client: Client) -> None:
    """Once more at once: the summary that is there stays, and that is said."""
    conversation = stored(client, [*history(4), user("What now?")])
    first = summarize(client, conversation, {"retention_tokens": 0}).json()
    again = summarize(client, conversation, {"retention_tokens": 0}).json()
    assert "nothing to summarize" in again.pop("warning")
    assert again["outcome"] == "nothing_to_summarize"
    assert again["summary"] == first["summary"]


def test_fr_2_2_1_by_hand_again_what_stays_is_not_touched(bench: Bench, client: Client) -> None:
    """The configured retention and one of the request's own hold, however often it is asked for."""
    said = [*history(10), user("What now?")]
    conversation = stored(client, said)
    for body in ({"retention_tokens": 600}, {}):
        first = summarize(client, conversation, body).json()
        assert "outcome" not in first
        for _ in range(2):
            again = summarize(client, conversation, body).json()
            assert again["outcome"] == "nothing_to_summarize"
            assert again["summarized_messages"] == first["summarized_messages"]
    client.chat([*said, user("And then?")])
    kept = [len(str(one["content"])) for one in bench.upstream.last.messages[1:]]
    assert len(kept) > 5


def test_by_hand_again_the_new_summary_takes_in_the_old_one(client: Client) -> None:
    """FR-2.2.3."""
    said = [user("My boat is called Arcturus and you must never sail after dark."), assistant("Understood.")]
    said += [*history(8), user("What now?")]
    conversation = stored(client, said)
    first = summarize(client, conversation).json()
    assert "never sail after dark" in first["summary"]
    said += [*history(14)[16:], user("And now?")]
    assert stored(client, said) == conversation
    second = summarize(client, conversation).json()
    assert second["summarized_messages"] > first["summarized_messages"]
    assert "never sail after dark" in second["summary"]


def test_regenerate_makes_the_newest_summary_anew(bench: Bench) -> None:
    """Over the same messages; from then on it is the one in use."""
    client = bench.client("regenerate", strategy="llm")
    bench.upstream.script = writes("The first summary tells of points and of what was said about them.")
    said = [*history(4), user("What now?")]
    conversation = stored(client, said)
    first = summarize(client, conversation, ALL).json()
    assert "The first summary" in first["summary"]
    bench.upstream.script = writes("The second summary tells it better, and of the same points.")
    second = summarize(client, conversation, ALL | {"regenerate": True}).json()
    assert "The second summary" in second["summary"]
    assert second["summarized_messages"] == first["summarized_messages"]
    for _ in range(2):
        later = client.chat([*said, user("And then?")])
        assert later.headers["x-tidemark-action"] == "reused"
        assert "The second summary" in bench.upstream.last.messages[0]["content"]
        assert "The first summary" not in bench.upstream.last.body.decode()


def test_regenerate_goes_upon_the_summary_before(bench: Bench) -> None:
    """The second of two is made of the first and the messages since, as it was before."""
    client = bench.client("regenerate upon", strategy="llm")
    bench.upstream.script = writes("The first summary tells of points and of what was said about them.")
    said = [*history(4), user("What now?")]
    conversation = stored(client, said)
    summarize(client, conversation, ALL)
    said += [*history(8)[8:], user("And now?")]
    stored(client, said)
    bench.upstream.script = writes("The next summary tells of points and of what was said about them.")
    second = summarize(client, conversation, ALL).json()
    bench.upstream.received.clear()
    third = summarize(client, conversation, ALL | {"regenerate": True}).json()
    assert third["summarized_messages"] == second["summarized_messages"]
    assert "The first summary" in bench.upstream.last.body.decode()
    assert "The next summary" not in bench.upstream.last.body.decode()


def test_regenerate_without_a_summary_makes_one(client: Client) -> None:
    """What was asked for is there afterwards."""
    conversation = stored(client, [*history(4), user("What now?")])
    assert summarize(client, conversation, {"regenerate": True}).json()["summarized_messages"] > 0


def test_a_regeneration_that_fails_changes_nothing(bench: Bench) -> None:
    """503, and the summary that was in use stays: promise 6."""
    client = bench.client("regenerate fails", strategy="llm")
    bench.upstream.script = writes("The first summary tells of points and of what was said about them.")
    said = [*history(4), user("What now?")]
    conversation = stored(client, said)
    summarize(client, conversation, ALL)
    bench.upstream.script = lambda _: error(500, "no")
    got = summarize(client, conversation, ALL | {"regenerate": True})
    assert (got.status_code, got.json()["error"]["code"]) == (503, "compaction_failed")
    bench.upstream.script = says("Hello there.")
    client.chat([*said, user("And then?")])
    assert "The first summary" in bench.upstream.last.messages[0]["content"]


def test_another_tenants_conversation_is_as_unknown_as_none(client: Client) -> None:
    """Promise 8: the same words for both, so that an id tells nothing."""
    conversation = stored(client, [*history(4), user("What now?")])
    foreign = summarize(client, conversation, key="somebody else's")
    assert foreign.status_code == 404
    assert foreign.json()["error"]["code"] == "conversation_not_found"
    unknown = "0" * 48
    none = summarize(client, unknown)
    assert none.json() == json.loads(foreign.text.replace(conversation, unknown))
    assert summarize(client, "no-id").status_code == 404
    assert client.chat([*history(4), user("What now?")]).headers["x-tidemark-action"] == "none"


def test_the_same_key_at_another_upstream_is_another_tenant(bench: Bench) -> None:
    """A model of another upstream does not reach the conversation."""
    client = bench.client("two upstreams", config=TWO)
    conversation = stored(client, [*history(4), user("What now?")])
    assert summarize(client, conversation, {"model": "other"}).status_code == 404
    assert summarize(client, conversation, {"model": "small"}).status_code == 200


def test_without_a_token_this_machine_reaches_only_its_own(client: Client) -> None:
    """Contents are not the operator's by being on the same machine."""
    conversation = stored(client, [*history(4), user("What now?")])
    assert client.http.post(f"/tidemark/conversations/{conversation}/summarize").status_code == 404


def test_the_operator_reaches_all_without_a_credential(bench: Bench, operated: Callable[..., Client]) -> None:
    """No key is configured: an extractive summary, and the tenant's next request uses it; the token goes nowhere."""
    client = operated("operated")
    said = [*history(4), user("What now?")]
    conversation = stored(client, said)
    asked = len(bench.upstream.received)
    got = summarize(client, conversation, key=TOKEN)
    assert got.status_code == 200, got.text
    assert got.json()["strategy"] == "extractive"
    assert len(bench.upstream.received) == asked
    later = client.chat([*said, user("And then?")])
    assert later.headers["x-tidemark-action"] == "reused"
    assert later.headers["x-tidemark-strategy"] == "extractive"


def test_the_operator_uses_the_configured_key(bench: Bench, operated: Callable[..., Client]) -> None:
    """Where one is configured, the model's own strategy writes the summary."""
    client = operated("operated with a key", config=KEYED)
    bench.upstream.script = writes("A summary that tells of points and of what was said about them.")
    conversation = stored(client, [*history(4), user("What now?")])
    got = summarize(client, conversation, key=TOKEN)
    assert got.json()["strategy"] == "llm"
    assert bench.upstream.last.headers["authorization"] == "Bearer the-configured-key"
    assert TOKEN not in str(bench.upstream.last.headers)


KEYLESS = """
upstream: {base}
compaction: {{defaults: {{strategy: {strategy}, retention_tokens: 100, min_tokens: 100}}}}
"""


def test_the_operator_asks_a_local_upstream_that_wants_no_key(bench: Bench, operated: Callable[..., Client]) -> None:
    """``TIDEMARK_UPSTREAM`` has no place for a key. A server of this machine shows by its models that it wants none."""
    bench.upstream.script = writes("A summary that tells of points and of what was said about them.")
    client = operated("operated without any key", config=KEYLESS)
    conversation = stored(client, [*history(4), user("What now?")])
    got = summarize(client, conversation, {"retention_tokens": 0}, key=TOKEN)
    assert got.status_code == 200, got.text
    assert got.json()["strategy"] == "llm"
    assert TOKEN not in str(bench.upstream.last.headers)


def test_with_a_token_tenants_still_reach_their_own(operated: Callable[..., Client]) -> None:
    """And nobody else's."""
    client = operated("operated tenant", strategy="extractive")
    conversation = stored(client, [*history(4), user("What now?")])
    assert summarize(client, conversation, key="not the token").status_code == 404
    assert summarize(client, conversation).status_code == 200


def test_a_conversation_that_its_client_named(client: Client) -> None:
    """The name is not stored, but the chain is."""
    said = [*history(4), user("What now?")]
    conversation = stored(client, said, conversation="my boat")
    assert summarize(client, conversation).status_code == 200
    later = client.chat([*said, user("And then?")], conversation="my boat")
    assert later.headers["x-tidemark-action"] == "reused"


def test_a_fork_is_summarized_with_what_came_before_it(client: Client) -> None:
    """Its earlier messages are another conversation's."""
    said = [*history(4), user("What now?")]
    stored(client, said)
    fork = [*said[:-2], user("Something else altogether.")]
    conversation = stored(client, fork)
    told = summarize(client, conversation, {"retention_tokens": 0}).json()
    assert told["summarized_messages"] == 9
    assert client.chat([*fork, user("x")]).headers["x-tidemark-action"] == "reused"


def test_tools_and_images_survive_being_stored(client: Client) -> None:
    """A summary never tears a call from its result."""
    calls = [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    said: list[Said] = [*history(4)]
    said += [user("Look."), {"role": "assistant", "content": None, "tool_calls": calls}]
    said += [{"role": "tool", "tool_call_id": "c", "content": "done"}]
    conversation = stored(client, said)
    told = summarize(client, conversation, {"retention_tokens": 0}).json()
    assert told["summarized_messages"] == 11


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"{", "invalid_json"),
        (b"[]", "invalid_type"),
        ({"retention": 5}, "unknown_parameter"),
        ({"retention_tokens": -1}, "invalid_type"),
        ({"retention_tokens": True}, "invalid_type"),
        ({"regenerate": 1}, "invalid_type"),
        ({"model": ""}, "invalid_type"),
    ],
)
def test_a_bad_body_is_refused(client: Client, body: Any, code: str) -> None:
    """In OpenAI's envelope, before anything is looked up."""
    got = summarize(client, "0" * 48, body)
    assert (got.status_code, got.json()["error"]["code"]) == (400, code)


def test_a_model_that_is_not_served(client: Client) -> None:
    """It says nothing of the conversation."""
    got = summarize(client, "0" * 48, {"model": "none-such"})
    assert (got.status_code, got.json()["error"]["code"]) == (404, "model_not_found")


def test_commands_are_no_part_of_what_is_stored(client: Client) -> None:
    """Neither is summarized: a turn is stored as it was forwarded."""
    said = [*history(4), user("/context")]
    said.append(assistant(client.chat(said).json()["choices"][0]["message"]["content"]))
    conversation = stored(client, [*said, user("What now?")])
    told = summarize(client, conversation, {"retention_tokens": 0}).json()
    assert told["summarized_messages"] == 9
    assert "Tidemark" not in told["summary"]


def test_a_store_that_is_down_is_told(bench: Bench) -> None:
    """503, as at every endpoint that is about what is stored."""
    client = bench.client("no store", store="redis://127.0.0.1:1")
    got = summarize(client, "0" * 48)
    assert (got.status_code, got.json()["error"]["code"]) == (503, "store_unavailable")
