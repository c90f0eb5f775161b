"""Windows: which source wins, what a running server is asked, and what an overflow teaches."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.support.clock import JUMPING, jumping_loop
from tests.support.scripted import Exchange, serving
from tests.upstream.callers import calling
from tidemark.catalog.catalog import Catalog
from tidemark.catalog.litellm_data import LiteLLMModelData, data_path
from tidemark.catalog.probe import ANSWER_SECONDS, FAILED_SECONDS, FRESH_SECONDS, Probe
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import UpstreamError, UpstreamUnreachable
from tidemark.core.events import Event, WindowAssumed
from tidemark.core.planning.budget import CompactionPolicy, ModelWindow, budget_for
from tidemark.core.ports import Caller, Route
from tidemark.upstream.upstream import LiteLLMUpstream

ALICE = calling(("authorization", "Bearer a"), fingerprint=b"alice")
BOB = calling(("authorization", "Bearer b"), fingerprint=b"bob")
LOCAL = "http://127.0.0.1:9/v1"


class Servers:
    """Answers the probe by URL, and counts."""

    def __init__(self, answers: Mapping[str, JsonValue]) -> None:
        self.answers = answers
        self.asked: list[tuple[str, bytes]] = []

    async def get_json(self, route: Route, url: str, caller: Caller, *, timeout_seconds: float) -> JsonValue:
        """The scripted answer, or an error."""
        self.asked.append((url, caller.fingerprint))
        await asyncio.sleep(0)
        answer = self.answers.get(url)
        if answer is None:
            raise UpstreamUnreachable("nobody")
        return answer


@pytest.fixture
def data(tmp_path: Path) -> LiteLLMModelData:
    """A small file of litellm's form."""
    path = tmp_path / "data.json"
    path.write_text(
        json.dumps(
            {
                "sample_spec": {"max_tokens": "prose", "mode": "one of: chat"},
                "gpt-4o": {"max_input_tokens": 128000, "max_output_tokens": 16384, "mode": "chat"},
                "groq/big": {"max_tokens": 8192, "mode": "chat"},
                "dall-e": {"max_input_tokens": 1000, "mode": "image_generation"},
            }
        )
    )
    return LiteLLMModelData(path)


def catalog_with(data: LiteLLMModelData, servers: Servers | None = None, **fields: Any) -> Catalog:
    """A catalog over scripted servers."""
    return Catalog(LiteLLMUpstream(), data=data, probe=Probe((servers or Servers({})).get_json), **fields)


def route(
    model: str, *, base: str = "https://api.openai.com/v1", provider: str = "openai", given: bool = False
) -> Route:
    """A wire route; ``given`` when a person wrote the base URL."""
    return Route("wire", model, model, provider, base, params={"api_base": base} if given else None)


async def window(catalog: Catalog, where: Route, caller: Caller = ALICE) -> ModelWindow:
    """The window of a route."""
    return (await catalog.profile(where, caller)).window


async def test_sources_come_in_order(data: LiteLLMModelData) -> None:
    """A person's word, our own data, litellm's, an assumption: the first that has a window holds."""
    fields: dict[str, Any] = {
        "overrides": {"mine": {"max_input_tokens": 5000}},
        "shipped": {"gpt-5*": {"max_input_tokens": 272000, "context_window": 400000}},
    }
    catalog = catalog_with(data, **fields)
    assert await window(catalog, route("mine")) == ModelWindow(5000, source="manual")
    assert await window(catalog, route("GPT-5-mini")) == ModelWindow(272000, None, 400000, "api")
    assert await window(catalog, route("gpt-4o")) == ModelWindow(128000, 16384, None, "api")
    assert await window(catalog, route("big", provider="groq")) == ModelWindow(8192, source="api")
    assert await window(catalog, route("dall-e")) == ModelWindow(128000, source="default")


async def test_a_persons_word_may_be_partial(data: LiteLLMModelData) -> None:
    """What model_info leaves out comes from the next source; the numbers of one window stay together."""
    catalog = catalog_with(
        data,
        overrides={"gpt-4o": {"max_input_tokens": 8000}, "other-*": {"max_output_tokens": 77}, "*": {}},
        shipped={"gpt-4o*": {"max_input_tokens": 100000, "context_window": 120000, "max_output_tokens": 9}},
    )
    assert await window(catalog, route("gpt-4o")) == ModelWindow(8000, 9, None, "manual")
    assert await window(catalog, route("other-1")) == ModelWindow(128000, 77, None, "default")


async def test_overrides_are_read_at_every_request(data: LiteLLMModelData) -> None:
    """An edit in the console applies at once."""
    overrides: dict[str, dict[str, JsonValue]] = {}
    catalog = catalog_with(data, overrides=overrides)
    overrides["gpt-4o"] = {"context_window": 1000}
    assert await window(catalog, route("gpt-4o")) == ModelWindow(1000, 16384, 1000, "manual")


async def test_a_profile_is_made_once_and_anew_when_any_of_what_it_is_made_of_changes(data: LiteLLMModelData) -> None:
    """The very same value while all is as it was; a number within an entry, a glob and the policy apply at once."""
    overrides: dict[str, dict[str, JsonValue]] = {"mine": {"max_input_tokens": 5000}, "other-*": {}}
    policies = {"mine": CompactionPolicy()}
    catalog = catalog_with(data, overrides=overrides, policy_for=lambda name: policies.get(name, CompactionPolicy()))
    mine, other = route("mine"), route("other-1")
    first = await catalog.profile(mine, ALICE)
    assert await catalog.profile(mine, BOB) is first
    overrides["mine"]["max_input_tokens"] = 6000
    assert await window(catalog, mine) == ModelWindow(6000, source="manual")
    policies["mine"] = CompactionPolicy(threshold=0.5)
    assert (await catalog.profile(mine, ALICE)).policy.threshold == 0.5
    assert (await window(catalog, other)).source == "default"
    overrides["other-*"]["context_window"] = 7000
    assert await window(catalog, other) == ModelWindow(7000, None, 7000, "manual")
    overrides["other-1"] = {"max_input_tokens": 8000}
    assert await window(catalog, other) == ModelWindow(8000, source="manual")
    del overrides["mine"]
    assert (await window(catalog, mine)).source == "default"
    assert await window(catalog, Route("wire", "mine", "gpt-4o", "openai", "")) == ModelWindow(
        128000, 16384, source="api"
    )


async def test_what_a_server_told_is_asked_for_again_with_every_profile(data: LiteLLMModelData) -> None:
    """It may run another model by now; whether its last word is still fresh is the probe's to say."""
    now, where = 0.0, route("gpt-4o", base=LOCAL, given=True)
    servers = Servers({LOCAL + "/models": {"data": [{"id": "gpt-4o", "max_model_len": 10}]}})
    catalog = Catalog(LiteLLMUpstream(), data=data, probe=Probe(servers.get_json, clock=lambda: now))
    assert (await window(catalog, where)).window == 10
    servers.answers = {LOCAL + "/models": {"data": [{"id": "gpt-4o", "max_model_len": 20}]}}
    assert (await window(catalog, where)).window == 10
    now += FRESH_SECONDS
    assert (await window(catalog, where)).window == 20


async def test_destination_knows_better_than_an_alias(data: LiteLLMModelData) -> None:
    """A client's name is looked up last: it may be an alias for anything; base_model goes before all."""
    catalog = catalog_with(data)
    assert await window(
        catalog, Route("wire", "gpt-4o", "big", "groq", "https://api.groq.com/openai/v1")
    ) == ModelWindow(8192, source="api")
    azure = Route("translate", "x", "deployment-7", "azure", "", params={"base_model": "gpt-4o"})
    assert (await window(catalog, azure)).max_output_tokens == 16384


async def test_policy_is_the_clients_names(data: LiteLLMModelData) -> None:
    """Policies are asked for by the name that the client uses."""
    catalog = catalog_with(data, policy_for=lambda name: CompactionPolicy(template=name))
    assert (await catalog.profile(route("m"), ALICE)).policy.template == "m"


@pytest.mark.parametrize(
    ("entries", "tokens"),
    [
        ([{"id": "x", "meta": {"n_ctx": 2048, "n_ctx_train": 8192}}], 2048),
        ([{"id": "gpt-4o", "max_model_len": 4096}], 4096),
        ([{"id": "gpt-4o", "context_length": 5000}, {"id": "b", "context_length": 7}], 5000),
        ([{"id": "gpt-4o", "context_window": 6000}, {"id": "b"}], 6000),
        ([{"id": "gpt-4o", "max_context_length": 7000}, {"id": "b"}], 7000),
        ([{"id": "a", "max_model_len": 1}, {"id": "b", "max_model_len": 2}], 128000),
        ([{"id": "gpt-4o", "max_model_len": True}], 128000),
        ([], 128000),
    ],
)
async def test_running_server_knows_best(
    data: LiteLLMModelData, entries: list[dict[str, JsonValue]], tokens: int
) -> None:
    """Where a person gave the address, the server's word goes before all data about the name."""
    servers = Servers({LOCAL + "/models": {"data": entries}})
    found = await window(catalog_with(data, servers), route("gpt-4o", base=LOCAL, given=True))
    assert found.window == tokens


async def test_llama_cpp_tells_its_slot_where_the_list_does_not(data: LiteLLMModelData) -> None:
    """An older llama.cpp lists only the trained window; what it runs with stands in /props."""
    listed: JsonValue = {"data": [{"id": "x", "meta": {"n_ctx_train": 8192}}]}
    props: JsonValue = {"default_generation_settings": {"n_ctx": 2048}}
    servers = Servers({LOCAL + "/models": listed, "http://127.0.0.1:9/props": props})
    assert (await window(catalog_with(data, servers), route("m", base=LOCAL, given=True))).window == 2048
    servers = Servers({LOCAL + "/models": listed})
    assert (await window(catalog_with(data, servers), route("m", base=LOCAL, given=True))).window == 8192


async def test_servers_of_litellms_are_asked_last_and_openai_never(data: LiteLLMModelData) -> None:
    """A provider's list is asked where no data knows the model; OpenAI's tells no windows."""
    base = "https://api.groq.com/openai/v1"
    servers = Servers({base + "/models": {"data": [{"id": "new", "context_window": 9000}, {"id": "big"}]}})
    catalog = catalog_with(data, servers)
    assert (await window(catalog, route("big", base=base, provider="groq"))).window == 8192
    assert (await window(catalog, route("unknown"))).source == "default"
    assert servers.asked == []
    assert await window(catalog, route("new", base=base, provider="groq")) == ModelWindow(9000, None, 9000, "api")


async def test_server_is_asked_once_in_a_while() -> None:
    """Requests at once share one question; an answer holds for minutes, a failure for its caller."""
    servers = Servers({LOCAL + "/models": {"data": [{"id": "m", "max_model_len": 10}]}})
    now = 0.0
    probe = Probe(servers.get_json, clock=lambda: now)
    where = route("m", base=LOCAL, given=True)
    assert await asyncio.gather(*(probe.window(where, ALICE) for _ in range(5))) == [10] * 5
    assert await probe.window(where, BOB) == 10
    assert len(servers.asked) == 1
    now += FRESH_SECONDS
    servers.answers = {}
    assert await probe.window(where, ALICE) == 10  # the old answer, rather than none
    count = len(servers.asked)
    assert await probe.window(where, ALICE) == 10
    assert len(servers.asked) == count
    await probe.window(where, BOB)
    assert servers.asked[-1][1] == b"bob"
    now += FAILED_SECONDS
    servers.answers = {LOCAL + "/models": {"data": [{"id": "m", "max_model_len": 20}]}}
    assert await probe.window(where, ALICE) == 20


@pytest.mark.parametrize("anyio_backend", [JUMPING])
async def test_silent_server_costs_two_seconds_at_most(data: LiteLLMModelData) -> None:
    """A server that does not answer is given up soon, and the request goes on with the next source."""

    async def script(exchange: Exchange) -> None:
        await exchange.gone()

    async with serving(script) as server:
        upstream = LiteLLMUpstream(upstream_base_url=server.base_url)
        catalog = Catalog(upstream, data=data)
        started = jumping_loop().time()
        assert (await window(catalog, await upstream.resolve("gpt-4o"))).max_output_tokens == 16384
        assert jumping_loop().time() - started == pytest.approx(ANSWER_SECONDS, abs=0.01)
        await upstream.aclose()
    assert ANSWER_SECONDS == 2


def error(message: str) -> bytes:
    """An OpenAI error envelope."""
    return json.dumps({"error": {"message": message, "code": "context_length_exceeded"}}).encode()


async def test_overflow_teaches_the_window(data: LiteLLMModelData) -> None:
    """A told window holds from then on, for the caller who was told it; other errors teach nothing."""
    catalog = catalog_with(data)
    where = route("unknown", base=LOCAL)
    profile = await catalog.profile(where, ALICE)
    body = error("This model's maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.")
    learned = await catalog.learn(where, ALICE, profile, status=400, body=body, sent_tokens=9000)
    assert learned is not None
    assert learned.window == ModelWindow(8192, None, 8192, "api")
    assert await window(catalog, where) == learned.window
    assert (await window(catalog, where, BOB)).source == "default"
    assert (
        await catalog.learn(where, ALICE, profile, status=400, body=b'{"error":{"message":"no"}}', sent_tokens=9000)
        is None
    )


@pytest.mark.parametrize(
    ("message", "sent", "replayed", "kept"),
    [
        (
            "prompt is too long: 210000 tokens > 200000 maximum",
            180000,
            171428,
            171428,
        ),  # its tokens are denser
        ("prompt is too long: 400000 tokens > 200000 maximum", 120000, 60000, 160000),  # an odd request
        ("the input length exceeds the context length", 50000, 40000, 40000),  # no number
        ("the input length exceeds the context length", 300000, 160000, 160000),
    ],
)
async def test_window_is_learned_in_our_own_tokens(
    data: LiteLLMModelData, message: str, sent: int, replayed: int, kept: int
) -> None:
    """Where the provider counts more than we do, its window holds fewer of our tokens."""
    catalog = catalog_with(data, overrides={"m": {"max_input_tokens": 200000}})
    where = route("m")
    learned = await catalog.learn(
        where, ALICE, await catalog.profile(where, ALICE), status=400, body=error(message), sent_tokens=sent
    )
    assert learned is not None
    assert learned.window.window == replayed
    assert await window(catalog, where) == ModelWindow(kept, None, kept, "manual")


async def test_limit_on_input_leaves_the_reply_its_room(data: LiteLLMModelData) -> None:
    """GPT-5: 272,000 in of 400,000 in all; an overflow of the input leaves the reply its tokens."""
    catalog = catalog_with(
        data,
        shipped={"gpt-5": {"max_input_tokens": 272000, "context_window": 400000, "max_output_tokens": 128000}},
    )
    where = route("gpt-5")
    body = error("Input tokens exceed the configured limit of 272000 tokens. Your messages resulted in 280000 tokens.")
    learned = await catalog.learn(
        where, ALICE, await catalog.profile(where, ALICE), status=400, body=body, sent_tokens=252000
    )
    assert learned is not None
    assert learned.window == ModelWindow(244800, 128000, 400000, "api")
    assert budget_for(learned, None).limit == 224800


async def test_models_lists_what_is_configured(data: LiteLLMModelData) -> None:
    """GET /v1/models: configured names with their windows, wildcards left out, litellm not needed."""
    entries: list[dict[str, JsonValue]] = [
        {"model_name": "a", "litellm_params": {"model": "openai/gpt-4o"}},
        {"model_name": "a", "litellm_params": {"model": "openai/second"}},
        {"model_name": "c", "litellm_params": {"model": "anthropic/claude"}},
        {"model_name": "openai/*", "litellm_params": {"model": "openai/*"}},
    ]
    catalog = Catalog(LiteLLMUpstream(entries), data=data, probe=Probe(Servers({}).get_json))
    assert await catalog.models(calling()) == {
        "object": "list",
        "data": [
            {
                "id": "a",
                "object": "model",
                "created": 0,
                "owned_by": "openai",
                "context_length": 128000,
                "max_input_tokens": 128000,
                "max_output_tokens": 16384,
            },
            {
                "id": "c",
                "object": "model",
                "created": 0,
                "owned_by": "anthropic",
                "context_length": 128000,
                "max_input_tokens": 128000,
            },
        ],
    }


async def test_models_keeps_what_the_upstream_says(data: LiteLLMModelData) -> None:
    """TIDEMARK_UPSTREAM: its own list with unknown fields, and context_length where it is known."""
    listed = {
        "object": "list",
        "x": 1,
        "data": [
            {"id": "local", "y": [2], "meta": {"n_ctx": 2048}},
            {"id": "told", "context_length": 7},
            {"id": "gpt-4o"},
            {"id": "nobody-knows"},
        ],
    }

    async def script(exchange: Exchange) -> None:
        assert exchange.header("authorization") == ["Bearer a"]
        await exchange.answer(json.dumps(listed).encode())

    async with serving(script) as server:
        upstream = LiteLLMUpstream(upstream_base_url=server.base_url)
        answer = await Catalog(upstream, data=data).models(ALICE)
        await upstream.aclose()
    assert answer == listed | {
        "data": [
            {"id": "local", "y": [2], "meta": {"n_ctx": 2048}, "context_length": 2048},
            {"id": "told", "context_length": 7},
            {"id": "gpt-4o", "context_length": 128000, "max_output_tokens": 16_384},
            {"id": "nobody-knows"},
        ]
    }


async def test_models_tells_when_the_upstream_does_not(data: LiteLLMModelData) -> None:
    """An upstream without a list is an upstream error, not an empty list."""
    upstream = LiteLLMUpstream(upstream_base_url=LOCAL)
    with pytest.raises(UpstreamError):
        await Catalog(upstream, data=data).models(ALICE)
    await upstream.aclose()


async def test_nothing_configured_lists_nothing_for_strangers_keys(data: LiteLLMModelData) -> None:
    """A key that may be another provider's is not shown to OpenAI to find out."""
    for caller in (
        calling(),
        calling(("authorization", "Bearer sk-ant-1")),
        calling(("authorization", "Bearer sk-1")),
    ):
        assert await catalog_with(data).models(caller) == {"object": "list", "data": []}


@pytest.mark.speed
async def test_litellms_own_file_is_read_fast_and_right() -> None:
    """The file in the wheel has the form that is read, and it is hardly slower than to parse it."""

    async def seconds(work: Callable[[], Awaitable[object]]) -> float:
        started = time.process_time()
        await work()
        return time.process_time() - started

    async def parse() -> object:
        path = data_path()
        assert path is not None
        return json.loads(path.read_bytes())

    read = parsed = inf
    for _ in range(8):
        read = min(read, await seconds(lambda: LiteLLMModelData().lookup(["gpt-4o"])))
        parsed = min(parsed, await seconds(parse))
        if read < 3 * parsed:
            break
    assert read < 3 * parsed
    known = await LiteLLMModelData().lookup(["gpt-4o"])
    assert known is not None
    assert (known.max_input_tokens, known.max_output_tokens) == (128000, 16384)
    assert await LiteLLMModelData().provider("gpt-4o") == "openai"


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{", msgspec.json.encode({"m": 1})])
async def test_unreadable_file_is_no_failure(tmp_path: Path, content: bytes | None) -> None:
    """Without litellm's data every model still has a window."""
    path = tmp_path / "data.json"
    if content is not None:
        path.write_bytes(content)
    assert (await window(catalog_with(LiteLLMModelData(path)), route("gpt-4o"))).source == "default"


BETA = "context-1m-2025-08-07"
SONNET: dict[str, Any] = {"max_input_tokens": 200_000, "max_output_tokens": 64_000, "beta_windows": {BETA: 1_000_000}}


@pytest.mark.parametrize(
    ("sent", "window"),
    [
        ((), 200_000),
        ((("anthropic-beta", BETA),), 1_000_000),
        ((("Anthropic-Beta", f"interleaved-thinking-2025-05-14, {BETA}"),), 1_000_000),
        ((("anthropic-beta", "output-128k-2025-02-19"), ("anthropic-beta", BETA)), 1_000_000),
        ((("anthropic-beta", "context-1m-2099-01-01"),), 200_000),
    ],
)
async def test_a_beta_header_gives_its_request_the_longer_window(
    data: LiteLLMModelData, sent: tuple[tuple[str, str], ...], window: int
) -> None:
    """S3-B4: that request alone; the registry goes on showing the model's own."""
    catalog = catalog_with(data, shipped={"claude-sonnet-4-5*": SONNET})
    own = Route("translate", "claude-sonnet-4-5", "claude-sonnet-4-5", "anthropic", "https://api.anthropic.com")
    found = (await catalog.profile(own, calling(*sent))).window
    assert (found.max_input_tokens, found.window, found.max_output_tokens) == (window, window, 64_000)
    assert (await catalog.profile(own, calling())).window.max_input_tokens == 200_000
    assert (await catalog.observe(own, calling(*sent))).window.max_input_tokens == 200_000
    elsewhere = replace(own, provider="bedrock")
    assert (await catalog.profile(elsewhere, calling(*sent))).window.max_input_tokens == 200_000, "not sent there"


async def test_what_a_person_wrote_of_beta_windows_holds(data: LiteLLMModelData) -> None:
    """Who states a window states it for all requests, unless the header's is stated, too."""
    sent = calling(("anthropic-beta", BETA))
    own = Route("wire", "claude-sonnet-4-5", "claude-sonnet-4-5", "anthropic", "https://a/v1")
    for info, window in (
        ({"max_input_tokens": 150_000}, 150_000),
        ({"max_input_tokens": 150_000, "beta_windows": {BETA: 500_000}}, 500_000),
        ({"beta_windows": {BETA: 600_000}}, 600_000),
        ({}, 1_000_000),
    ):
        catalog = catalog_with(data, shipped={"claude-*": SONNET}, overrides={"claude-sonnet-4-5": info})
        assert (await catalog.profile(own, sent)).window.max_input_tokens == window
    catalog = catalog_with(data, shipped={"claude-*": SONNET})
    headed = replace(own, headers=((b"anthropic-beta", BETA.encode()),))
    assert (await catalog.profile(headed, calling())).window.max_input_tokens == 1_000_000, "configured for all"


@pytest.mark.parametrize(("served", "window"), [(None, 1_000_000), (200_000, 1_000_000), (8_192, 8_192)])
async def test_a_beta_header_holds_for_entries_with_an_address_too(
    data: LiteLLMModelData, served: int | None, window: int
) -> None:
    """S3-B4: behind a gateway. A server that reports less than the model has is another model of that name."""
    base = "https://gateway.example/v1"
    model: dict[str, JsonValue] = {"id": "claude-sonnet-4-5", **({"context_length": served} if served else {})}
    servers = Servers({f"{base}/models": {"data": [model, {"id": "another"}]}})
    catalog = catalog_with(data, servers, shipped={"claude-*": SONNET})
    route = Route("wire", "sonnet", "claude-sonnet-4-5", "openai", base, params={"api_base": base})
    sent = calling(("anthropic-beta", BETA))
    for _ in range(2):
        assert (await catalog.profile(route, sent)).window.window == window
        assert (await catalog.profile(route, calling())).window.window == (served or 200_000)


async def test_an_assumed_window_is_told_once(data: LiteLLMModelData) -> None:
    """FR-3.2.3: by an event, with what the operator can do; a window that some source knows is not."""
    told: list[Event] = []
    catalog = catalog_with(data, shipped={"claude-*": SONNET}, emit=told.append)
    unknown = Route("translate", "house-model", "house-model", "mistral", "")
    for route in (unknown, replace(unknown, name="claude-x", upstream_model="claude-x"), unknown):
        await catalog.profile(route, calling())
    (event,) = told
    assert isinstance(event, WindowAssumed)
    assert (event.model, event.window) == ("house-model", 128_000)
    assert event.mend == "tidemark models set house-model max_input_tokens=TOKENS"


async def test_what_overflows_teach_of_one_window_says_nothing_of_the_other(data: LiteLLMModelData) -> None:
    """An account without the longer window is told so by the upstream; one with it is not held to the shorter."""
    catalog = catalog_with(data, shipped={"claude-*": SONNET})
    own = Route("translate", "claude-sonnet-4-5", "claude-sonnet-4-5", "anthropic", "https://api.anthropic.com")
    plain, beta = calling(), calling(("anthropic-beta", BETA))
    told = json.dumps({"error": {"message": "prompt is too long: 210000 tokens > 200000 maximum"}}).encode()
    for caller, sent in ((plain, 199_000), (beta, 210_000)):
        profile = await catalog.profile(own, caller)
        await catalog.learn(own, caller, profile, status=400, body=told, sent_tokens=sent)
        if caller is plain:
            assert (await catalog.profile(own, beta)).window.max_input_tokens == 1_000_000
    assert (await catalog.profile(own, beta)).window.max_input_tokens == 200_000
    assert (await catalog.profile(own, plain)).window.max_input_tokens < 200_000
