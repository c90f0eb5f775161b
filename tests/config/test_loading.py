"""What a file and the environment may say, and what follows from it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemark.config import Address, CompactionSettings, Secret, Settings, TenantSettings, load
from tidemark.core.errors import ConfigError
from tidemark.core.planning.budget import CompactionPolicy, ModelWindow
from tidemark.store.lifetimes import Lifetime
from tidemark.worker.stored import SECONDS_A_DAY as DAY
from tidemark.worker.worker import Worker

HOME = {"HOME": "/home/someone"}
Write = Callable[[str], Path]


class TestDefaults:
    """Without a file, or with an empty one, the defaults hold."""

    def test_no_file_gives_the_policy_of_the_core(self) -> None:
        """The defaults in the sections are the core's own."""
        assert CompactionSettings().policy() == CompactionPolicy()
        assert load(None, HOME).policy_for("some-model") == CompactionPolicy()

    @pytest.mark.parametrize("text", ["", "# nothing\n", "---\n", "compaction:\nstore:\n", "{}", "null"])
    def test_an_empty_file_is_no_file(self, write: Write, text: str) -> None:
        """Nothing said is nothing changed."""
        assert load(write(text), HOME) == load(None, HOME)

    def test_the_data_folder_is_the_platforms(self) -> None:
        """XDG_DATA_HOME where it is absolute, as its specification says; else the home folder's."""
        assert load(None, HOME).data_dir.is_relative_to("/home/someone")
        assert load(None, HOME | {"XDG_DATA_HOME": "/data"}).data_dir == Path("/data/tidemark")
        assert load(None, HOME | {"XDG_DATA_HOME": "data"}).data_dir == load(None, HOME).data_dir

    def test_a_folder_in_the_file_is_relative_to_the_file(self, write: Write) -> None:
        """A file means the same from wherever it is used."""
        path = write("data_dir: data")
        assert load(path, HOME).data_dir == path.parent / "data"
        assert load(write("data_dir: ~/tide"), HOME).data_dir == Path("/home/someone/tide")


class TestModelList:
    """``model_list`` is LiteLLM's."""

    FULL = """
        model_list:
          - model_name: gpt-4o
            litellm_params:
              model: azure/my-deployment
              api_key: os.environ/AZURE_KEY
              api_version: 2024-02-01
              extra_headers: {x-team: [a, b]}
              rpm: 6
            model_info: {id: one, base_model: azure/gpt-4o, mode: chat, max_input_tokens: 100000}
            compaction: {threshold: 0.9, summarizer: {model: gpt-4o-mini}}
            lane: wire
          - model_name: "openai/*"
            litellm_params: {model: "openai/*"}
        general_settings: {master_key: os.environ/NOT_SET}
        litellm_settings:
          drop_params: true
        """

    def test_an_existing_file_loads(self, write: Write) -> None:
        """Parameters go through, references replaced; LiteLLM's other sections are passed over, aloud."""
        settings = load(write(self.FULL), HOME | {"AZURE_KEY": "secret-key"})
        first = settings.model_list[0]
        assert first.litellm_params == {
            "model": "azure/my-deployment",
            "api_key": "secret-key",
            "api_version": "2024-02-01",
            "extra_headers": {"x-team": ["a", "b"]},
            "rpm": 6,
        }
        assert first.lane == "wire"
        told = [re.sub(r".*yaml:", "", warning) for warning in settings.warnings]
        assert told.pop(0).startswith(
            "9: rpm in litellm_params steer LiteLLM's router and proxy and have no effect here"
        )
        assert told[0].startswith("15: master_key is the admin token here")
        assert "asks no client for a key" in told[0]
        assert told[1].startswith("15: master_key would be the admin token, but the environment variable NOT_SET")
        assert told[2:] == ["16: litellm_settings is LiteLLM's own and is ignored here"]

    def test_nothing_secret_is_shown(self, write: Write) -> None:
        """Keys in parameters, passwords in URLs and the environment's secrets have stars in ``repr``."""
        text = self.FULL + "\n        store: {url: os.environ/STORE}\n        upstream: http://me:hush@host/v1"
        settings = load(
            write(text),
            HOME
            | {"AZURE_KEY": "hush", "STORE": "redis://:hush@db:6379/0"}
            | {"TIDEMARK_ADMIN_TOKEN": "hush", "TIDEMARK_SECRET": "hush"},
        )
        assert "hush" not in repr(settings)
        assert settings.store.url == "redis://:hush@db:6379/0"
        assert settings.secrets.admin_token == Secret("hush")
        assert settings.upstream is not None
        assert settings.upstream.shown == "http://***@host/v1"

    @pytest.mark.parametrize(
        ("url", "shown"),
        [
            ("embedded", "embedded"),
            ("redis://cache:6379/0", "redis://cache:6379/0"),
            ("redis://:p@ssw0rd@cache:6379/0", "redis://***@cache:6379/0"),
            ("rediss://me:a:b@[::1]:6379", "rediss://***@[::1]:6379"),
            ("redis://cache/0?password=hush&db=1", "redis://cache/0?password=***&db=***"),
            ("unix:///run/valkey.sock?password=hush", "unix:///run/valkey.sock?password=***"),
            ("unix:///run/valkey.sock", "unix:///run/valkey.sock"),
            ("https://host/hook?hush", "https://host/hook?***"),
        ],
    )
    def test_an_address_is_shown_without_what_may_be_a_password(self, url: str, shown: str) -> None:
        """Its parts are those that redis-py connects by: a password may hold "@", and may stand in the query."""
        assert Address(url).shown == shown
        assert repr(Address(url)) == repr(shown)

    def test_a_name_is_served_by_its_own_entry_before_a_wildcard(self, write: Write) -> None:
        """Exact names first, then the longest wildcard, then nobody."""
        settings = load(write(self.FULL), HOME | {"AZURE_KEY": "k"})
        found = [settings.entry_for(name) for name in ("gpt-4o", "openai/gpt-5", "else")]
        assert [entry.upstream_model if entry else None for entry in found] == [
            "azure/my-deployment",
            "openai/*",
            None,
        ]

    def test_model_info_gives_the_window(self, write: Write) -> None:
        """A window from the file is ``manual``; models.yaml completes what it leaves out of the reply."""
        settings = load(write(self.FULL), HOME | {"AZURE_KEY": "k"})
        assert settings.windows() == {"gpt-4o": ModelWindow(100_000, 16_384, None, "manual")}
        assert settings.window_for("openai/gpt-5") == ModelWindow(272_000, 128_000, 400_000, "api")
        assert settings.window_for("else") is None

    def test_windows_by_beta_header_are_read_from_our_data_and_the_file(self, write: Write) -> None:
        """S3-B4: the file's own go before the shipped ones; a wrong number is told with its place."""
        entry = "model_list:\n  - model_name: a\n    litellm_params: {model: anthropic/x}\n    model_info: "
        settings = load(write(entry + "{beta_windows: {context-2m: 2000000}}\n"), HOME)
        assert settings.model_list[0].window.beta_windows == (("context-2m", 2_000_000),)
        known = settings.model_defaults.find("anthropic/claude-sonnet-4-5-20250929")
        assert known is not None
        assert known.window.beta_windows == (("context-1m-2025-08-07", 1_000_000),)
        with pytest.raises(ConfigError, match=r"beta_windows\.context-2m"):
            load(write(entry + "{beta_windows: {context-2m: many}}\n"), HOME)

    def test_the_first_of_two_entries_of_a_name_is_used(self, write: Write) -> None:
        """Balancing is not there yet; that is said and not kept quiet."""
        entry = "  - {model_name: a, litellm_params: {model: openai/%s}}\n"
        settings = load(write("model_list:\n" + entry % "x" + entry % "y"), HOME)
        assert [entry.upstream_model for entry in (settings.entry_for("a"),) if entry] == ["openai/x"]
        assert 'model_name "a" is on line 2 already' in settings.warnings[0]


class TestStore:
    """How long conversations are kept."""

    def test_a_tenants_null_is_no_maximum_and_what_it_does_not_state_is_as_for_all(self, write: Write) -> None:
        """A stated null is not the same as nothing."""
        one, other = "0" * 32, "1" * 32
        stated = (
            f"{{ttl_days: 30, max_age_days: 90, tenants: {{{one}: {{max_age_days: null}}, {other}: {{ttl_days: 7}}}}}}"
        )
        settings = load(write(f"store: {stated}"), HOME)
        assert settings.tenants == {
            one: TenantSettings(ttl_days=0, max_age_days=None),
            other: TenantSettings(ttl_days=7, max_age_days=90),
        }
        kept = Worker(settings, pytest.fail).lifetimes
        assert [kept.of(tenant) for tenant in (one, other, "2" * 32)] == [
            Lifetime(30 * DAY, 0),
            Lifetime(7 * DAY, 90 * DAY),
            Lifetime(30 * DAY, 90 * DAY),
        ]

    def test_a_models_longer_time_holds_for_a_tenant_that_states_only_its_age(self, write: Write) -> None:
        """One that states the usual time keeps it: somebody may have been promised that."""
        one, other = "0" * 32, "1" * 32
        tenants = f"{{{one}: {{max_age_days: 365}}, {other}: {{ttl_days: 30}}}}"
        stated = f'{{ttl_days: 30, tenants: {tenants}, models: {{"slow": {{ttl_days: 90}}}}}}'
        kept = Worker(load(write(f"store: {stated}"), HOME), pytest.fail).lifetimes
        assert [kept.of(tenant, "slow").idle for tenant in (one, other)] == [90 * DAY, 30 * DAY]
        assert kept.of(one, "fast") == Lifetime(30 * DAY, 365 * DAY, 30 * DAY)

    def test_a_model_takes_each_key_from_the_best_pattern_that_states_it(self, write: Write) -> None:
        """A pattern for how long says nothing of what is stored, so another one's still holds."""
        stated = '{models: {"claude-*": {keep: none}, "claude-haiku": {ttl_days: 1}, "gpt-*": {ttl_days: 90}}}'
        settings = load(write(f"store: {stated}"), HOME)
        models = ("claude-haiku", "claude-opus", "gpt-5", "other")
        assert [settings.keep_for(model) for model in models] == ["none", "none", "all", "all"]
        kept = Worker(settings, pytest.fail).lifetimes
        assert [kept.of("0" * 32, model).idle for model in models] == [DAY, 30 * DAY, 90 * DAY, 30 * DAY]


class TestPolicies:
    """The more particular word wins."""

    def settings(self, write: Write) -> Settings:
        """Three words on a threshold."""
        return load(
            write("""
            model_list:
              - model_name: gpt-4o-special
                litellm_params: {model: openai/gpt-4o}
                compaction: {threshold: 0.6}
              - {model_name: "*", litellm_params: {model: "*"}}
            compaction:
              defaults: {threshold: 0.9, summarizer: {timeout_seconds: 9}}
              models:
                "gpt-*": {threshold: 0.8, min_tokens: 5}
                "gpt-4o*": {threshold: 0.7, summarizer: {model: small}}
                "gpt-4o": {threshold: 0.5}
            """),
            HOME,
        )

    def test_defaults_then_glob_then_entry(self, write: Write) -> None:
        """The longest glob alone holds, an exact name before any glob, an entry's own word before both."""
        policy_for = self.settings(write).policy_for
        names = ("o1", "gpt-5", "gpt-4o-mini", "gpt-4o", "gpt-4o-special")
        assert [policy_for(name).threshold for name in names] == [0.9, 0.8, 0.7, 0.5, 0.6]
        assert policy_for("gpt-5").min_tokens == 5
        assert policy_for("gpt-4o-mini").min_tokens == 2000

    def test_nested_keys_are_merged_one_by_one(self, write: Write) -> None:
        """A glob that names the summarizer's model leaves its timeout as the defaults have it."""
        policy = self.settings(write).policy_for("gpt-4o-mini")
        assert (policy.summarizer_model, policy.summarizer_timeout_seconds) == ("small", 9.0)

    def test_shipped_thresholds_stand_in_for_our_defaults_only(self, write: Write) -> None:
        """Claude's lower mark holds until a file says otherwise, for all models or for this one."""
        assert load(None, HOME).policy_for("claude-sonnet-4-5").threshold == 0.85
        said = load(write("compaction: {defaults: {threshold: 0.9}}"), HOME)
        assert said.policy_for("claude-sonnet-4-5").threshold == 0.9
        said = load(write('compaction: {models: {"claude-*": {threshold: 0.95}}}'), HOME)
        assert said.policy_for("claude-sonnet-4-5").threshold == 0.95

    def test_auto_is_none(self, write: Write) -> None:
        """``max_summary_tokens: auto`` leaves the bound to the limit."""
        text = "compaction: {defaults: {max_summary_tokens: %s}}"
        assert load(write(text % "auto"), HOME).policy_for("x").max_summary_tokens is None
        assert load(write(text % "300"), HOME).policy_for("x").max_summary_tokens == 300


class TestEnvironment:
    """The environment wins over the file; an empty variable says nothing."""

    def test_variables_stand_in_for_keys(self, write: Write) -> None:
        """Each TIDEMARK variable in place of its key."""
        path = write("upstream: http://file/v1\nstore: {url: redis://file, ttl_days: 2}\ndata_dir: /file")
        environ = {
            "TIDEMARK_CONFIG": str(path),
            "TIDEMARK_UPSTREAM": "http://env:1/v1/",
            "TIDEMARK_STORE_URL": "redis://env",
            "TIDEMARK_DATA_DIR": "/env",
        }
        settings = load(None, HOME | environ)
        assert (settings.upstream, settings.store.url) == ("http://env:1/v1", "redis://env")
        assert (settings.store.ttl_days, settings.data_dir) == (2.0, Path("/env"))
        kept = load(path, HOME | dict.fromkeys(environ, ""))
        assert (kept.upstream, kept.store.url, kept.data_dir) == (
            "http://file/v1",
            "redis://file",
            Path("/file"),
        )

    def test_an_address_stays_as_it_is_written(self, write: Write) -> None:
        """A slash at the end may name another resource, whose server redirects, which a webhook does not follow."""
        path = write("memory_flush: {webhook: https://host/hooks/flush/}\nstore: {url: 'redis://host?password=a/'}")
        settings = load(path, HOME | {"TIDEMARK_FLUSH_SECRET": "x"})
        assert settings.memory_flush.webhook == "https://host/hooks/flush/"
        assert settings.store.url == "redis://host?password=a/"

    def test_a_reference_becomes_what_its_key_takes(self, write: Write) -> None:
        """A number in the environment is a number or a text, as the key wants it."""
        path = write("server: {port: os.environ/P}\ncompaction: {defaults: {summarizer: {model: os.environ/P}}}")
        settings = load(path, HOME | {"P": "8000"})
        assert (settings.server.port, settings.policy_for("x").summarizer_model) == (8000, "8000")
