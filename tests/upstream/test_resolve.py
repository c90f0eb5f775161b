"""Where a model's requests go: ``model_list``, then ``TIDEMARK_UPSTREAM``, then what litellm knows."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.scripted import Exchange, serving
from tidemark.catalog.litellm_data import LiteLLMModelData
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import ConfigError, ModelNotFound
from tidemark.core.ports import Route
from tidemark.upstream.providers import is_local
from tidemark.upstream.upstream import LiteLLMUpstream


def entry(name: str, model: str, **params: JsonValue) -> dict[str, JsonValue]:
    """An entry of model_list."""
    return {"model_name": name, "litellm_params": {"model": model, **params}}


async def resolved(upstream: LiteLLMUpstream, model: str) -> tuple[str, str, str, str]:
    """Lane, provider, upstream's name and base of a model."""
    route = await upstream.resolve(model)
    assert route.name == model
    return route.lane, route.provider, route.upstream_model, route.base_url


async def test_upstream_base_url_takes_every_model_untouched() -> None:
    """TIDEMARK_UPSTREAM: every name goes there as the client wrote it."""
    upstream = LiteLLMUpstream(upstream_base_url="http://127.0.0.1:8080/v1/")
    for model in ("gpt-4o", "anthropic/claude-x", "*", "meta-llama/Llama-3"):
        assert await resolved(upstream, model) == ("wire", "openai", model, "http://127.0.0.1:8080/v1")


async def test_model_list_goes_before_the_upstream_base_url() -> None:
    """An entry wins over TIDEMARK_UPSTREAM; the rest goes there."""
    upstream = LiteLLMUpstream([entry("mine", "openai/theirs", api_base="http://a/v1/", api_key="k")], "http://b/v1")
    route = await upstream.resolve("mine")
    assert (route.upstream_model, route.base_url, route.api_key) == ("theirs", "http://a/v1", "k")
    assert (await upstream.resolve("other")).base_url == "http://b/v1"


async def test_openai_entries_without_an_address_are_at_the_upstream() -> None:
    """``TIDEMARK_UPSTREAM`` is the base URL of every model; an entry may still rename it or set its window."""
    item: dict[str, JsonValue] = {"model_name": "mine", "litellm_params": {"model": "openai/theirs"}}
    route = await LiteLLMUpstream([item], "http://127.0.0.1:8080/v1").resolve("mine")
    assert (route.base_url, route.upstream_model) == ("http://127.0.0.1:8080/v1", "theirs")
    item["litellm_params"] = {"model": "openai/theirs", "api_base": "http://127.0.0.1:9/v1"}
    assert (await LiteLLMUpstream([item], "http://127.0.0.1:8080/v1").resolve("mine")).base_url.endswith(":9/v1")


async def test_entry_tells_key_headers_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """litellm_params are LiteLLM's words, os.environ references too; an unset variable is nothing."""
    monkeypatch.setenv("SOME_KEY", "from-env")
    monkeypatch.delenv("NO_KEY", raising=False)
    upstream = LiteLLMUpstream(
        [
            entry(
                "a",
                "openai/x",
                api_base="http://a/v1",
                api_key="os.environ/SOME_KEY",
                extra_headers={"X-Team": "os.environ/SOME_KEY"},
                organization="org-1",
                timeout=12,
            ),
            entry("b", "openai/x", api_base="http://a/v1", api_key="os.environ/NO_KEY", stream_timeout=45),
        ]
    )
    route = await upstream.resolve("a")
    assert (route.api_key, route.timeout_seconds, route.silence_seconds) == ("from-env", 12.0, 12.0)
    assert route.headers == ((b"x-team", b"from-env"), (b"openai-organization", b"org-1"))
    other = await upstream.resolve("b")
    assert (other.api_key, other.timeout_seconds, other.silence_seconds) == (None, 600.0, 45.0)
    assert "from-env" not in repr(route)


async def test_wildcards_carry_what_they_matched() -> None:
    """model_name may hold '*'; the longest pattern wins, and its match fills litellm_params.model."""
    base = "http://a/v1"
    upstream = LiteLLMUpstream(
        [
            entry("*", "openai/*", api_base=base),
            entry("openai/*", "openai/*", api_base=base),
            entry("openai/ft-*-v*", "openai/tuned-*:*", api_base=base),
            entry("exact*", "openai/fixed", api_base=base),
            entry("exact*", "openai/second", api_base=base),
            entry("exact-1", "openai/one", api_base=base),
        ]
    )
    expected = {
        "anything/else": "anything/else",
        "openai/gpt-4o": "gpt-4o",
        "openai/ft-a-v2": "tuned-a:2",
        "exact-2": "fixed",
        "exact-1": "one",
    }
    assert {name: (await upstream.resolve(name)).upstream_model for name in expected} == expected


async def test_openai_base_is_never_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """OPENAI_BASE_URL points at Tidemark itself on many a machine: following it would be a loop."""
    for name in ("OPENAI_BASE_URL", "OPENAI_API_BASE", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_BASE"):
        monkeypatch.setenv(name, "http://127.0.0.1:8787/v1")
    monkeypatch.setenv("OPENAI_API_KEY", "servers-own")
    listed = LiteLLMUpstream([entry("gpt-4o", "openai/gpt-4o"), entry("anthropic/*", "anthropic/*")])
    for upstream in (listed, LiteLLMUpstream()):
        assert await resolved(upstream, "gpt-4o") == ("wire", "openai", "gpt-4o", "https://api.openai.com/v1")
        assert (await upstream.resolve("gpt-4o")).api_key is None
        claude = await resolved(upstream, "anthropic/claude-sonnet-4-5")
        assert claude == ("translate", "anthropic", "claude-sonnet-4-5", "https://api.anthropic.com")


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("openai/some-future-model", ("wire", "openai", "some-future-model", "https://api.openai.com/v1")),
        (
            "groq/llama-3.1-8b-instant",
            ("wire", "groq", "llama-3.1-8b-instant", "https://api.groq.com/openai/v1"),
        ),
        (
            "openrouter/anthropic/claude-x",
            ("wire", "openrouter", "anthropic/claude-x", "https://openrouter.ai/api/v1"),
        ),
        ("claude-sonnet-4-5", ("translate", "anthropic", "claude-sonnet-4-5", "https://api.anthropic.com")),
        (
            "claude-3-5-sonnet-20241022",
            ("translate", "anthropic", "claude-3-5-sonnet-20241022", "https://api.anthropic.com"),
        ),
        ("gemini/gemini-2.0-flash", ("translate", "gemini", "gemini-2.0-flash", "")),
        ("gemini-2.0-flash", ("translate", "gemini", "gemini-2.0-flash", "")),
        ("chatgpt-4o-latest", ("wire", "openai", "chatgpt-4o-latest", "https://api.openai.com/v1")),
    ],
)
async def test_names_alone_are_enough(model: str, expected: tuple[str, str, str, str]) -> None:
    """Zero configuration: litellm tells the provider; names that mean one to everybody need no map."""
    assert await resolved(LiteLLMUpstream(), model) == expected


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        ("no-such-model", "TIDEMARK_UPSTREAM"),
        ("bedrock/anthropic.claude-3", "bedrock needs an entry"),
        ("vertex_ai/gemini-2.0-flash", "vertex_ai needs an entry"),
        ("azure/deployment", "azure needs an entry"),
        ("hosted_vllm/model", "hosted_vllm needs an entry"),
        ("github_copilot/gpt-4o", "logs in on the server"),
        ("", "model_list"),
        ("huggingface/http://127.0.0.1:8080/x", "may not hold an address"),
    ],
)
async def test_unknown_models_name_the_mends(model: str, reason: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that nobody serves, or that would lend the server's credentials, is ModelNotFound."""
    with pytest.raises(ModelNotFound, match=reason) as missing:
        await LiteLLMUpstream().resolve(model)
    assert "does not exist or you do not have access to it" in str(missing.value), "OpenAI's own words"
    assert "Configured: no models." in str(missing.value)
    assert capsys.readouterr() == ("", "")


LOCAL_NAMES = (
    "docker_model_runner/x",
    "hosted_vllm/x",
    "langgraph/x",
    "lemonade/x",
    "llamafile/x",
    "lm_studio/x",
    "ollama/x",
    "ollama_chat/x",
    "vllm/x",
    "xinference/x",
)


@pytest.mark.parametrize("model", LOCAL_NAMES)
async def test_a_clients_word_alone_leads_to_no_local_address(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by litellm's defaults, nor by the server's environment, nor through a wildcard for all providers."""
    for name in ("OLLAMA", "LLAMAFILE", "LM_STUDIO", "HOSTED_VLLM", "XINFERENCE"):
        monkeypatch.setenv(f"{name}_API_BASE", "http://10.0.0.7:8080/v1")
    for upstream in (LiteLLMUpstream(), LiteLLMUpstream([entry("*", "*")])):
        with pytest.raises(ModelNotFound, match="needs an entry in model_list"):
            await upstream.resolve(model)


@pytest.mark.parametrize("model", ["llamafile/x", "ollama/x", "docker_model_runner/x"])
async def test_whoever_configures_tidemark_may_name_local_servers(model: str) -> None:
    """By an entry, a wildcard of one provider or with an address, and as the model of a summarizer."""
    own = LiteLLMUpstream([entry("mine", model), entry("open/*", "openai/*", api_base="http://127.0.0.1:9/v1")])
    assert (await own.resolve("mine")).provider == model.partition("/")[0]
    assert (await own.resolve("open/x")).base_url == "http://127.0.0.1:9/v1"
    assert (await own.resolve(model, by_operator=True)).provider == model.partition("/")[0]
    with pytest.raises(ModelNotFound):
        await own.resolve(model)
    provider = model.partition("/")[0]
    wild = LiteLLMUpstream([entry(f"{provider}/*", f"{provider}/*")])
    assert (await wild.resolve(model)).provider == provider
    addressed = LiteLLMUpstream([entry("*", "*", api_base="http://127.0.0.1:9/v1")])
    assert (await addressed.resolve(model)).base_url == "http://127.0.0.1:9/v1"


@pytest.mark.parametrize("model", ["gpt-4o", "openai/gpt-4o", "anthropic/claude-sonnet-4-5", "llamafile/x"])
async def test_a_model_list_is_all_that_is_served(model: str) -> None:
    """Public providers too: what is not named is OpenAI's 404, with what there is and what would mend it."""
    upstream = LiteLLMUpstream([entry("mine", "openai/x", api_base="http://a/v1"), entry("groq/*", "groq/*")])
    with pytest.raises(ModelNotFound, match="does not exist or you do not have access") as missing:
        await upstream.resolve(model)
    assert missing.value.code == "model_not_found"
    assert "Configured: mine, groq/*. Add it to model_list" in str(missing.value)
    assert (await upstream.resolve("groq/llama-3.1-8b-instant")).base_url == "https://api.groq.com/openai/v1"


@pytest.mark.parametrize(
    ("url", "local"),
    [
        ("http://localhost:1/v1", True),
        ("http://127.0.0.1/v1", True),
        ("http://127.1/v1", True),
        ("http://2130706433/v1", True),
        ("http://0.0.0.0:8000", True),
        ("http://[::1]:8080/v1", True),
        ("http://[::ffff:10.0.0.1]/v1", True),
        ("http://[fe80::1%25eth0]/v1", True),
        ("http://192.168.1.5/v1", True),
        ("http://169.254.169.254/latest", True),
        ("http://gpu/v1", True),
        ("http://models.internal/v1", True),
        ("http://LOCALHOST./v1", True),
        ("http:///v1", True),
        ("http://[/v1", True),
        ("https://api.openai.com/v1", False),
        ("https://8.8.8.8/v1", False),
    ],
)
def test_local_addresses_are_known_by_their_host(url: str, *, local: bool) -> None:
    """Loopback, private, link-local, and names that only a network of one's own resolves."""
    assert is_local(url) is local


@pytest.mark.parametrize(
    ("item", "lane"),
    [
        (entry("m", "openai/x", api_base="http://a/v1"), "wire"),
        (entry("m", "hosted_vllm/x", api_base="http://a/v1"), "wire"),
        (entry("m", "groq/x"), "wire"),
        (entry("m", "anthropic/x"), "translate"),
        (entry("m", "azure/x", api_base="http://a", api_version="2024-06-01"), "translate"),
        (entry("m", "ollama/x"), "translate"),
        (entry("m", "openai/x", temperature=0.2), "translate"),
        ({**entry("m", "openai/x"), "lane": "translate"}, "translate"),
        ({**entry("m", "mistral/x"), "model_info": {"lane": "wire"}}, "wire"),
    ],
)
async def test_lane_follows_provider_and_entry(item: dict[str, JsonValue], lane: str) -> None:
    """Auto is wire for OpenAI's format, unless litellm_params must be put in; an entry may differ."""
    assert (await LiteLLMUpstream([item]).resolve("m")).lane == lane


async def test_lane_may_be_set_by_glob() -> None:
    """A mapping of globs sets the lane where the entry does not."""
    upstream = LiteLLMUpstream(
        [entry("gpt-a", "openai/x"), {**entry("gpt-b", "openai/x"), "lane": "wire"}],
        lanes={"gpt-*": "translate"},
    )
    assert (await upstream.resolve("gpt-a")).lane == "translate"
    assert (await upstream.resolve("gpt-b")).lane == "wire"


@pytest.mark.parametrize(
    "item",
    [
        {},
        {"model_name": "m"},
        {"model_name": "m", "litellm_params": {}},
        {**entry("m", "openai/x"), "lane": "air"},
    ],
)
def test_entries_that_say_nothing_are_refused(item: dict[str, JsonValue]) -> None:
    """An entry without name or destination, or with a lane that there is not, is told by its place."""
    with pytest.raises(ConfigError, match=r"model_list\[0\]"):
        LiteLLMUpstream([item])


async def test_memory_of_names_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients choose names: however many they choose, only so many are remembered."""
    monkeypatch.setattr("tidemark.upstream.upstream.MAX_CACHED_ROUTES", 3)
    upstream = LiteLLMUpstream(upstream_base_url="http://a/v1")
    for number in range(10):
        await upstream.resolve(f"m{number}")
    assert list(upstream._client_routes) == ["m7", "m8", "m9"]  # noqa: SLF001


def test_common_routes_do_not_import_litellm() -> None:
    """TIDEMARK_UPSTREAM, openai/ entries with a base, and OpenAI's own models cost no import of litellm."""
    program = """
import asyncio, sys
from tidemark.catalog.catalog import Catalog
from tidemark.upstream.upstream import LiteLLMUpstream
from tidemark.catalog.litellm_data import LiteLLMModelData
from tidemark.core.ports import Caller
async def main():
    entry = {"model_name": "a", "litellm_params": {"model": "openai/x", "api_base": "http://127.0.0.1:1/v1"}}
    data = LiteLLMModelData()
    for upstream in (LiteLLMUpstream([entry], "http://127.0.0.1:1/v1"), LiteLLMUpstream(data=data)):
        catalog = Catalog(upstream, data=data)
        for model in ("gpt-4o", *(["a"] if upstream.entries else [])):
            print(await catalog.profile(await upstream.resolve(model), Caller(b"", ())))
        await catalog.models(Caller(b"", ())) if not upstream.upstream_base_url else None
        await upstream.aclose()
asyncio.run(main())
assert "litellm" not in sys.modules
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


async def test_data_file_spares_the_import() -> None:
    """With litellm's data file at hand, a bare OpenAI name goes to OpenAI."""
    assert await LiteLLMUpstream(data=LiteLLMModelData()).resolve("gpt-4o") == Route(
        "wire", "gpt-4o", "gpt-4o", "openai", "https://api.openai.com/v1"
    )


@pytest.mark.parametrize("name", ["no-such-model", "gpt4o-minni", "house/no-such-model"])
async def test_a_bare_name_that_nobody_lists_waits_for_no_import(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """The import takes seconds, and litellm would know no more. A name with a provider needs litellm's own list."""
    monkeypatch.setattr("tidemark.upstream.litellm.load", _never)
    upstream = LiteLLMUpstream(data=LiteLLMModelData())
    with pytest.raises(ModelNotFound if "/" not in name else AssertionError):
        await upstream.resolve(name)


@pytest.mark.parametrize("name", ["embed-english-v3.0", "amazon_nova-x", "ft:gpt-4o:mine::1"])
async def test_what_is_listed_for_anything_is_looked_up_in_litellm(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Models of embeddings, too, and names that litellm knows by their form."""
    monkeypatch.setattr("tidemark.upstream.litellm.load", _never)
    with pytest.raises(AssertionError):
        await LiteLLMUpstream(data=LiteLLMModelData()).resolve(name)


def _never() -> None:
    raise AssertionError("litellm is imported")


@pytest.mark.parametrize(
    ("entries", "base", "imported"),
    [
        ([], None, True),
        ([], "http://a/v1", False),
        ([entry("m", "openai/x", api_base="http://a/v1")], None, False),
        ([entry("m", "openai/x"), entry("n", "anthropic/x")], "http://a/v1", True),
        ([entry("m", "openai/x", temperature=0)], None, True),
    ],
)
def test_litellm_is_imported_ahead_only_where_it_is_needed(
    monkeypatch: pytest.MonkeyPatch, entries: list[dict[str, JsonValue]], base: str | None, *, imported: bool
) -> None:
    """What is configured for the wire lane alone never pays for litellm: 200 MB and seconds of CPU."""
    started: list[bool] = []
    monkeypatch.setattr("tidemark.upstream.litellm.load", lambda: started.append(True))
    LiteLLMUpstream(entries, base).warm()
    assert bool(started) == imported


async def test_names_have_a_length() -> None:
    """A name of a megabyte is refused before it is matched or remembered, and not repeated in full."""
    with pytest.raises(ModelNotFound) as missing:
        await LiteLLMUpstream(upstream_base_url="http://a/v1").resolve("x" * 1_000_000)
    assert len(str(missing.value)) < 1000


@pytest.mark.parametrize(
    ("params", "needed"),
    [
        ({"model": "openai/x", "api_base": "http://a/v1"}, True),
        ({"model": "openai/x", "api_base": "http://a/v1", "api_key": "none"}, False),
        ({"model": "openai/x", "api_base": "http://a/v1", "extra_headers": {"Authorization": "Basic abc"}}, False),
        ({"model": "openai/x", "api_base": "http://a/v1", "extra_headers": {"X-Team": "mine"}}, True),
        ({"model": "anthropic/claude-x"}, True),
        ({"model": "anthropic/claude-x", "api_key": "k"}, False),
        ({"model": "ollama_chat/llama3", "api_base": "http://a"}, False),
        ({"model": "bedrock/anthropic.claude-x"}, False),
    ],
)
async def test_a_callers_key_is_needed_where_the_configuration_has_no_credential(
    *, params: dict[str, JsonValue], needed: bool
) -> None:
    """An Ollama takes none, and Bedrock the server's own; a server of OpenAI's format is taken to want one."""
    upstream = LiteLLMUpstream([{"model_name": "mine", "litellm_params": params}])
    assert await upstream.needs_callers_key(await upstream.resolve("mine")) is needed


@pytest.mark.parametrize("status", ["200 OK", "401 Unauthorized"])
async def test_an_upstream_of_this_network_shows_whether_it_wants_a_key(status: str) -> None:
    """``TIDEMARK_UPSTREAM`` has no place to say so; the server is asked for its models, without any key."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b'{"data": []}', status)

    async with serving(script) as server:
        upstream = LiteLLMUpstream(upstream_base_url=server.base_url)
        needed = await upstream.needs_callers_key(await upstream.resolve("any"))
        await upstream.aclose()
        assert server.last.line.startswith("GET /v1/models ")
        assert not server.last.header("authorization")
    assert needed is (status != "200 OK")


async def test_an_upstream_elsewhere_is_taken_to_want_a_key() -> None:
    """Some providers list their models to everybody; it is not asked."""
    upstream = LiteLLMUpstream(upstream_base_url="https://api.example.com/v1")
    assert await upstream.needs_callers_key(await upstream.resolve("any"))
