"""Rules of ``tidemark init``: the file can be used as it stands, holds no key, and replaces nothing unasked."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from proxy.cli import init as init_module
from proxy.cli.init import init
from proxy.cli.local_servers import LocalServer, local_servers
from proxy.cli.starter_file import PROVIDERS, providers_with_keys, starter_file
from proxy.config import load
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import Serving

KEY = "sk-very-secret-4711"
SERVER = LocalServer("llama.cpp", "http://127.0.0.1:8080/v1", ("smollm2", "/models/my model.gguf", 'a "b": c'))


def served_names(text: str, folder: Path, environ: Mapping[str, str]) -> list[str]:
    """The names of the models that a file serves, by the loader that ``serve`` uses."""
    path = folder / "tidemark.yaml"
    path.write_text(text, encoding="utf-8")
    settings = load(path, {"HOME": str(folder), **environ})
    assert settings.warnings == ()
    return [entry.name for entry in settings.model_list]


@pytest.mark.parametrize("provider", PROVIDERS, ids=lambda provider: provider.name)
def test_each_provider_with_a_key_is_served(tmp_path: Path, provider: object) -> None:
    """Under the names that its clients use; the file names the variable and not the key."""
    environ = {one.variable: KEY for one in PROVIDERS if one is provider}
    (found,) = providers_with_keys(environ)
    text = starter_file([found], [])
    assert served_names(text, tmp_path, environ) == list(found.patterns)
    assert KEY not in text


def test_all_together_are_served(tmp_path: Path) -> None:
    """Every provider, and every model of two servers."""
    environ = {provider.variable: KEY for provider in PROVIDERS}
    other = LocalServer("vLLM", "http://127.0.0.1:8000/v1", ("smollm2", "qwen"))
    names = served_names(starter_file(PROVIDERS, [SERVER, other]), tmp_path, environ)
    assert {*SERVER.models, "qwen", "gpt-*", "claude-*"} <= set(names)
    assert len(names) == len(set(names)), "the first server that has a name serves it"


def test_without_anything_the_file_is_an_example(tmp_path: Path) -> None:
    """It can be used all the same: with the client's own key."""
    assert served_names(starter_file([], []), tmp_path, {}) == []
    assert providers_with_keys({"OPENAI_API_KEY": ""}) == []


@given(st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"]), max_size=30).filter(str.strip))
def test_no_name_of_a_model_breaks_the_file(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    """A local server may call its models anything."""
    text = starter_file([], [LocalServer("llama.cpp", SERVER.base_url, (name,))])
    assert text.count("model_name") == 1
    path = tmp_path_factory.mktemp("named") / "tidemark.yaml"
    path.write_text(text, encoding="utf-8")
    assert [entry.name for entry in load(path, {"HOME": str(path.parent)}).model_list] == [name]


def test_a_server_is_found_by_what_it_answers() -> None:
    """A closed port, or one where something else answers, is none."""
    upstream = ScriptedUpstream()
    upstream.models = {"object": "list", "data": [{"id": "smollm2", "object": "model", "owned_by": "llamacpp"}]}
    other = ScriptedUpstream()
    other.models = {"greeting": "hello"}
    with socket.socket() as closed, Serving(upstream) as one, Serving(other) as another:
        closed.bind(("127.0.0.1", 0))
        ports = [int(served.url.rpartition(":")[2]) for served in (another, one)]
        found = local_servers([closed.getsockname()[1], *ports])
        assert found == [LocalServer("llama.cpp", f"{one.url}/v1", ("smollm2",))]


@pytest.fixture
def runner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """Types the command in a folder of its own, on a machine with one key and no server."""
    for provider in PROVIDERS:
        monkeypatch.delenv(provider.variable, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setattr(init_module, "local_servers", list)
    monkeypatch.chdir(tmp_path)
    return CliRunner()


def test_a_file_that_exists_is_left_as_it_is(runner: CliRunner) -> None:
    """The error names both ways out; ``--force`` overwrites it."""
    Path("tidemark.yaml").write_text("mine")
    refused = runner.invoke(init)
    assert refused.exit_code == 1
    assert "--output" in refused.output
    assert "--force" in refused.output
    assert Path("tidemark.yaml").read_text() == "mine"
    assert runner.invoke(init, ["--force"]).exit_code == 0
    assert "OPENAI_API_KEY" in Path("tidemark.yaml").read_text()


def test_what_was_found_is_told_and_what_comes_next(runner: CliRunner) -> None:
    """On standard error, without a key."""
    done = runner.invoke(init, ["--output", "new.yaml"])
    assert done.exit_code == 0
    assert "OPENAI_API_KEY" in done.stderr
    assert "tidemark doctor --config new.yaml" in done.stderr
    assert KEY not in done.output


def test_standard_output_gets_the_file_alone(runner: CliRunner, tmp_path: Path) -> None:
    """So it can be sent into a file."""
    done = runner.invoke(init, ["--output", "-"])
    assert "gpt-*" in served_names(done.stdout, tmp_path, {"OPENAI_API_KEY": KEY})


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_an_error(runner: CliRunner, tmp_path: Path) -> None:
    """With the system's own words."""
    tmp_path.chmod(0o500)
    assert "cannot be written" in runner.invoke(init).output


def test_a_folder_that_is_not_there_is_an_error(runner: CliRunner) -> None:
    """Nothing is made beside the file."""
    done = runner.invoke(init, ["--output", "nowhere/tidemark.yaml"])
    assert (done.exit_code, "cannot be written" in done.output) == (1, True)
