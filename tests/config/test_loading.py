"""What a file may say, and what is said of a file that is wrong."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from proxy.config import CompactionSettings, Secret, Settings, load
from proxy.core.budget import CompactionPolicy, ModelWindow
from proxy.core.errors import ConfigError

HOME = {"HOME": "/home/someone"}
Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a configuration file, its text indented as the test likes."""

    def into(text: str) -> Path:
        path = tmp_path / "tidemark.yaml"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return into


def problems(path: Path, **environ: str) -> list[str]:
    """What is wrong with a file, without its folder."""
    with pytest.raises(ConfigError) as caught:
        load(path, HOME | environ)
    return str(caught.value).replace(f"{path.parent}/", "").splitlines()


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
        assert [re.sub(r".*yaml:", "", warning) for warning in settings.warnings] == [
            "15: general_settings is LiteLLM's own and is ignored here",
            "16: litellm_settings is LiteLLM's own and is ignored here",
        ]

    def test_nothing_secret_is_shown(self, write: Write) -> None:
        """Keys in parameters, passwords in URLs and the environment's secrets have stars in ``repr``."""
        text = (
            self.FULL + "\n        store: {url: os.environ/STORE}\n        upstream: http://me:hush@host/v1"
        )
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

    def test_the_first_of_two_entries_of_a_name_is_used(self, write: Write) -> None:
        """Balancing is not there yet; that is said and not kept quiet."""
        entry = "  - {model_name: a, litellm_params: {model: openai/%s}}\n"
        settings = load(write("model_list:\n" + entry % "x" + entry % "y"), HOME)
        assert [entry.upstream_model for entry in (settings.entry_for("a"),) if entry] == ["openai/x"]
        assert 'model_name "a" stands on line 2 already' in settings.warnings[0]


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

    def test_a_reference_becomes_what_its_key_takes(self, write: Write) -> None:
        """A number in the environment is a number or a text, as the key wants it."""
        path = write(
            "server: {port: os.environ/P}\ncompaction: {defaults: {summarizer: {model: os.environ/P}}}"
        )
        settings = load(path, HOME | {"P": "8000"})
        assert (settings.server.port, settings.policy_for("x").summarizer_model) == (8000, "8000")

    def test_a_missing_variable_is_named_with_its_line(self, write: Write) -> None:
        """All of them at once."""
        path = write("""\
            model_list:
              - model_name: a
                litellm_params: {model: openai/a, api_key: os.environ/NO_KEY}
            store:
              url: os.environ/NO_STORE
            """)
        assert problems(path) == [
            f'tidemark.yaml:{line}: the environment variable "{name}" is not set; '
            f"set it, or remove os.environ/{name}"
            for line, name in ((3, "NO_KEY"), (5, "NO_STORE"))
        ]

    def test_a_wrong_variable_is_told_without_its_value(self) -> None:
        """It may hold a password."""
        with pytest.raises(ConfigError) as caught:
            load(None, HOME | {"TIDEMARK_UPSTREAM": "hush", "TIDEMARK_ENCRYPTION_KEY": "hush"})
        assert str(caught.value).splitlines() == [
            "environment: TIDEMARK_ENCRYPTION_KEY: encryption is not available yet; unset it",
            (
                "environment: TIDEMARK_UPSTREAM does not fit; "
                "it takes null or a URL that starts with http:// or https:// and names a host"
            ),
        ]


class TestProblems:
    """Every problem at once, each with file, line and mend."""

    def test_all_problems_are_told_in_the_order_of_the_file(self, write: Write) -> None:
        """A person mends a file once."""
        path = write("""\
            model_list:
              - model_name: gpt-4o
                litellm_params: {model: openai/gpt-4o}
                max_input_tokens: 1000
              - litellm_params: {api_key: x}
            compaction:
              defaults:
                thresold: 0.9
                prepare: 1
              models:
                "gpt-*": {summarizer: {modle: a}}
            sever: {port: 1}
            server: {port: "8787", host: 7, workers: 0}
            port: 8787
            store: embedded
            """)
        assert problems(path) == [
            'tidemark.yaml:4: unknown key "max_input_tokens" in model_list[1]; it belongs under model_info',
            "tidemark.yaml:5: model_list[2] has no model_name; add it",
            "tidemark.yaml:5: model_list[2].litellm_params has no model; add it",
            'tidemark.yaml:8: unknown key "thresold" in compaction.defaults; did you mean "threshold"?',
            (
                "tidemark.yaml:9: compaction.defaults.prepare is 1; "
                "it takes a share of the high water between 0 and 1, 0 allowed"
            ),
            (
                'tidemark.yaml:11: unknown key "modle" in compaction.models["gpt-*"].summarizer; '
                'did you mean "model"?'
            ),
            'tidemark.yaml:12: unknown key "sever"; did you mean "server"?',
            'tidemark.yaml:13: server.host is 7; put it in quotes if it is meant as a text: "7"',
            'tidemark.yaml:13: server.port is "8787"; it takes a whole number from 0 to 65535',
            "tidemark.yaml:13: server.workers is 0; it takes a whole number of processes from 1 to 256",
            'tidemark.yaml:14: unknown key "port"; it belongs under server',
            'tidemark.yaml:15: store must hold keys and values, and not "embedded"',
        ]

    @pytest.mark.parametrize(
        ("said", "told"),
        [
            ("threshold: 0", "between"),
            ("threshold: 95", "above 1 it counts tokens; write 0.95 for 95 %"),
            ("threshold: .nan", "it takes"),
            ("threshold: yes", "it takes"),
            ("retention_ratio: 1", "between 0 and 1"),
            ("min_gain: -0.1", "between 0 and 1"),
            ("retention_tokens: 1.5", "a whole number of tokens"),
            ("wait_seconds: 0", "a number of seconds above 0"),
            ("wait_seconds: .inf", "a number of seconds above 0"),
            ("strategy: magic", "one of extractive, llm, hybrid"),
            ("max_summary_tokens: car", "auto or a whole number of tokens"),
            ("summarizer: [a]", "must hold keys and values, and not a list"),
            ("template:", "is empty; it takes"),
            ("{threshold: 0.4}", "target is 0.45, not below the threshold 0.4"),
            ("oversize: error", "error is not available yet"),
            ("calibrate: true", "True is not available yet"),
            ("summarizer: {cache_friendly: true}", "is not available yet"),
        ],
    )
    def test_values_out_of_range_are_told_with_the_range(self, write: Write, said: str, told: str) -> None:
        """What the key takes stands in the message; so does what is not available yet."""
        for where in ("{compaction: {defaults: %s}}", "{compaction: {models: {x: %s}}}"):
            (problem,) = problems(write(where % (said if said.startswith("{") else "{" + said + "}")))
            assert problem.startswith("tidemark.yaml:1: compaction.")
            assert told.replace("between", "share") in problem or told in problem

    def test_keys_that_nothing_follows_from_yet_are_told(self, write: Write) -> None:
        """They harm nobody, so the file can be used."""
        settings = load(write("compaction: {defaults: {prepare: 0.6, wait_seconds: 9}}"), HOME)
        assert [re.sub(r"^.*yaml:", "", warning) for warning in settings.warnings] == [
            "1: compaction.defaults.prepare has no effect in this release yet",
            "1: compaction.defaults.wait_seconds has no effect in this release yet",
        ]

    def test_virtual_keys_are_not_available_yet(self, write: Write) -> None:
        """A setting that would be silently without effect is refused."""
        assert "auth.mode: keys is not available yet" in problems(write("auth: {mode: keys}"))[0]

    def test_marks_are_checked_as_they_will_be_used(self, write: Write) -> None:
        """An entry's threshold against the target of the defaults."""
        path = write("""\
            model_list:
              - model_name: a
                litellm_params: {model: openai/a}
                compaction: {threshold: 0.5}
            compaction: {defaults: {target: 0.6}}
            """)
        assert problems(path)[0].startswith('tidemark.yaml:2: compaction of "a": target is 0.6, not below')

    def test_what_can_be_used_but_may_be_meant_otherwise_is_a_warning(self, write: Write) -> None:
        """A glob that fits nothing, and a retention that leaves no room."""
        path = write("""\
            model_list: [{model_name: a, litellm_params: {model: openai/a}}]
            compaction:
              models:
                "gpt-*": {retention_ratio: 0.5}
            """)
        told = [re.sub(r"^.*yaml:", "", warning) for warning in load(path, HOME).warnings]
        assert told[0].startswith('4: "gpt-*" fits no model_name of model_list (a)')
        assert told[1].startswith(
            '4: compaction.models["gpt-*"]: retention_ratio 0.5 is not below target 0.45'
        )

    @pytest.mark.parametrize(
        "url",
        ["embeded", "http://x", "valkey://h", "redis://", "redis://h:99999", "redis://h:0", "unix://", 6],
    )
    def test_a_store_url_names_a_store(self, write: Write, url: object) -> None:
        """``embedded`` or a URL of a server."""
        assert "store.url" in problems(write(f"store: {{url: '{url}'}}"))[0]

    def test_a_context_window_holds_the_input(self, write: Write) -> None:
        """The whole is not smaller than its part."""
        info = "{max_input_tokens: 9, context_window: 8}"
        path = write(f"model_list: [{{model_name: a, litellm_params: {{model: b}}, model_info: {info}}}]")
        assert "context_window is 8, less than max_input_tokens" in problems(path)[0]
