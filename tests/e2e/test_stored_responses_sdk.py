"""Stored responses through the official ``openai`` SDK: retrieved, deleted, cancelled, listed and compacted."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from openai import DefaultHttpxClient, OpenAI
from openai.types.responses import Response

from tests.request.conftest import Bench, benched
from tests.support.keeping import TWO_UPSTREAMS, WORDS, StatelessUpstream, items, response
from tests.support.scripted import Answer, ScriptedUpstream
from tests.support.serving import NO_TLS
from tidemark.core.conversation.summary import OPENING

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("imported_litellm")]

PATH = "/v1/responses"


@pytest.fixture(scope="module")
def bench(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all of these tests; each has a key of its own."""
    with benched(store_url, tmp_path_factory.mktemp("stored")) as made:
        yield made


@pytest.fixture(scope="module")
def base_url(bench: Bench) -> str:
    """What an application sets ``OPENAI_BASE_URL`` to."""
    return bench.start() + "/v1"


@pytest.fixture
def upstream(bench: Bench) -> ScriptedUpstream:
    """An upstream that keeps nothing."""
    bench.upstream.received.clear()
    bench.upstream.script = StatelessUpstream()
    bench.upstream.others.kept = None
    return bench.upstream


def client_of(base_url: str, key: str) -> OpenAI:
    """The SDK as applications make it, without retries."""
    http = DefaultHttpxClient(verify=NO_TLS)
    return OpenAI(base_url=base_url, api_key=key, max_retries=0, timeout=30, http_client=http)


@pytest.fixture
def sdk(base_url: str, upstream: ScriptedUpstream, request: pytest.FixtureRequest) -> Iterator[OpenAI]:
    """A client with a credential of its own."""
    del upstream
    with client_of(base_url, request.node.nodeid) as made:
        yield made


def create(sdk: OpenAI, text: Any, earlier: str | None = None, **more: Any) -> Response:
    """Create a response."""
    made = sdk.responses.create(model="small", input=text, previous_response_id=earlier, max_output_tokens=100, **more)
    assert isinstance(made, Response)
    return made


def window(sdk: OpenAI, **asked: Any) -> list[dict[str, Any]]:
    """The output of a compaction, as the client sends it back."""
    raw = sdk.responses.with_raw_response.compact(model="small", **asked)
    output: list[dict[str, Any]] = json.loads(raw.http_response.content)["output"]
    return output


def test_a_response_is_retrieved_as_it_was_answered(sdk: OpenAI) -> None:
    """Every member, the unknown ones too."""
    made = create(sdk, "How is the weather?", metadata={"ship": "Argo"})
    assert sdk.responses.retrieve(made.id).to_dict() == made.to_dict()
    assert sdk.responses.retrieve(made.id, include=["reasoning.encrypted_content"]).output_text == made.output_text


def test_a_stored_response_is_streamed_again(sdk: OpenAI) -> None:
    """``stream=True`` is answered with all events; ``starting_after`` leaves out those that the client has."""
    made = create(sdk, "How is the weather?")
    with sdk.responses.retrieve(made.id, stream=True) as events:
        told = list(events)
    assert [event.sequence_number for event in told] == list(range(9))
    assert "".join(event.delta for event in told if event.type == "response.output_text.delta") == made.output_text
    assert told[-1].type == "response.completed"
    assert told[-1].response.to_dict() == made.to_dict()
    with sdk.responses.retrieve(made.id, stream=True, starting_after=4) as events:
        assert [event.type for event in events] == [event.type for event in told[5:]]


def test_the_sdk_puts_a_stored_response_together_from_its_stream(sdk: OpenAI) -> None:
    """Its helper for streams goes through every event."""
    made = create(sdk, "How is the weather?")
    with sdk.responses.stream(response_id=made.id, starting_after=2) as stream:
        assert next(event.sequence_number for event in stream) == 3
        assert stream.get_final_response().output_text == made.output_text


def test_a_deleted_response_is_gone_and_its_conversation_stays(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """The answer is OpenAI's; a later response still knows what was said."""
    first = create(sdk, "How is the weather?")
    second = create(sdk, "And the tide?", first.id)
    raw = sdk.responses.with_raw_response.delete(first.id)
    assert json.loads(raw.http_response.content) == {"id": first.id, "object": "response", "deleted": True}
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve(first.id)
    create(sdk, "And the wind?", second.id)
    assert len(upstream.last.json["input"]) == 5


def test_a_response_is_deleted_at_an_upstream_that_may_keep_it(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """Whoever would be asked to show it is asked to delete it, though nobody has seen that upstream keep anything."""
    upstream.others.kept = {}
    made = create(sdk, "How is the weather?")
    assert made.id in upstream.others.kept
    sdk.responses.delete(made.id)
    assert upstream.others.kept == {}
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve(made.id)


def test_a_deletion_that_the_upstream_refuses_deletes_nothing(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """The refusal is the upstream's own, and the client may try again."""
    upstream.others.kept = {}
    made = create(sdk, "How is the weather?")
    upstream.others.refuses_deletions = True
    try:
        with pytest.raises(openai.InternalServerError) as refused:
            sdk.responses.delete(made.id)
        assert "not now" in str(refused.value)
    finally:
        upstream.others.refuses_deletions = False
    assert sdk.responses.retrieve(made.id).id == made.id


def test_the_input_items_of_a_response_are_listed(sdk: OpenAI) -> None:
    """Those of its own request, the newest first, in pages, each with an id and its parts."""
    first = create(sdk, "How is the weather?")
    sent = [{"role": "developer", "content": "Be brief."}, *[{"role": "user", "content": f"{n}"} for n in range(4)]]
    second = create(sdk, sent, first.id)
    listed: Any = list(sdk.responses.input_items.list(second.id, limit=2))
    assert [item.content[0].text for item in listed] == ["3", "2", "1", "0", "Be brief."]
    page: Any = sdk.responses.input_items.list(second.id, order="asc", limit=2)
    assert [item.role for item in page.data] == ["developer", "user"]
    assert page.has_more
    assert len({item.id for item in listed}) == 5


def test_a_tools_result_is_listed_too(sdk: OpenAI) -> None:
    """Items without an id or a status get both."""
    call = {"type": "function_call", "call_id": "c1", "name": "tide", "arguments": "{}"}
    result = {"type": "function_call_output", "call_id": "c1", "output": "High."}
    made = create(sdk, [{"role": "user", "content": "The tide?"}, call, result])
    listed: Any = sdk.responses.input_items.list(made.id, order="asc").data
    assert [item.type for item in listed] == ["message", "function_call", "function_call_output"]
    assert listed[2].status == "completed"


def test_only_a_background_response_is_cancelled(sdk: OpenAI) -> None:
    """The error says so."""
    made = create(sdk, "How is the weather?")
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.responses.cancel(made.id)
    assert refused.value.code == "response_not_background"


def test_the_response_of_somebody_else_does_not_exist(sdk: OpenAI, base_url: str) -> None:
    """Promise 8: on every path the same 404 as for an id that nobody has."""
    made = create(sdk, "How is the weather?")
    with client_of(base_url, "a stranger") as stranger:
        for name in (made.id, "resp_nobody"):
            for call in (
                stranger.responses.retrieve,
                stranger.responses.delete,
                stranger.responses.cancel,
                stranger.responses.input_items.list,
            ):
                with pytest.raises(openai.NotFoundError):
                    call(name)
    assert sdk.responses.retrieve(made.id).id == made.id


def test_what_must_not_be_stored_is_not_found(sdk: OpenAI) -> None:
    """``store=False``."""
    made = create(sdk, "How is the weather?", store=False)
    with pytest.raises(openai.NotFoundError):
        sdk.responses.retrieve(made.id)


def test_an_unknown_response_is_the_upstreams_to_answer(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """From before Tidemark: the one upstream may keep it."""
    before = {**response(77, items("Long ago.", 77)), "input_items": [{"role": "user", "content": "When?"}]}
    upstream.others.kept = {"resp_77": before}
    assert sdk.responses.retrieve("resp_77").output_text == "Long ago."
    assert [item.id for item in sdk.responses.input_items.list("resp_77")] == ["item_0"]
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.responses.cancel("resp_77")
    assert "Only background responses" in str(refused.value)
    sdk.responses.delete("resp_77")
    assert upstream.others.kept == {}


def test_a_background_response_is_asked_of_the_upstream(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """It makes the response; Tidemark knows only that it was asked for."""
    upstream.script = lambda _: Answer([json.dumps(response(5, [], status="queued", background=True)).encode()])
    made = create(sdk, "Think long.", background=True)
    assert made.status == "queued"
    upstream.others.kept = {"resp_5": response(5, items("Done.", 5), background=True)}
    assert sdk.responses.retrieve(made.id).output_text == "Done."
    listed: Any = list(sdk.responses.input_items.list(made.id))
    assert [item.content[0].text for item in listed] == ["Think long."]
    sdk.responses.delete(made.id)
    assert upstream.others.kept == {}


def test_a_background_response_that_has_ended_is_the_upstreams_to_cancel(
    sdk: OpenAI, upstream: ScriptedUpstream
) -> None:
    """OpenAI answers such a call with the response itself; Tidemark must not say that it was not in the background."""
    told = response(6, items("Done.", 6), background=True)
    upstream.script = lambda _: Answer([json.dumps(told).encode()])
    made = create(sdk, "Think long.", background=True)
    upstream.others.kept = {"resp_6": told}
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.responses.cancel(made.id)
    assert refused.value.code != "response_not_background"


def test_a_compacted_conversation_goes_on(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """User messages stay, the rest is one sealed item, and the next request has its text."""
    talk: list[Any] = []
    for number in range(4):
        talk += [{"role": "user", "content": f"Question {number}"}, {"role": "assistant", "content": f"{WORDS * 3}"}]
    compacted = sdk.responses.compact(model="small", input=talk)
    assert compacted.object == "response.compaction"
    assert [item.type for item in compacted.output] == ["message"] * 4 + ["compaction"]
    output = window(sdk, input=talk)
    assert "harbour" not in output[-1]["encrypted_content"]
    create(sdk, [*output, {"role": "user", "content": "And now?"}])
    forwarded = upstream.last.json["input"]
    assert [item["role"] for item in forwarded] == ["user"] * 4 + ["system", "user"]
    assert OPENING in forwarded[4]["content"]
    assert "harbour" in forwarded[4]["content"]


def test_a_response_is_compacted_by_its_id(sdk: OpenAI) -> None:
    """With what led to it."""
    first = create(sdk, "How is the weather?")
    second = create(sdk, "And the tide?", first.id)
    told = window(sdk, previous_response_id=second.id)
    assert [item["content"][0]["text"] for item in told[:-1]] == ["How is the weather?", "And the tide?"]


def test_a_sealed_summary_is_opened_for_its_tenant_only(sdk: OpenAI, base_url: str) -> None:
    """Another's, or a changed one, is refused with its place."""
    sealed = window(sdk, input=[{"role": "user", "content": "Hi."}])[-1]
    broken = {**sealed, "encrypted_content": sealed["encrypted_content"][:-8] + "AAAAAAA="}
    with client_of(base_url, "a stranger") as stranger:
        for client, item in ((stranger, sealed), (sdk, broken)):
            with pytest.raises(openai.BadRequestError) as refused:
                create(client, [{"role": "user", "content": "Hi."}, item, {"role": "user", "content": "And?"}])
            assert (refused.value.code, refused.value.param) == ("invalid_encrypted_content", "input[1]")


def test_a_providers_own_compaction_travels_untouched(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """Only the provider can read it."""
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "sealed by the provider"}
    create(sdk, [item, {"role": "user", "content": "And?"}])
    assert upstream.last.json["input"][0] == item


def test_bad_parameters_are_named(sdk: OpenAI) -> None:
    """In OpenAI's envelope."""
    made = create(sdk, "How is the weather?")
    with pytest.raises(openai.BadRequestError) as unread:
        sdk.responses.retrieve(made.id, stream=True, extra_query={"starting_after": "-1"})
    assert unread.value.param == "starting_after"
    for query, param in (({"limit": 0}, "limit"), ({"order": "up"}, "order"), ({"after": "nobody"}, "after")):
        with pytest.raises(openai.BadRequestError) as refused:
            sdk.responses.input_items.list(made.id, extra_query=query)
        assert refused.value.param == param


def test_of_several_upstreams_the_one_of_the_named_model_is_asked(bench: Bench, upstream: ScriptedUpstream) -> None:
    """Without a model nobody knows which one may keep the response."""
    upstream.others.kept = {"resp_88": response(88, items("Long ago.", 88))}
    with client_of(bench.start(config=TWO_UPSTREAMS) + "/v1", "several") as sdk:
        with pytest.raises(openai.NotFoundError) as refused:
            sdk.responses.retrieve("resp_88")
        assert "?model=" in str(refused.value)
        assert sdk.responses.retrieve("resp_88", extra_query={"model": "small"}).output_text == "Long ago."


@pytest.mark.parametrize("name", ["..", "%2e%2e", "%2E.", "."])
@pytest.mark.parametrize(
    ("method", "rest"), [("GET", ""), ("DELETE", ""), ("GET", "/input_items"), ("POST", "/cancel")]
)
def test_no_id_of_a_response_climbs_to_another_path(
    base_url: str, upstream: ScriptedUpstream, name: str, method: str, rest: str
) -> None:
    """``/v1/responses/..`` would be the upstream's ``/v1`` (RFC 3986, section 5.2.4)."""
    before = len(upstream.received)
    host, port = base_url.removeprefix("http://").removesuffix("/v1").split(":")
    connection = http.client.HTTPConnection(host, int(port))  # which leaves the dots in the path, as httpx does not
    try:
        connection.request(method, f"/v1/responses/{name}{rest}", headers={"Authorization": "Bearer somebody"})
        answer = connection.getresponse()
        assert answer.status == 400
        assert json.loads(answer.read())["error"]["code"] == "invalid_path"
    finally:
        connection.close()
    assert len(upstream.received) == before
