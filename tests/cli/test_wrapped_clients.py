"""The table of clients of ``tidemark wrap``: what is set for each, and how a file of the user's is set and restored."""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from tidemark.cli.agents import AGENTS
from tidemark.cli.main import cli
from tidemark.cli.unwrap import InstallRefusal
from tidemark.cli.wrap import bill_between, read_gain

URL = "http://127.0.0.1:8787"
BODY_OF_CLAUDE = "model_list:\n  - {model_name: '*', litellm_params: {model: 'anthropic/*'%s}}\n"
FILES = {
    "claude": ".claude/settings.json",
    "codex": ".codex/config.toml",
    "opencode": ".config/opencode/opencode.json",
    "aider": ".aider.conf.yml",
    "pi": ".pi/agent/models.json",
}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Somebody with an empty home, and nothing of this machine's in the environment."""
    for name in list(os.environ):
        if name.startswith(
            ("TIDEMARK_", "OPENAI_", "ANTHROPIC_", "XDG_", "CLAUDE", "CODEX", "OPENCODE", "ENABLE_TOOL")
        ):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TIDEMARK_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(*words: str) -> Result:
    """Run the command in this process."""
    return CliRunner().invoke(cli, list(words), prog_name="tidemark")


def printed(*words: str) -> tuple[dict[str, str], list[str]]:
    """The variables and the command line that ``--print`` shows."""
    done = run("wrap", "--print", *words)
    assert done.exit_code == 0, done.output
    *lines, command = done.stdout.splitlines()
    return dict("".join(shlex.split(line)).split("=", 1) for line in lines), shlex.split(command)


@pytest.mark.parametrize("client", sorted(AGENTS))
def test_each_client_is_led_to_the_server_and_keeps_the_words_of_the_user(client: str, home: Path) -> None:
    """The address is in its variables or its arguments; nothing is started, and nothing is written."""
    variables, command = printed(client, "--model", "a b")
    assert URL in json.dumps(variables) + " ".join(command)
    assert (command[0], command[-2:]) == (client, ["--model", "a b"])
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("configuration", "upstream", "switches"),
    [
        ("", None, {"_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL", "ENABLE_TOOL_SEARCH"}),
        ("", "https://api.anthropic.com/v1", {"_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL", "ENABLE_TOOL_SEARCH"}),
        ("", "http://127.0.0.1:8080/v1", set()),
        ("", "https://api.anthropic.com.example.org/v1", set()),
        (BODY_OF_CLAUDE % "", None, {"_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL", "ENABLE_TOOL_SEARCH"}),
        (BODY_OF_CLAUDE % "", "http://127.0.0.1:8080/v1", set()),
        (BODY_OF_CLAUDE % ", api_base: 'https://gateway.example.org'", None, {"ENABLE_TOOL_SEARCH"}),
        ("model_list:\n  - {model_name: a, litellm_params: {model: openai/gpt-4o}}\n", None, set()),
    ],
)
def test_claude_code_is_told_nothing_that_is_not_true(
    configuration: str, upstream: str | None, switches: set[str], home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is at Anthropic's own address only if every model is; its tool search needs Anthropic's format."""
    (home / "tidemark.yaml").write_text(configuration)
    if upstream:
        monkeypatch.setenv("TIDEMARK_UPSTREAM", upstream)
    assert printed("claude")[0].keys() - {"ANTHROPIC_BASE_URL"} == switches


def test_a_switch_that_the_user_has_set_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """An address does not, since that is what the command is for."""
    monkeypatch.setenv("ENABLE_TOOL_SEARCH", "false")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", "https://elsewhere.example.org")
    variables, _ = printed("claude")
    assert "ENABLE_TOOL_SEARCH" not in variables
    assert variables["ANTHROPIC_BASE_URL"] == URL


def test_settings_in_the_environment_of_opencode_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The addresses are laid over them."""
    monkeypatch.setenv(
        "OPENCODE_CONFIG_CONTENT", '{"provider": {"openai": {"options": {"timeout": 5}}}, "share": "no"}'
    )
    content = json.loads(printed("opencode")[0]["OPENCODE_CONFIG_CONTENT"])
    assert content["share"] == "no"
    assert content["provider"]["openai"]["options"] == {"timeout": 5, "baseURL": f"{URL}/v1"}


def test_a_name_behind_two_dashes_is_any_command() -> None:
    """It gets the variables of all SDKs, and no word of ours."""
    assert printed("--", "qwen", "-p") == (
        {"OPENAI_BASE_URL": f"{URL}/v1", "OPENAI_API_BASE": f"{URL}/v1", "ANTHROPIC_BASE_URL": URL},
        ["qwen", "-p"],
    )


def test_an_option_that_wrap_does_not_have_is_refused_and_one_of_the_client_is_not() -> None:
    """An unknown option is not taken for the command; all words behind the command are the client's."""
    done = run("wrap", "--url", "http://127.0.0.1:1", "llm")
    assert done.exit_code == 2
    assert "No such option '--url'" in done.stderr
    assert printed("llm", "--url", "x", "--print")[1] == ["llm", "--url", "x", "--print"]


@pytest.mark.parametrize("client", sorted(AGENTS))
def test_a_program_that_is_not_there_is_told_with_its_mend(client: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before any server is started."""
    monkeypatch.setenv("PATH", "/nowhere")
    done = run("wrap", client)
    assert done.exit_code == 127
    assert done.stderr == f"tidemark: {client} is not installed. Install it: {AGENTS[client].install}\n"


CONTENTS = {
    "claude": '{"env":{"A":"1"},\n\t"model": "opus"}',
    "codex": '# mine\nmodel = "gpt-5"\r\n[projects."/x"]\ntrust_level = "trusted"',
    "opencode": '{"provider": {"openai": {"options": {"baseURL": "https://old.example.org/v1"}}}}\n\n',
    "aider": "model: gpt-4o",
    "pi": "{}",
}


@pytest.mark.parametrize("client", sorted(FILES))
def test_a_file_is_set_and_restored_byte_for_byte(client: str, home: Path) -> None:
    """Its mode stays, too."""
    path = home / FILES[client]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(CONTENTS[client].encode())
    path.chmod(0o640)
    assert run("wrap", "--install", client).exit_code == 0
    assert URL in path.read_text()
    assert run("unwrap", client).exit_code == 0
    assert path.read_bytes() == CONTENTS[client].encode()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [found for found in path.parent.iterdir() if found.name.startswith(path.name)] == [path]


@pytest.mark.parametrize("client", sorted(FILES))
def test_a_file_that_was_not_there_is_gone_again(client: str, home: Path) -> None:
    """As before."""
    assert run("wrap", "--install", client).exit_code == 0
    assert (home / FILES[client]).exists()
    assert run("unwrap", client).exit_code == 0
    assert not (home / FILES[client]).exists()


def test_what_the_user_has_changed_since_is_kept_in_json(home: Path) -> None:
    """A new key stays, an address that the user has changed stays, and the rest is as it was."""
    path = home / FILES["opencode"]
    path.parent.mkdir(parents=True)
    path.write_text(CONTENTS["opencode"])
    run("wrap", "--install", "opencode")
    settings = json.loads(path.read_text())
    settings["share"] = "disabled"
    settings["provider"]["anthropic"]["options"]["baseURL"] = "https://mine.example.org"
    path.write_text(json.dumps(settings))
    assert run("unwrap", "opencode").exit_code == 0
    assert json.loads(path.read_text()) == {
        "provider": {
            "openai": {"options": {"baseURL": "https://old.example.org/v1"}},
            "anthropic": {"options": {"baseURL": "https://mine.example.org"}},
        },
        "share": "disabled",
    }


def test_a_file_that_its_program_has_only_written_anew_is_restored_byte_for_byte(home: Path) -> None:
    """Claude Code writes its settings itself."""
    path = home / FILES["claude"]
    path.parent.mkdir(parents=True)
    path.write_text(CONTENTS["claude"])
    run("wrap", "--install", "claude")
    path.write_text(json.dumps(json.loads(path.read_text()), indent=4))
    run("unwrap", "claude")
    assert path.read_text() == CONTENTS["claude"]


@pytest.mark.parametrize("client", ["codex", "aider"])
def test_what_the_user_has_changed_since_is_kept_in_lines(client: str, home: Path) -> None:
    """Only the lines that were added leave."""
    path = home / FILES[client]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("one: 1\n")
    run("wrap", "--install", client)
    with path.open("a") as file:
        file.write("two: 2\n")
    run("unwrap", client)
    assert path.read_text() == "one: 1\ntwo: 2\n"


@pytest.mark.parametrize(
    ("client", "text", "words"),
    [
        ("claude", '{"env": {} // mine\n}', "it is not valid JSON"),
        ("claude", '{"env": 5}', "env is no object"),
        ("codex", 'openai_base_url = "https://mine.example.org"\n', "it sets openai_base_url already"),
    ],
)
def test_a_file_that_cannot_be_changed_stays_as_it_is(client: str, text: str, words: str, home: Path) -> None:
    """The message names the file and the reason, and nothing is left to take back."""
    path = home / FILES[client]
    path.parent.mkdir(parents=True)
    path.write_text(text)
    done = run("wrap", "--install", client)
    assert isinstance(done.exception, InstallRefusal)
    assert str(path) in str(done.exception)
    assert words in str(done.exception)
    assert path.read_text() == text
    assert isinstance(run("unwrap", client).exception, InstallRefusal)


def test_what_is_set_already_is_not_set_twice() -> None:
    """The copy of the file before would be lost."""
    run("wrap", "--install", "claude")
    assert "Run: tidemark unwrap claude" in str(run("wrap", "--install", "claude").exception)


@pytest.mark.parametrize(("client", "command"), [("qwen", "qwen --auth-type openai"), ("llm", "llm")])
def test_a_client_without_a_file_says_what_to_export_and_to_type(client: str, command: str) -> None:
    """Nothing is written. Qwen Code reads the variables only if an argument says so."""
    refusal = str(run("wrap", "--install", client).exception)
    assert f"export OPENAI_BASE_URL={URL}/v1" in refusal
    assert refusal.endswith(f"start it by: {command}")


def test_the_help_names_every_client() -> None:
    """In the order of the alphabet."""
    assert isinstance(cli, click.Group)
    assert f"({', '.join(sorted(AGENTS))})" in " ".join(run("wrap", "--help").output.split())


def gain(*rows: dict[str, object], **sums: object) -> dict[str, object]:
    """Return what the server answers, with zeros for the rest."""
    names = ("input_tokens", "cached_tokens", "output_tokens", "unknown_summaries")
    money = ("paid_usd", "uncompacted_usd")
    return {**dict.fromkeys(names, 0), **dict.fromkeys(money), **sums, "data": list(rows)}


def test_a_bill_has_the_share_of_the_cache_and_the_money() -> None:
    """Only of what came between both readings; a model without a price is named."""
    before = gain({"model": "a", "unpriced_requests": 0}, input_tokens=1000, paid_usd=1.0, uncompacted_usd=1.5)
    rows = ({"model": "a", "unpriced_requests": 0}, {"model": "b", "unpriced_requests": 2})
    tokens = {"input_tokens": 21_000, "cached_tokens": 8000, "output_tokens": 100}
    after = gain(*rows, **tokens, paid_usd=3.0, uncompacted_usd=4.75)
    counts = "; upstreams read 20,000 tokens (40% from a cache) and wrote 100"
    assert bill_between(before, after) == (f"{counts} for $2.0000, $1.2500 less than uncompacted, no known price for b")
    dear = gain(**tokens, paid_usd=3.0, uncompacted_usd=3.0)
    assert bill_between(before, dear) == f"{counts} for $2.0000, $0.5000 more than uncompacted"
    unknown = gain(**tokens, paid_usd=3.0, uncompacted_usd=9.0, unknown_summaries=1)
    assert bill_between(before, unknown) == f"{counts} for $2.0000, summaries of unknown cost apart"
    assert bill_between(gain(), gain(**tokens)) == "; upstreams read 21,000 tokens (38% from a cache) and wrote 100"
    assert bill_between(after, after) == bill_between(None, after) == bill_between(before, None) == ""


def test_a_server_that_gives_no_bill_is_no_failure() -> None:
    """Nobody answers there, or no operator asks."""
    assert read_gain("http://127.0.0.1:1") is None
