"""What is said of a file or an environment that is wrong: everything at once, with line and mend."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tidemark.config import load
from tidemark.config.models import WITHOUT_EFFECT
from tidemark.core.errors import ConfigError
from tidemark.upstream.fields import ROUTER_FIELDS

HOME = {"HOME": "/home/someone"}
Write = Callable[[str], Path]


def problems(path: Path, **environ: str) -> list[str]:
    """What is wrong with a file, without its folder."""
    with pytest.raises(ConfigError) as caught:
        load(path, HOME | environ)
    return str(caught.value).replace(f"{path.parent}/", "").splitlines()


class TestEnvironment:
    """What the environment lacks or holds wrongly."""

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
            f'tidemark.yaml:{line}: the environment variable "{name}" is not set; set it, or remove os.environ/{name}'
            for line, name in ((3, "NO_KEY"), (5, "NO_STORE"))
        ]

    def test_a_key_with_a_line_break_is_told_without_its_value(self, write: Write) -> None:
        """A secret in a file often ends with one, and no header may have it."""
        path = write("""\
            model_list:
              - model_name: a
                litellm_params: {model: openai/a, api_key: os.environ/MYKEY}
              - model_name: b
                litellm_params:
                  model: openai/b
                  extra_headers: {x-team: "hush\\n"}
            """)
        with pytest.raises(ConfigError) as caught:
            load(path, HOME | {"MYKEY": "sk-hush\n"})
        first, second = str(caught.value).splitlines()
        assert ":3: model_list[1].litellm_params.api_key (the environment variable MYKEY) has a line break" in first
        assert ":7: model_list[2].litellm_params.extra_headers.x-team has a line break" in second
        assert "hush" not in str(caught.value)

    def test_a_wrong_variable_is_told_without_its_value(self) -> None:
        """It may hold a password."""
        with pytest.raises(ConfigError) as caught:
            load(None, HOME | {"TIDEMARK_UPSTREAM": "hush", "TIDEMARK_KEYS_URL": "hush"})
        assert str(caught.value).splitlines() == [
            (
                "environment: TIDEMARK_KEYS_URL does not fit; it takes folder or a URL that starts with "
                "redis:// or rediss:// or unix:// and names a host"
            ),
            (
                "environment: TIDEMARK_UPSTREAM does not fit; "
                "it takes null or a URL that starts with http:// or https:// and names a host"
            ),
        ]

    @pytest.mark.parametrize(
        ("variable", "told"),
        [
            ("TIDEMARK_ADMINTOKEN", "did you mean TIDEMARK_ADMIN_TOKEN?"),
            ("TIDEMARK_UPSTREEM", "did you mean TIDEMARK_UPSTREAM?"),
            ("TIDEMARK_WINDOW", "unset it. The variables are TIDEMARK_CONFIG, TIDEMARK_DATA_DIR"),
        ],
    )
    def test_a_variable_without_effect_is_told(self, variable: str, told: str) -> None:
        """A misspelt admin token would leave the console open. Its value, which may be a secret, is not shown."""
        (warning,) = load(None, HOME | {variable: "hush"}).warnings
        assert warning.startswith(f"environment: {variable} has no effect; {told}")
        assert "hush" not in warning

    def test_a_short_admin_token_is_told(self) -> None:
        """Paths of tenants take any credential without a delay, so a short one could be guessed there."""
        (warning,) = load(None, HOME | {"TIDEMARK_ADMIN_TOKEN": "hush"}).warnings
        assert "has fewer than 16 characters" in warning
        assert "hush" not in warning
        assert load(None, HOME | {"TIDEMARK_ADMIN_TOKEN": "0" * 16}).warnings == ()

    def test_variables_that_a_cluster_or_tidemark_itself_adds_are_not_told(self) -> None:
        """Kubernetes adds some for every service, and ``serve`` one for its workers."""
        added = {
            "TIDEMARK_SERVICE_HOST": "10.0.0.1",
            "TIDEMARK_SERVICE_PORT_HTTP": "8787",
            "TIDEMARK_PORT": "tcp://10.0.0.1:8787",
            "TIDEMARK_PORT_8787_TCP_ADDR": "10.0.0.1",
            "TIDEMARK_REDIS_PORT": "tcp://10.0.0.1:6379",
            "TIDEMARK_WORKER": "{}",
        }
        assert load(None, HOME | added).warnings == ()
        assert load(None, HOME | {"TIDEMARK_PORT": "8790"}).warnings != ()

    def test_replicas_are_waited_for_at_a_server_that_may_have_some(self, write: Write) -> None:
        """An embedded store has none, so no turn would ever count as stored."""
        path = write("store: {wait_replicas: 1}")
        assert problems(path) == [
            "environment: store.wait_replicas needs a server with replicas in store.url; an embedded store has none"
        ]
        assert load(path, HOME | {"TIDEMARK_STORE_URL": "redis://a"}).store.wait_replicas == 1

    def test_a_webhook_needs_its_secret(self, write: Write) -> None:
        """Nothing is posted that a receiver could not tell from somebody else's; the secret shows nowhere."""
        path = write("memory_flush: {enabled: true, webhook: 'https://user:hush@host/hook'}")
        assert problems(path) == [
            "environment: memory_flush.webhook needs TIDEMARK_FLUSH_SECRET, the secret that signs what is posted"
        ]
        settings = load(path, HOME | {"TIDEMARK_FLUSH_SECRET": "hush"})
        assert "hush" not in repr(settings)


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
                prepare: 1.5
              models:
                "gpt-*": {summarizer: {mdel: a}}
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
                "tidemark.yaml:9: compaction.defaults.prepare is 1.5; "
                "it takes a share of the high water between 0 and 1, 0 allowed, 1 allowed"
            ),
            ('tidemark.yaml:11: unknown key "mdel" in compaction.models["gpt-*"].summarizer; did you mean "model"?'),
            'tidemark.yaml:12: unknown key "sever"; did you mean "server"?',
            'tidemark.yaml:13: server.host is 7; put it in quotes if it is a text: "7"',
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
            ("oversize: cut", "one of clip, error"),
        ],
    )
    def test_values_out_of_range_are_told_with_the_range(self, write: Write, said: str, told: str) -> None:
        """What the key takes stands in the message; so does what is not available yet."""
        for where in ("{compaction: {defaults: %s}}", "{compaction: {models: {x: %s}}}"):
            (problem,) = problems(write(where % (said if said.startswith("{") else "{" + said + "}")))
            assert problem.startswith("tidemark.yaml:1: compaction.")
            assert told.replace("between", "share") in problem or told in problem

    @pytest.mark.parametrize(
        "text",
        [
            "server: {port: KEY}",
            "server: {allowed_hosts: KEY}",
            "store: {url: KEY}",
            "auth: {mode: KEY}",
            "server: KEY",
            "KEY: 1",
            "server: {KEY: 1}",
            "{KEY: 1, KEY: 2}",
            "upstream: *KEY",
            "upstream: !KEY x",
            "model_list: [{model_name: a, litellm_params: {model: openai/a, api_key: os.environ/KEY}}]",
        ],
    )
    @pytest.mark.parametrize(
        "key", ["sk-proj-Ab3dEf6hIj9k", "hunter2hunter2", "9f86d081884c7d659a2feaa0c55ad015", "AKIAIOSFODNN7EXAMPLE"]
    )
    def test_a_key_on_a_wrong_line_is_not_shown(self, write: Write, text: str, key: str) -> None:
        """The message goes into logs and reports of faults. Line and name of the key say where it stands."""
        path = write(text.replace("KEY", key))
        told = problems(path)
        assert told[0].startswith("tidemark.yaml:1: ")
        assert key not in str(told)

    @pytest.mark.parametrize("variable", ["OPENAI_API_KEY", "AZURE_API_KEY_2", "my_key2"])
    def test_the_name_of_a_variable_is_shown(self, write: Write, variable: str) -> None:
        """It is what has to be set."""
        assert f'"{variable}" is not set' in problems(write(f"upstream: os.environ/{variable}"))[0]

    def test_keys_of_clients_need_an_upstream_with_a_credential(self, write: Write) -> None:
        """No client sends one then; an entry without is warned of, as a server of this machine may want none."""
        assert "auth.mode: keys needs upstreams" in problems(write("auth: {mode: keys}"))[0]
        path = write("""\
            auth: {mode: keys}
            model_list:
              - {model_name: a, litellm_params: {model: openai/a}}
              - {model_name: b, litellm_params: {model: openai/b, api_key: x}}
            """)
        warnings = load(path, HOME).warnings
        assert ['"a" has no api_key' in warning for warning in warnings] == [True]

    def test_litellms_master_key_is_the_admin_token(self, write: Write) -> None:
        """By its reference, too; the variable of Tidemark's own comes first."""
        path = write("general_settings: {master_key: os.environ/MASTER}")
        for environ, token in (
            ({"MASTER": "from litellm's file"}, "from litellm's file"),
            ({"MASTER": "from litellm's file", "TIDEMARK_ADMIN_TOKEN": "own, and long enough"}, "own, and long enough"),
        ):
            secret = load(path, {**HOME, **environ}).secrets.admin_token
            assert secret is not None
            assert secret.reveal() == token
        assert load(path, HOME).secrets.admin_token is None

    def test_a_master_key_that_can_be_guessed_is_warned_of(self, write: Write) -> None:
        """As the variable's token is: LiteLLM's own pages show ``sk-1234``."""
        warnings = load(write("general_settings: {master_key: sk-1234}"), HOME).warnings
        assert any("1: master_key has fewer than" in warning for warning in warnings)
        long_enough = load(write("general_settings: {master_key: sk-0123456789abcdef0123456789}"), HOME).warnings
        assert not any("has fewer than" in warning for warning in long_enough)

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
        """A glob that fits nothing, and a retention that leaves no tokens for a summary."""
        path = write("""\
            model_list: [{model_name: a, litellm_params: {model: openai/a}}]
            compaction:
              models:
                "gpt-*": {retention_ratio: 0.5}
            """)
        told = [re.sub(r"^.*yaml:", "", warning) for warning in load(path, HOME).warnings]
        assert told[0].startswith('4: "gpt-*" matches no model_name of model_list (a)')
        assert told[1].startswith('4: compaction.models["gpt-*"]: retention_ratio 0.5 is not below target 0.45')

    def test_native_summaries_of_a_model_that_writes_none_are_a_warning(self, write: Write) -> None:
        """It names what writes them; a model that is known, or said, to write its own is no reason for one."""
        path = write("""\
            model_list:
              - {model_name: a, litellm_params: {model: openai/gpt-4o}}
              - {model_name: b, litellm_params: {model: anthropic/claude-opus-5-5}}
              - {model_name: c, litellm_params: {model: openai/house}, model_info: {native_compaction: true}}
              - {model_name: d, litellm_params: {model: bedrock/anthropic.claude-opus-5-5}}
              - {model_name: e, litellm_params: {model: openai/gpt-4o}, compaction: {strategy: extractive}}
              - {model_name: "f-*", litellm_params: {model: "anthropic/*"}}
            compaction: {defaults: {strategy: native}}
            """)
        told = [warning for warning in load(path, HOME).warnings if "native" in warning]
        assert [warning.split('"')[1] for warning in told] == ["a", "d"]
        assert "openai/gpt-4o is not known to write summaries itself: hybrid writes them" in told[0]

    def test_parameters_without_effect_are_told_once(self, write: Write) -> None:
        """They are those that the upstream adapter drops, and those of LiteLLM's own proxy."""
        path = write("""\
            model_list:
              - {model_name: a, litellm_params: {model: openai/a, timeout: 5}}
              - {model_name: b, litellm_params: {model: openai/b, tpm: 5, weight: 1}}
              - {model_name: c, litellm_params: {model: openai/c, weight: 2, max_retries: 3}}
            """)
        (warning,) = load(path, HOME).warnings
        assert "tidemark.yaml:3: max_retries, tpm, weight in litellm_params" in warning
        assert ROUTER_FIELDS - {"api_base", "base_url", "model", "stream_timeout"} <= WITHOUT_EFFECT

    def test_a_model_without_a_provider_is_told(self, write: Write) -> None:
        """It would fail at the first request only. Some bare names are known to litellm."""
        path = write("""\
            model_list:
              - {model_name: a, litellm_params: {model: my-llama, api_base: "http://127.0.0.1:1/v1"}}
              - {model_name: b, litellm_params: {model: gpt-4o}}
              - {model_name: c, litellm_params: {model: my-llama, custom_llm_provider: openai}}
              - {model_name: d, litellm_params: {model: os.environ/MODEL}}
              - {model_name: e, litellm_params: {model: eu.anthropic.claude-opus-5}}
              - {model_name: "*", litellm_params: {model: "*"}}
            """)
        (warning,) = load(path, HOME | {"MODEL": "openai/x"}).warnings
        assert "tidemark.yaml:2: model_list[1].litellm_params.model names no provider" in warning
        assert "my-llama" not in warning  # it may be a key in the wrong place
        assert "write openai/MODEL for a server that speaks OpenAI's format" in warning

    @pytest.mark.parametrize(
        "url",
        ["embed", "http://x", "valkey://h", "redis://", "redis://h:99999", "redis://h:0", "unix://", 6],
    )
    def test_a_store_url_names_a_store(self, write: Write, url: object) -> None:
        """``embedded`` or a URL of a server."""
        assert "store.url" in problems(write(f"store: {{url: '{url}'}}"))[0]

    @pytest.mark.parametrize("folder", [r"C:\Users\me", r"'C:\data'", r'"C:\temp"', "D:/data", r"data\tidemark"])
    def test_a_path_of_windows_is_refused(self, write: Write, folder: str) -> None:
        """It would make a folder of that name in the working directory."""
        (problem,) = problems(write(f"data_dir: {folder}"))
        assert problem.endswith("this is a path of Windows; write one of this machine, such as /home/me/tidemark")
        environment = problems(write("{}"), TIDEMARK_DATA_DIR=r"C:\data")
        assert environment[0].startswith("environment: TIDEMARK_DATA_DIR is a path of Windows")

    def test_a_tenant_without_an_idle_time_is_refused(self, write: Write) -> None:
        """As ``store.ttl_days`` is: null would be read as "for good" and was "as for all"."""
        (problem,) = problems(write("store: {tenants: {0f343b0931126a20f133d67c2b018a3b: {ttl_days: null}}}"))
        assert problem.endswith(".ttl_days is empty; it takes a number of days above 0")

    def test_a_context_window_holds_the_input(self, write: Write) -> None:
        """The whole is not smaller than its part."""
        info = "{max_input_tokens: 9, context_window: 8}"
        path = write(f"model_list: [{{model_name: a, litellm_params: {{model: b}}, model_info: {info}}}]")
        assert "context_window is 8, less than max_input_tokens" in problems(path)[0]


def test_recall_by_meaning_is_refused_with_what_to_write(write: Write) -> None:
    """It is gone, and a server that left it out silently would answer otherwise than its operator believes."""
    path = write("compaction: {defaults: {recall: {method: embedding}}}")
    assert "it gained little and is gone with its extra; write bm25" in problems(path)[0]


def test_an_upstream_without_a_version_is_told(tmp_path: Path) -> None:
    """Its requests would be a bare 404. A version anywhere in the path is one: ``/api/v3``, ``/v1beta/openai``."""
    path = tmp_path / "tidemark.yaml"
    for base, warned in (
        ("http://a.test", True),
        ("http://a.test/openai/", True),
        ("http://a.test/v1", False),
        ("http://a.test/api/v3/", False),
        ("http://a.test/v1beta/openai", False),
    ):
        path.write_text(f"upstream: {base}\n")
        in_file = load(path, {"TIDEMARK_DATA_DIR": str(tmp_path)}).warnings
        in_environment = load(None, {"TIDEMARK_DATA_DIR": str(tmp_path), "TIDEMARK_UPSTREAM": base}).warnings
        assert [":1: " in warning and "end in /v1" in warning for warning in in_file] == [True] * warned
        assert ["environment: " in warning for warning in in_environment] == [True] * warned
