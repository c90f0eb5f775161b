"""``strategy: native``: the provider writes the summary, and the thinking of the turns that stay is valid behind it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.providers.anthropic_compaction import BETA, CompactingAnthropic
from tests.request.conftest import Bench
from tests.request.dialects.test_bound_thinking import Talker
from tests.request.talk import long
from tests.support.answers import Answer, Received
from tests.support.messages_answers import error
from tests.support.scripted import whole

Json = dict[str, Any]
CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{{{model: openai/{model}, api_base: "{{base}}"}}}}
    model_info: {{{{max_input_tokens: {{window}}, max_output_tokens: 200{info}}}}}
compaction:
  defaults: {{{{strategy: native, retention_tokens: 400, min_tokens: 300{{more}}}}}}
"""
CLAIMS = ", native_compaction: true, thinking_binding: true"
PROSE = "The points were gone through one after another, and each was agreed upon by both sides in turn. " * 4
NATIVE = CONFIG.format(model="claude-opus-5-5", info="")


@pytest.fixture
def api(bench: Bench) -> CompactingAnthropic:
    """Anthropic's API behind the bench."""
    api = CompactingAnthropic()
    bench.upstream.script = before_summarizer(api)
    return api


def before_summarizer(api: CompactingAnthropic) -> Callable[[Received], Answer]:
    """The API, and a summarizer for `hybrid` at the same address."""
    return lambda received: whole(PROSE) if received.path.endswith("/chat/completions") else api(received)


@pytest.fixture
def talker_of(bench: Bench, api: CompactingAnthropic, request: pytest.FixtureRequest) -> Callable[..., Talker]:
    """Makes a client of a Tidemark of its own."""
    assert api.refusals == []
    return lambda config=NATIVE, **settings: Talker(bench.client(request.node.nodeid, config=config, **settings))


def sent_bodies(bench: Bench) -> list[Json]:
    """The bodies of all requests for messages."""
    return [received.json for received in bench.upstream.received if is_message(received)]


def is_message(received: Received) -> bool:
    """Whether a request is none for a summary."""
    return received.path.endswith("/messages") and "compaction" not in received.json


def block_of(body: Json) -> Json | None:
    """The provider's summary in a request."""
    content = body["messages"][0]["content"]
    return content[0] if isinstance(content, list) and content[0]["type"] == "compaction" else None


def thoughts_in(body: Json) -> list[bool]:
    """Whether each answer in a request has its thinking."""
    answers = [said for said in body["messages"] if said["role"] == "assistant" and said["content"] != []]
    return [
        any(block["type"] == "thinking" for block in said["content"])
        for said in answers
        if said["content"][0]["type"] != "compaction"
    ]


def test_the_provider_writes_the_summaries_and_all_thinking_stays(
    bench: Bench, api: CompactingAnthropic, talker_of: Callable[..., Talker]
) -> None:
    """Nothing is refused or left out in several compactions, for a client that knows nothing of them."""
    talker = talker_of()
    talker.talk(40)
    assert api.refusals == []
    assert talker.actions.count("compacted") >= 2
    assert len(api.compactions) >= 2
    carrying = [body for body in sent_bodies(bench) if block_of(body)]
    assert carrying
    assert all(all(thoughts_in(body)) for body in carrying)
    assert {answer.headers.get("x-tidemark-strategy", "native") for answer in talker.answers} == {"native"}
    assert not any("x-tidemark-warning" in answer.headers for answer in talker.answers)


def test_the_provider_s_summaries_are_on_the_bill_of_their_conversation(
    bench: Bench, talker_of: Callable[..., Talker]
) -> None:
    """It reports what a compaction read and wrote as an iteration of its own."""
    talker = talker_of()
    compacted(talker)
    bench.settle()
    http, place = talker.client.http, talker.answers[-1].headers["x-tidemark-conversation"]
    assert http.get("/tidemark/gain").json()["summary_tokens"] > 0
    page = http.get(f"/tidemark/conversations/{place}", headers=talker.client.headers()).json()
    assert page["bill"]["summary_tokens"] > 500
    assert page["bill"]["requests"] > 0


def blocks_in(bench: Bench) -> list[str]:
    """The signatures of the provider's summaries, in the order in which they went out first."""
    return list(dict.fromkeys(block["signature"] for body in sent_bodies(bench) if (block := block_of(body))))


def warnings_of(talker: Talker) -> list[str]:
    """What the client was warned of."""
    return [answer.headers["x-tidemark-warning"] for answer in talker.answers if "x-tidemark-warning" in answer.headers]


def strategies_of(talker: Talker) -> set[str]:
    """What wrote the summaries in use."""
    return {answer.headers.get("x-tidemark-strategy", "hybrid") for answer in talker.answers}


def compacted(talker: Talker, most: int = 40) -> int:
    """Talk until the first compaction; returns the number of turns."""
    for number in range(most):
        talker.talk(1, start=number)
        if "compacted" in talker.actions:
            return number + 1
    raise AssertionError(talker.actions)


def test_hybrid_writes_where_the_provider_refuses(
    bench: Bench, api: CompactingAnthropic, talker_of: Callable[..., Talker]
) -> None:
    """A model without the beta answers 400; it is asked once, and the talk goes on."""
    talker = talker_of(CONFIG.format(model="claude-haiku-4-6", info=CLAIMS), more=", prepare: 0")
    talker.talk(40)
    assert [refusal for refusal in api.refusals if "not supported" in refusal] == api.refusals
    assert len(api.refusals) == 1
    assert talker.actions.count("compacted") >= 2
    assert strategies_of(talker) <= {"hybrid", "extractive"}
    assert not blocks_in(bench)


def test_a_request_that_waits_for_its_summary_is_told_that_hybrid_wrote_it(
    bench: Bench, api: CompactingAnthropic, talker_of: Callable[..., Talker]
) -> None:
    """The reason is in its warning; of a summary that was prepared, the log has it."""
    talker = talker_of(CONFIG.format(model="claude-haiku-4-6", info=CLAIMS), more=", prepare: 0")
    talker.talk(6)
    answer = talker.say(long(6, 90), summarize="force")
    assert answer.headers["x-tidemark-action"] == "forced"
    assert "the provider wrote no summary (the upstream" in answer.headers["x-tidemark-warning"]
    assert len(api.refusals) == 1
    assert not blocks_in(bench)


def test_hybrid_writes_where_the_provider_ends_without_a_summary(
    bench: Bench, api: CompactingAnthropic, talker_of: Callable[..., Talker]
) -> None:
    """A summary that did not fit into the answer is none."""
    api.stops = "max_tokens"
    talker = talker_of(more=", prepare: 0")
    compacted(talker)
    assert strategies_of(talker) <= {"hybrid", "extractive"}
    assert api.refusals == []
    assert not blocks_in(bench)


def test_a_block_that_is_refused_goes_out_as_text(
    bench: Bench, api: CompactingAnthropic, talker_of: Callable[..., Talker]
) -> None:
    """The provider has changed its keys: the request is sent again with the text, and later ones at once."""
    talker = talker_of()
    turns = compacted(talker)
    text = block_of(sent_bodies(bench)[-1])["content"]  # type: ignore[index]
    api.forget()
    talker.talk(3, start=turns)
    assert len([refusal for refusal in api.refusals if "compaction_signature_invalid" in refusal]) == 1
    assert len(api.refusals) == 1
    assert block_of(bench.upstream.last.json) is None
    assert text in str(bench.upstream.last.json["messages"])
    assert sum("the summary's text went out" in warning for warning in warnings_of(talker)) == 1


@pytest.mark.parametrize("more", ["", ", prepare: 0"])
def test_a_block_that_is_refused_at_once_is_sent_once(
    bench: Bench, api: CompactingAnthropic, talker_of: Callable[..., Talker], more: str
) -> None:
    """The request that puts a summary into use, prepared or not, goes out with its text after one refusal."""
    api_script, blocks = before_summarizer(api), 0

    def refusing(received: Received) -> Answer:
        nonlocal blocks
        if not is_message(received) or block_of(received.json) is None:
            return api_script(received)
        blocks += 1
        return error(400, "messages.0.content.0: compaction_signature_invalid") if blocks < 9 else api_script(received)

    bench.upstream.script = refusing
    talker = talker_of(more=more)
    turns = compacted(talker)
    talker.talk(2, start=turns)
    assert blocks == 1
    assert sum("the summary's text went out" in warning for warning in warnings_of(talker)) == 1


def test_another_worker_sends_the_same_block(
    bench: Bench, api: CompactingAnthropic, talker_of: Callable[..., Talker]
) -> None:
    """The block is in the store, so a restart and another worker change no byte, and all thinking stays."""
    talker = talker_of()
    turns = compacted(talker)
    bench.settle()
    before = bench.upstream.last.json["messages"]
    other = talker_of()
    other.client.key, other.messages = talker.client.key, talker.messages
    other.talk(1, start=turns)
    assert api.refusals == []
    assert bench.upstream.last.json["messages"][: len(before)] == before
    assert all(thoughts_in(bench.upstream.last.json))


def test_an_edited_summary_goes_out_as_its_text(
    bench: Bench, api: CompactingAnthropic, talker_of: Callable[..., Talker]
) -> None:
    """The provider's block has the text of before; the talk goes on, without the thinking of before the edit."""
    talker = talker_of()
    turns = compacted(talker)
    bench.settle()
    path = f"/tidemark/conversations/{talker.answers[-1].headers['x-tidemark-conversation']}/summaries"
    headers = talker.client.headers()
    edited = talker.client.http.post(path, json={"text": "The harbour opens at nine."}, headers=headers)
    assert edited.status_code == 200, edited.text
    talker.talk(3, start=turns)
    assert api.refusals == []
    assert block_of(bench.upstream.last.json) is None
    assert "The harbour opens at nine." in str(bench.upstream.last.json["messages"][0])


def test_a_stored_conversation_shows_exports_and_forgets_its_summary(
    bench: Bench, api: CompactingAnthropic, talker_of: Callable[..., Talker]
) -> None:
    """Its text is what is read, and a deletion takes it along."""
    talker = talker_of()
    turns = compacted(talker)
    bench.settle()
    text = block_of(sent_bodies(bench)[-1])["content"]  # type: ignore[index]
    http, headers = talker.client.http, talker.client.headers()
    path = f"/tidemark/conversations/{talker.answers[-1].headers['x-tidemark-conversation']}"
    (shown,) = [one for one in http.get(f"{path}/summaries", headers=headers).json()["data"] if one["in_use"]]
    assert (shown["text"], shown["strategy"]) == (text, "native")
    exported = http.get(f"{path}/export", headers=headers)
    assert exported.status_code == 200, exported.text
    assert talker.messages[0]["content"] in exported.text
    assert http.delete(path, headers=headers).status_code in (200, 204)
    assert http.get(f"{path}/summaries", headers=headers).status_code == 404
    talker.talk(1, start=turns)
    assert len(api.refusals) <= 1  # nothing is known any more of the thinking that was made behind the summary
    assert text not in str(bench.upstream.last.json)


def test_another_model_gets_the_text(bench: Bench, api: CompactingAnthropic, talker_of: Callable[..., Talker]) -> None:
    """A block belongs to the model that wrote it."""
    second = NATIVE.replace("compaction:\n", SECOND + "compaction:\n", 1)
    talker = talker_of(second)
    turns = compacted(talker)
    talker.members = {**talker.members, "model": "other"}
    talker.talk(1, start=turns)
    assert api.refusals == []
    assert bench.upstream.last.json["model"] == "claude-fable-5-1"
    assert block_of(bench.upstream.last.json) is None


SECOND = """\
  - model_name: other
    litellm_params: {{model: openai/claude-fable-5-1, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
"""


def test_a_client_that_compacts_itself_is_left_to_the_upstream(
    bench: Bench, api: CompactingAnthropic, talker_of: Callable[..., Talker]
) -> None:
    """Neither its question nor the block in its messages is changed, however long the request is."""
    talker = talker_of()
    talker.client.http.headers["anthropic-beta"] = BETA
    for number in range(12):
        talker.messages += [{"role": "user", "content": long(number, 90)}, {"role": "assistant", "content": "Fine."}]
    talker.members = {"compaction": {"type": "summarize"}}
    answer = talker.post()
    assert answer.status_code == 200, answer.text
    assert "left to the upstream" in answer.headers["x-tidemark-warning"]
    assert bench.upstream.last.json["messages"] == talker.messages
    talker.messages = [{"role": "assistant", "content": answer.json()["content"]}, *talker.messages[-2:]]
    talker.members = {}
    talker.talk(12)
    assert api.refusals == []
    assert set(talker.actions) == {"none"}
    assert block_of(bench.upstream.last.json) == answer.json()["content"][0]
    assert len(api.compactions) == 1
